"""The environment of a benchmark: the processor and its features, package versions, tools."""

import platform
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from phonograd.device_runtime.base.errors import UnsupportedError
from phonograd.device_runtime.base.system import cpu_name, usable_cores

# The features that decide which kernels a runtime uses; /proc/cpuinfo lists about a hundred more.
FEATURES = (
    "sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_bf16", "amx_int8", "asimd", "fphp", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2",
)  # fmt: skip
# Keys of /proc/cpuinfo: x86's, then ARM's.
MAKER_KEYS, MODEL_KEYS = ("vendor_id", "CPU implementer"), ("cpu family", "model", "stepping", "CPU part")
MAKERS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel", "0x41": "ARM", "0xc0": "Ampere"}

ROOT = Path(__file__).resolve().parents[1]
# What runs write, and the pages of it.
RESULTS = ("bench/results", "bench/RESULTS.md", "phonograd/papers/results", "docs/results.md", "docs/pictures")


@dataclass(frozen=True)
class Environment:
    """The machine of a benchmark. cpu, maker, model: the CPU's name, who made it, and which it is where a name, as of a
    virtual machine, does not tell; cores: how many this process may use.
    """

    cpu: str
    maker: str
    model: str
    features: tuple[str, ...]
    cores: int
    system: str
    python: str


def this_environment(cpuinfo: Path = Path("/proc/cpuinfo")) -> Environment:
    """This machine's."""
    fields: dict[str, str] = {}
    for line in cpuinfo.read_text("utf-8").splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return Environment(
        cpu=cpu_name(cpuinfo),
        maker=next((MAKERS.get(fields[key], fields[key]) for key in MAKER_KEYS if key in fields), ""),
        model=", ".join(f"{key.lower().removeprefix('cpu ')} {fields[key]}" for key in MODEL_KEYS if fields.get(key)),
        features=tuple(name for name in FEATURES if name in flags),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        python=platform.python_version(),
    )


def this_commit() -> str:
    """The checkout's commit, with "+" if other files than results differ from it; empty outside of a checkout."""
    if not (ROOT / "pyproject.toml").is_file() or shutil.which("git") is None:
        return ""
    commit = _git("rev-parse", "HEAD")
    others = (f":!{path}" for path in RESULTS)
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", *others)
    return commit + ("+" if commit and changed else "")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


def version_of(*distributions: str) -> dict[str, str]:
    """The versions of those of these distributions that are installed."""
    versions = {}
    for name in distributions:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def find_tool(names: str, package: str) -> str:
    """The first of `names` (separated by spaces) that is installed. Raises UnsupportedError that names the package."""
    for name in names.split():
        if path := shutil.which(name):
            return path
    raise UnsupportedError(f"bench: {names.split(maxsplit=1)[0]} not found; install {package}")
