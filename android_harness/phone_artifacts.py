"""The artifacts folder for phones: without ONNX Runtime's second copy of the weights."""

import hashlib
import json
from pathlib import Path

from phonograd.device_runtime.base.files import sha256_of_file, write_bytes
from phonograd.device_runtime.formats.manifest import CHECKPOINT, MANIFEST, PREDICTION, WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile

# Its name on the phone, under the work folder.
ARTIFACTS_FOLDER = "artifacts"


def phone_artifacts(artifacts: Artifacts, scratch: Path, model: Path | None = None) -> dict[str, Path]:
    """Files by their name on the phone; modified files are written into `scratch`.

    `model` is a tensor file that replaces the folder's weights, such as a later round's model.

    `checkpoint` is as large as the weights (183 of 367 MB), and only ONNX Runtime opens it. The phone gets an empty one
    and a manifest that names it, as phonograd-phone checks the folder against its manifest. The model's identity, the
    hash of weights.safetensors, does not change. Raises StorageError, and WeightsError if `model` is not a tensor file.
    """
    manifest, checkpoint = scratch / MANIFEST, scratch / CHECKPOINT
    document = json.loads(artifacts.path(MANIFEST).read_text("utf-8"))
    document["files"][CHECKPOINT] = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    if model is not None:
        document["files"].pop(PREDICTION, None)  # of the folder's own weights
        document["files"][WEIGHTS] = {"bytes": model.stat().st_size, "sha256": sha256_of_file(model)}
        with TensorFile(model) as tensors:
            for entry in document["tensors"]:
                entry["sha256"] = hashlib.sha256(tensors.read(entry["name"]).data.cast("B")).hexdigest()
    write_bytes(manifest, json.dumps(document, indent=2).encode() + b"\n")
    write_bytes(checkpoint, b"")
    own = {MANIFEST: manifest, CHECKPOINT: checkpoint, WEIGHTS: model or artifacts.path(WEIGHTS)}
    names = (MANIFEST, *document["files"])
    return {f"{ARTIFACTS_FOLDER}/{name}": own.get(name, artifacts.path(name)) for name in names}
