"""Backends by name. A backend's runtime is imported when it is first used."""

from pathlib import Path

from phonograd.device_runtime.engine.backend import MAX_THREADS, Backend, BackendOptions
from phonograd.device_runtime.formats.manifest import Artifacts

__all__ = ["MAX_THREADS", "Backend", "BackendOptions", "load_backend"]


def load_backend(
    name: str, artifacts: Artifacts, weights: Path | None = None, options: BackendOptions | None = None
) -> Backend:
    """Load artifacts into the backend of that name.

    It starts from the folder's weights, or from a tensor file of the same shapes (canonical names, float32).
    Raises WeightsError for weights that do not fit, MissingExtraError if the runtime is not installed, UsageError or
    UnsupportedError for options that the backend or this CPU does not support, ArtifactsError for an output sample if
    the folder has no graph for one.
    """
    chosen = options or BackendOptions()
    if name == "native":
        from phonograd.device_runtime.engine.native import NativeBackend

        return NativeBackend(artifacts, weights, chosen)
    if name == "ort":
        from phonograd.device_runtime.engine.ort import OrtBackend

        return OrtBackend(artifacts, weights, chosen)
    raise ValueError(f"backend {name!r}: expected native or ort")
