"""The tools that build an APK: a JDK, and an Android SDK from Google or Debian."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import BuildError

DEBIAN_SDK = Path("/usr/lib/android-sdk")
TIMEOUT_SECONDS = 300.0
# Debian's package of each tool; dalvik-exchange and libandroid-23-java are in Debian 11 only.
PACKAGES = {
    "javac": "default-jdk-headless",
    "javadoc": "default-jdk-headless",
    "keytool": "default-jre-headless",
    "aapt": "aapt",
    "zipalign": "zipalign",
    "apksigner": "apksigner",
    "d8 or dx": "dalvik-exchange",
    "android.jar": "libandroid-23-java",
}
# In the order of Tools: programs of the JDK, and where an SDK has its own.
JDK = ("javac", "javadoc", "keytool")
SDK = {
    "aapt": ("build-tools/*/aapt",),
    "zipalign": ("build-tools/*/zipalign",),
    "apksigner": ("build-tools/*/apksigner",),
    "d8 or dx": ("build-tools/*/d8", "build-tools/*/dx"),
    "android.jar": ("platforms/*/android.jar",),
}


@dataclass(frozen=True)
class Tools:
    """The programs, and the API to compile against. dexer: d8 or its predecessor dx, recognised by its file name."""

    javac: Path
    javadoc: Path
    keytool: Path
    aapt: Path
    zipalign: Path
    apksigner: Path
    dexer: Path
    android_jar: Path


def find_tools(sdk: Path | None = None, dexer: Path | None = None, android_jar: Path | None = None) -> Tools:
    """The newest tools of an SDK: `sdk`, else ANDROID_HOME, else Debian's; `dexer` and `android_jar` override it.

    Raises BuildError, which names all that is missing and says how to get it.
    """
    sdk = sdk or Path(os.environ.get("ANDROID_HOME") or DEBIAN_SDK)
    for given in (dexer, android_jar):
        if given is not None and not given.is_file():
            raise BuildError(f"{given}: no such file; give an existing one, or omit the option")
    found: dict[str, str | Path | None] = {name: shutil.which(name) for name in JDK}
    found |= {name: _of_sdk(sdk, *patterns) for name, patterns in SDK.items()}
    found |= {name: given for name, given in (("d8 or dx", dexer), ("android.jar", android_jar)) if given is not None}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        packages = " ".join(dict.fromkeys(PACKAGES[name] for name in missing))
        raise BuildError(
            f"missing: {', '.join(missing)}, of a JDK of 11 or later on PATH and an Android SDK in {sdk}; install "
            f"them, set ANDROID_HOME, or install Debian's packages: {packages} (docs/android.md)"
        )
    return Tools(*(Path(path) for path in found.values() if path is not None))


def check_tools() -> None:
    """End the process with a line that names all that is missing. Needs Python alone: make installs nothing before."""
    try:
        find_tools()
    except BuildError as error:
        sys.exit(f"error: {error}")


def run_tool(tool: Path, *arguments: str | Path) -> str:
    """Run a tool and return its output; raises BuildError, which quotes the first line of output."""
    line: Sequence[str] = [str(tool), *map(str, arguments)]
    try:
        done = subprocess.run(
            line,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{tool}: does not run: {error}") from error
    if done.returncode != 0:
        first = next((text for text in done.stdout.splitlines() if text.strip()), "no output")
        raise BuildError(f"{tool}: exit code {done.returncode}: {first.strip()}")
    return done.stdout


def _of_sdk(sdk: Path, *patterns: str) -> Path | None:
    for pattern in patterns:
        programs = sorted(sdk.glob(pattern), key=lambda path: _version(path.parent.name))
        if programs:
            return programs[-1]
    return None


def _version(folder: str) -> tuple[int, ...]:
    """(35, 0, 1) for build-tools/35.0.1, (23,) for platforms/android-23, () for Debian's build-tools/debian."""
    return tuple(int(number) for number in re.findall(r"\d+", folder))
