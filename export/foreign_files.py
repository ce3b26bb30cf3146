"""Files of models that are none of ours: named by how they begin, with what is taken in their place."""

import codecs
import zipfile
from pathlib import Path

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import HEADER_CAP_BYTES

SAVE_IT = "torch.save(model.state_dict(), PATH)"
_SAVED = f"give the PyTorch model, saved with: {SAVE_IT}"
_KINDS = (
    (b"\x89HDF", "an HDF5 file, such as Keras writes", _SAVED),
    (b"\x1f\x8b", "a gzip file", "unpack it"),
    (b"\x80", "a pickle, which can't be read without running code", _SAVED),
    (b"{", "JSON, such as the index of a model in several files", "load those into one state dict, and save that"),
)
_ONNX = {bytes([8, version]) for version in range(1, 32)}  # the first field of a ModelProto: its IR's version


def refuse_foreign(path: Path, first: bytes) -> None:
    """Raise WeightsError for a file that begins as none of ours does, if it is of a kind that is known."""
    if int.from_bytes(first[:8], "little") <= HEADER_CAP_BYTES or len(first) < 8:
        return  # a safetensors file
    for magic, kind, advice in _KINDS:
        if first.startswith(magic):
            raise _wrong_file(path, kind, advice)
    if first[:2] in _ONNX:
        raise _wrong_file(path, "an ONNX model", _SAVED)
    if _is_text(first):
        raise _wrong_file(path, "text", "give the model's weights")


def _is_text(first: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(first)  # which may end within a character
    except UnicodeDecodeError:
        return False
    return all(one.isprintable() or one.isspace() for one in text)


def refuse_foreign_zip(path: Path) -> None:
    """Raise WeightsError for a zip file that torch.save did not write."""
    try:
        with zipfile.ZipFile(path) as file:
            names = [name.rpartition("/")[2] for name in file.namelist()]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise WeightsError(f"{path}: cannot be read as a zip file ({error}); copy it again") from error
    if "constants.pkl" in names:
        advice = "save its tensors with: torch.save(torch.jit.load(PATH).state_dict(), NEW)"
        raise _wrong_file(path, "a TorchScript model", advice)
    if "data.pkl" not in names:
        raise _wrong_file(path, f"a zip file of {', '.join(map(ascii, names[:3])) or 'nothing'}", _SAVED)


def _wrong_file(path: Path, kind: str, advice: str) -> WeightsError:
    return WeightsError(f"{path}: a PyTorch state dict or a safetensors file expected, found {kind}; {advice}")
