"""The engines that are held to PyTorch."""

from phonograd.device_runtime.engine.backend import Backend, BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.engine.ort import OrtBackend
from phonograd.device_runtime.formats.manifest import Artifacts


def open_engine(name: str, artifacts: Artifacts, options: BackendOptions | None = None) -> Backend:
    if name == "ort":
        return OrtBackend(artifacts, None, options or BackendOptions())
    return NativeBackend(artifacts, None, options or BackendOptions())
