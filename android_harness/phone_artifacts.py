"""The artifacts folder as it is sent to a phone: without ONNX Runtime's second copy of the weights."""

import hashlib
import json
from pathlib import Path

from phonograd.device_runtime.base.files import sha256_of_file, write_bytes
from phonograd.device_runtime.formats.manifest import CHECKPOINT, MANIFEST, WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile

# Where it lies on the phone, in the harness's folder there.
FOLDER = "artifacts"


def phone_artifacts(artifacts: Artifacts, scratch: Path, model: Path | None = None) -> dict[str, Path]:
    """Files by their name on the phone; what differs from the folder's own is written into `scratch`.

    `model` is a tensor file that takes the place of the folder's weights: a later round's.

    `checkpoint` is as large as the weights (183 of 367 MB) and only ONNX Runtime opens it. phonograd-phone holds the
    folder to its manifest, so that the manifest sent names an empty one; the model's identity, the hash of
    weights.safetensors, is the same. Raises StorageError, and WeightsError for a model that is no tensor file.
    """
    manifest, checkpoint = scratch / MANIFEST, scratch / CHECKPOINT
    document = json.loads(artifacts.path(MANIFEST).read_text("utf-8"))
    document["files"][CHECKPOINT] = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}
    if model is not None:
        document["files"][WEIGHTS] = {"bytes": model.stat().st_size, "sha256": sha256_of_file(model)}
        with TensorFile(model) as tensors:
            for entry in document["tensors"]:
                entry["sha256"] = hashlib.sha256(tensors.read(entry["name"]).data.cast("B")).hexdigest()
    write_bytes(manifest, json.dumps(document, indent=2).encode() + b"\n")
    write_bytes(checkpoint, b"")
    own = {MANIFEST: manifest, CHECKPOINT: checkpoint, WEIGHTS: model or artifacts.path(WEIGHTS)}
    return {f"{FOLDER}/{name}": own.get(name, artifacts.path(name)) for name in (MANIFEST, *artifacts.manifest.files)}
