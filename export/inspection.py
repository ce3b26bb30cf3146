"""What an artifacts folder holds, for people and programs."""

import sys
from pathlib import Path
from typing import Any

from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.base.errors import ArtifactsError, MissingExtraError, how_to_install
from phonograd.device_runtime.formats.frozen import frozen_in
from phonograd.device_runtime.formats.manifest import GRAPHS, WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.export.presets import preset_of


def operators(path: Path) -> dict[str, int]:
    """How often each operator occurs in an ONNX file, most frequent first.

    Raises ArtifactsError if the file is no ONNX model, MissingExtraError without the onnx package.
    """
    try:
        import onnx  # noqa: PLC0415  # a server that inspects a folder has no onnx; it sees everything else
    except ImportError as error:
        raise MissingExtraError.for_export("operators need onnx", error) from error
    try:
        nodes = onnx.load(path).graph.node
    except Exception as error:  # protobuf raises kinds of its own, by version
        raise ArtifactsError(f"{path}: cannot be read as ONNX: {error}") from error
    counts: dict[str, int] = {}
    for node in nodes:
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def how_to_get_onnx() -> str:
    """The command. Any version of onnx reads graphs; the extra has the one that also exports, for older Pythons."""
    return "run: pip install onnx" if sys.version_info >= (3, 13) else how_to_install("export")


def describe(artifacts: Artifacts) -> dict[str, Any]:
    """Parameters, bytes, operators of each graph (None without onnx), tensors, files, settings, tool versions."""
    manifest = artifacts.manifest
    graphs: dict[str, dict[str, int]] | None
    with TensorFile(artifacts.path(WEIGHTS)) as weights:
        frozen = frozen_in(weights)
    try:
        graphs = {name: operators(artifacts.path(name)) for name in GRAPHS if name in manifest.files}
    except MissingExtraError:
        graphs = None
    return {
        "folder": str(artifacts.folder),
        "preset": preset_of(manifest.model.plain),
        "parameters": manifest.model.parameters,
        "weights_bytes": 4 * manifest.model.parameters,
        "folder_bytes": sum(entry.bytes for entry in manifest.files.values()),
        "weights_sha256": artifacts.weights_sha256,
        "model": document_of(manifest.model),
        "training": document_of(manifest.training),
        "operators": graphs,
        "frozen": [tensor.name for tensor in manifest.tensors if tensor.name in frozen],
        "states": [document_of(state) for state in manifest.states],
        "tensors": [document_of(tensor) for tensor in manifest.tensors],
        "files": {name: document_of(entry) for name, entry in manifest.files.items()},
        "tools": dict(manifest.tools),
    }
