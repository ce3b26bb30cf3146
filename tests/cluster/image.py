"""The Dockerfile's lines, run without a container engine: layers over a minimal Debian of debootstrap's, as overlays.

Every command has a mount namespace of its own, so nothing stays mounted. Root is needed.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from phonograd.device_runtime.native_build.compiler import cache_folder

ROOT = Path(__file__).parents[2]
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# What debian:*-slim leaves out of a minimal Debian, and of packages that are installed later.
LEFT_OUT = (*(f"usr/share/{name}" for name in ("doc", "info", "locale", "man")), "var/cache/apt", "var/lib/apt/lists")
# Arguments: lower layers, an upper one or "", a mount point, a scratch folder, the user; then the command.
RUN = """
set -eu
lower=$1 upper=$2 root=$3 scratch=$4 user=$5
shift 5
mkdir -p "$scratch/work"
mount -t overlay overlay -o "lowerdir=$lower${upper:+,upperdir=$upper,workdir=$scratch/work}" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
cp "$PIP_CERT" "$root/run/ca.crt"
mount --bind /etc/resolv.conf "$root/etc/resolv.conf"
for place in $PLACES; do
    mkdir -p "$root${place#*:}"
    mount --bind "${place%%:*}" "$root${place#*:}"
done
PIP_CERT=/run/ca.crt exec /usr/sbin/chroot --userspec="$user" "$root" "$@"
"""


@dataclass(frozen=True)
class Image:
    """The layers of a stage, the last first, and what its lines say of the container, by their instructions."""

    layers: tuple[Path, ...]
    env: dict[str, str] = field(default_factory=dict)
    arg: dict[str, str] = field(default_factory=dict)
    user: str = "0"
    expose: str = ""
    volume: str = ""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    healthcheck: tuple[str, ...] = ()

    def megabytes(self) -> float:
        """The megabytes of the files of all layers."""
        files = (path.lstat() for layer in self.layers for path in layer.rglob("*") if not path.is_dir())
        return sum({(one.st_dev, one.st_ino): one.st_size for one in files}.values()) / 1e6

    def line(self, scratch: Path, *command: str, upper: str = "", places: Sequence[str] = ()) -> list[str]:
        """What runs a command in the image, as its user. Without the folder of an upper layer, only `places` are
        writable, each FOLDER:TARGET.
        """
        root = Path(tempfile.mkdtemp(dir=scratch))
        own = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PIP_CERT": str(CERTIFICATES), "PLACES": " ".join(places)}
        own |= {name: os.environ[name] for name in ("PIP_INDEX_URL",) if name in os.environ}
        settings = own | self.arg | self.env
        lower = ":".join(map(str, self.layers))
        run = ("sh", "-c", RUN, "sh", lower, upper, str(root), f"{root}.scratch", f"{self.user}:{self.user}")
        pairs = [f"{name}={value}" for name, value in settings.items()]
        return ["env", "-i", *pairs, "unshare", "--mount", *run, *command]


def instructions(text: str) -> list[tuple[str, str]]:
    """The Dockerfile's instructions, by name."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.M))
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


def build(text: str, folder: Path | None = None) -> Image:
    """The last stage, its layers in `folder`; None: what it says of its containers, nothing is built.

    Raises ValueError for a line that can't be run, CalledProcessError for one that fails.
    """
    stages: dict[str, Image] = {}
    stage, image = "", Image(())
    for number, (name, rest) in enumerate(instructions(text)):
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            image = Image((debian(base),) if folder else ())
        elif name not in ("RUN", "COPY"):
            image = _apply_setting(name, rest, image)
        elif folder:
            layer = folder / f"layer{number}"
            layer.mkdir()
            if name == "RUN":
                _run(image, rest, layer, folder)
            else:
                _copy(rest, layer, stages)
            image = replace(image, layers=(layer, *image.layers))
        stages[stage] = image
    return image


def debian(name: str) -> Path:
    """The files of debian:SUITE-slim, nearly: made once, in the cache folder."""
    found = re.fullmatch(r"debian:(\w+)-slim", name)
    if found is None:
        raise ValueError(f"FROM {name}: expected debian:SUITE-slim")
    place = cache_folder() / f"debian-{found[1]}"
    if not place.is_dir():
        place.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=place.parent))
        subprocess.run(["debootstrap", "--variant=minbase", found[1], str(new)], check=True, capture_output=True)
        excluded = "".join(f"path-exclude /{left}/*\n" for left in LEFT_OUT if left.startswith("usr/"))
        (new / "etc/dpkg/dpkg.cfg.d/slim").write_text(excluded, "utf-8")
        for left in LEFT_OUT:
            shutil.rmtree(new / left)
        new.chmod(0o755)
        with contextlib.suppress(OSError):  # another worker was first
            new.rename(place)
    return place


def _run(image: Image, command: str, layer: Path, folder: Path) -> None:
    if command.startswith(("--", "[")):
        raise ValueError(f"RUN {command}: expected a shell's command line without options")
    # What this checkout compiled is not compiled once more.
    image = replace(image, env=image.env | {"PHONOGRAD_CACHE": "/run/phonograd"})
    line = image.line(folder, "sh", "-c", command, upper=str(layer), places=[f"{cache_folder()}:/run/phonograd"])
    subprocess.run(line, check=True)


def _copy(rest: str, layer: Path, stages: dict[str, Image]) -> None:
    *sources, target = shlex.split(rest)
    stage = sources.pop(0).removeprefix("--from=") if sources[0].startswith("--from=") else None
    if not target.startswith("/") or any(re.search(r"[*?\[$]|^--", source) for source in sources):
        raise ValueError(f"COPY {rest}: expected names without patterns or options, and an absolute target")
    place = layer / target.lstrip("/")
    for source in sources:
        # Of a stage it has to be a folder that one RUN made.
        holders = [ROOT] if stage is None else stages[stage].layers
        (found,) = [path for holder in holders if (path := holder / source.lstrip("/")).exists()]
        if found.is_dir():
            left = None if stage else shutil.ignore_patterns("__pycache__")  # .dockerignore's
            shutil.copytree(found, place, symlinks=True, ignore=left)
        else:
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, place)


def _apply_setting(name: str, rest: str, image: Image) -> Image:
    key = name.lower()
    if key not in Image.__annotations__:
        raise ValueError(f"{name} {rest}: expected FROM, RUN, COPY or a field of Image")
    value: Any = rest
    if name in ("ARG", "ENV"):
        value = getattr(image, key) | dict(pair.split("=", 1) for pair in shlex.split(rest))
    elif name in ("HEALTHCHECK", "ENTRYPOINT", "CMD"):
        value = tuple(json.loads(rest[rest.index("[") :]))
    return replace(image, **{key: value})
