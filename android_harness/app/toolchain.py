"""The tools that build an APK: a JDK, and an Android SDK from Google or Debian."""

import os
import re
import shutil
import subprocess
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

    Raises BuildError, which names the missing tool and says how to get it.
    """
    sdk = sdk or Path(os.environ.get("ANDROID_HOME") or DEBIAN_SDK)
    for given in (dexer, android_jar):
        if given is not None and not given.is_file():
            raise BuildError(f"{given}: no such file; give an existing one, or omit the option")
    return Tools(
        javac=_of_jdk("javac"),
        javadoc=_of_jdk("javadoc"),
        keytool=_of_jdk("keytool"),
        aapt=_of_sdk(sdk, "aapt", "build-tools/*/aapt"),
        zipalign=_of_sdk(sdk, "zipalign", "build-tools/*/zipalign"),
        apksigner=_of_sdk(sdk, "apksigner", "build-tools/*/apksigner"),
        dexer=dexer or _of_sdk(sdk, "d8 or dx", "build-tools/*/d8", "build-tools/*/dx"),
        android_jar=android_jar or _of_sdk(sdk, "android.jar", "platforms/*/android.jar"),
    )


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


def _of_jdk(name: str) -> Path:
    program = shutil.which(name)
    if program is None:
        raise BuildError(f"no {name} on PATH; install a JDK of 11 or later (Debian: apt install {PACKAGES[name]})")
    return Path(program)


def _of_sdk(sdk: Path, name: str, *patterns: str) -> Path:
    for pattern in patterns:
        programs = sorted(sdk.glob(pattern), key=lambda path: _version(path.parent.name))
        if programs:
            return programs[-1]
    raise BuildError(
        f"{sdk}: no {name} (expected {' or '.join(patterns)}); set ANDROID_HOME to an Android SDK, "
        f"or install Debian's {PACKAGES[name]}"
    )


def _version(folder: str) -> tuple[int, ...]:
    """(35, 0, 1) for build-tools/35.0.1, (23,) for platforms/android-23, () for Debian's build-tools/debian."""
    return tuple(int(number) for number in re.findall(r"\d+", folder))
