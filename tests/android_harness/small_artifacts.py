"""An artifacts folder that exists without torch or ONNX: files of any content under a true manifest."""

import hashlib
from pathlib import Path

from phonograd.device_runtime.formats.manifest import (
    FILES,
    VOCABULARY,
    Artifacts,
    FileEntry,
    Manifest,
    TrainingConfig,
    open_artifacts,
)
from phonograd.device_runtime.formats.model_config import LanguageModelConfig

MODEL = LanguageModelConfig("lstm", vocabulary=60, embedding=16, hidden=16, layers=2)


def small_artifacts(folder: Path, training: TrainingConfig | None = None) -> Artifacts:
    """Written into `folder`; nothing can train from it."""
    folder.mkdir()
    words = ["<unk>", "<eos>", *(f"w{number:02}" for number in range(MODEL.vocabulary - 2))]
    contents = {name: f"the file {name}".encode() for name in FILES} | {VOCABULARY: "\n".join(words).encode() + b"\n"}
    entries = {}
    for name, data in contents.items():
        (folder / name).write_bytes(data)
        entries[name] = FileEntry(len(data), hashlib.sha256(data).hexdigest())
    Manifest(MODEL, training or TrainingConfig(), (), (), entries, {}).write(folder)
    return open_artifacts(folder)
