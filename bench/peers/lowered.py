"""Programs that a peer runs, made from the artifacts by another process: that takes minutes and much memory."""

import hashlib
import subprocess
import sys
from pathlib import Path

import msgspec

from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.native_build.compiler import cache_folder


def lowered(exporter: str, artifacts: Artifacts) -> Path:
    """The program that module `exporter` writes when it is run with an artifacts folder and the program's path.

    It is kept in the cache folder under the hash of what it was made from. Raises CalledProcessError.
    """
    manifest = artifacts.manifest
    source = msgspec.json.encode([manifest.model, manifest.training, artifacts.weights_sha256])
    program = cache_folder() / "peers" / f"{exporter.rpartition('.')[2]}-{hashlib.sha256(source).hexdigest()}"
    if not program.is_file():
        program.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", exporter, artifacts.folder, program], check=True)
    return program
