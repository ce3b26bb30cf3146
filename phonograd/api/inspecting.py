"""What an artifacts folder holds."""

from typing import Any

from phonograd.api.inputs import StrPath, artifacts_of
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.export.inspection import describe


def inspect(artifacts: Artifacts | StrPath) -> dict[str, Any]:
    """Parameters, bytes, settings, tensors, files, frozen tensors, and the operators of each graph (None without onnx).

    As `phonograd inspect --json` prints it. Raises ArtifactsError, also for a file that was altered.
    """
    return describe(artifacts_of(artifacts))
