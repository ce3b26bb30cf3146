"""A model's tensors as a file has them: PyTorch's own, of which no code is run, or safetensors."""

import codecs
import contextlib
import dataclasses
import re
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.device_runtime.base.errors import MissingExtraError, WeightsError, how_to_install
from phonograd.device_runtime.base.files import regular_file
from phonograd.device_runtime.formats.tensor_file import (
    HEADER_CAP_BYTES,
    Array,
    TensorFile,
    TensorSpec,
    check_finite,
    spec_of,
)

SAVE_IT = "torch.save(model.state_dict(), PATH)"
_SAVED = f"give the PyTorch model, saved with: {SAVE_IT}"
_KINDS = (
    (b"\x89HDF", "an HDF5 file, such as Keras writes", _SAVED),
    (b"\x1f\x8b", "a gzip file", "unpack it"),
    (b"\x80", "a pickle, which can't be read without running code", _SAVED),
    (b"{", "JSON, such as the index of a model in several files", "load those into one state dict, and save that"),
)
_ONNX = {bytes([8, version]) for version in range(1, 32)}  # the first field of a ModelProto: its IR's version

FLOAT_DTYPES = ("F32", "F16", "BF16", "F64")
# Where training scripts keep the state dict in a dict of more, such as an epoch's number.
USUAL_KEYS = ("state_dict", "model_state_dict", "model")
_DTYPES = {"torch.float32": "F32", "torch.float16": "F16", "torch.bfloat16": "BF16", "torch.float64": "F64"}
_MOST_LISTED = 16
_DEEPEST = 8  # of the paths that an error lists
_ZIP, _LEGACY = b"PK\x03\x04", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


@dataclass(frozen=True)
class StateDict:
    """Named tensors, read one at a time. `source` names them in errors.

    specs: dtypes as they are stored; metadata: a safetensors file's. Valid as long as its file is open.
    """

    source: str
    specs: Mapping[str, TensorSpec]
    metadata: Mapping[str, str]
    _read: Callable[[str], Array]

    @classmethod
    def of(cls, content: object, source: str, key: str | None = None) -> "StateDict":
        """A state dict in memory, of PyTorch's tensors or NumPy's arrays, or one that `content` holds at `key`.

        key: names in dicts and numbers in lists, `model.state_dict`; None: `content` itself, or one of USUAL_KEYS.
        What is no tensor has a spec too, and is refused only if it is read. Raises WeightsError for no tensors.
        """
        tensors = _tensors_of(source, content, key)
        specs = {name: _spec(source, name, value) for name, value in tensors.items()}
        return cls(source, specs, {}, lambda name: _array(tensors[name]))

    def read(self, name: str) -> Array:
        """A tensor as float32. Raises WeightsError for a dtype not among FLOAT_DTYPES, NaN and infinite values."""
        spec = self.specs[name]
        if spec.dtype not in FLOAT_DTYPES:
            raise WeightsError(
                f"{self.source}: tensor {_one_line(name)}: dense values of {', '.join(FLOAT_DTYPES)} expected, found "
                f"{spec.dtype}{list(spec.shape)}; convert it with model.float(), of a model that is not quantized"
            )
        raw = self._read(name)
        if spec.dtype == "BF16":  # bfloat16 is the upper half of a float32
            values = (raw.astype(np.uint32) << 16).view(np.float32)
        else:
            values = raw.astype(np.float32, copy=False)
        check_finite(self.source, name, values)
        return values

    def rename(self, names: Mapping[str, str]) -> "StateDict":
        """The same tensors by other names: names[old] is the new one, of all of them."""
        old = {new: name for name, new in names.items()}
        specs = {new: dataclasses.replace(self.specs[name], name=new) for name, new in names.items()}
        return StateDict(self.source, specs, self.metadata, lambda name: self._read(old[name]))

    def listing(self) -> str:
        """Names and shapes on one line, for errors."""
        shown = [
            f"{_one_line(name)} {'' if spec.dtype in FLOAT_DTYPES else spec.dtype}{list(spec.shape)}"
            for name, spec in self.specs.items()
        ]
        more = [f"and {len(shown) - _MOST_LISTED} more"] if len(shown) > _MOST_LISTED else []
        return ", ".join(shown[:_MOST_LISTED] + more) or "no tensors"


def is_torch_file(path: Path) -> bool:
    """Whether the file begins as torch.save writes it.

    Raises WeightsError if it can't be read, or is of a kind that is neither PyTorch's nor safetensors.
    """
    try:
        with regular_file(path) as file:
            first = file.read(len(_LEGACY))
    except OSError as error:
        raise WeightsError(f"{path}: cannot be opened: {error.strerror}") from error
    if first.startswith(_ZIP) or first == _LEGACY:
        return True
    refuse_foreign(path, first)
    return False


@contextlib.contextmanager
def open_state_dict(path: Path, key: str | None = None) -> Iterator[StateDict]:
    """The tensors of a safetensors or PyTorch file, told apart by how they begin.

    Of a PyTorch file no code is run. It holds a state dict, or what has one at `key` (StateDict.of). Raises
    WeightsError for a file that is neither, cut short or holds something else, MissingExtraError if torch is needed
    and not installed.
    """
    if is_torch_file(path):
        yield StateDict.of(_unpickle(path), str(path), key)
        return
    if key is not None:
        raise WeightsError(f"{path}: tensors alone, as safetensors files have them; leave out `key`")
    with TensorFile(path) as file:
        kind = file.metadata.get("format", "")
        if kind.startswith("phonograd-"):
            raise WeightsError(f"{path}: a model's weights expected, found a file of {_one_line(kind)}; give its model")
        yield StateDict(str(path), file.specs, file.metadata, file.read)


def _unpickle(path: Path) -> object:
    try:
        import torch  # noqa: PLC0415  # safetensors are read without it
    except ImportError as error:
        raise MissingExtraError(
            f"{path}: reading a PyTorch file needs torch ({error}); {how_to_install('export')}"
        ) from error
    # Mapped, so that a shape which does not fit is refused before 180 MB are read; old files can't be.
    mapped = zipfile.is_zipfile(path)
    with regular_file(path) as file:
        if not mapped and file.read(len(_ZIP)) == _ZIP:
            raise WeightsError(f"{path}: a PyTorch file whose end is missing; it is truncated, copy it again")
    if mapped:
        refuse_foreign_zip(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of its own plans
            return torch.load(path, map_location="cpu", mmap=mapped, weights_only=True)
    except Exception as error:  # pickle raises kinds of its own for damaged files, and torch others
        if name := re.search(r"GLOBAL ([A-Za-z_][\w.]*)", str(error)):
            packed = " (of a quantized model: save it as it was before)" if name[1] == "torch.ScriptObject" else ""
            raise WeightsError(
                f"{path}: a state dict expected, found an object of {name[1]}{packed}, which can't be read without "
                f"running code; save the model with: {SAVE_IT}"
            ) from error
        reason = _one_line(str(error).splitlines()[0]) if str(error) else type(error).__name__
        raise WeightsError(
            f"{path}: cannot be read as a PyTorch file ({reason}); copy it again, or save the model with: {SAVE_IT}"
        ) from error


def _tensors_of(source: str, content: object, key: str | None) -> Mapping[str, Any]:
    found = content if key is None else _at(content, key)
    if isinstance(found, Mapping) and key is None:
        found = next((found[name] for name in USUAL_KEYS if isinstance(found.get(name), Mapping)), found)
    if isinstance(found, list) and all(isinstance(one, tuple) and len(one) == 2 for one in found):
        found = {str(name): value for name, value in found}  # of named_parameters()
    if isinstance(found, Mapping) and any(_is_tensor(value) for value in found.values()):
        return {str(name): value for name, value in found.items()}
    wanted = f"one at {key!r}" if key is not None else f"a dict with one as {', '.join(USUAL_KEYS)}"
    names = content if isinstance(content, Mapping) else [type(one).__name__ for _, one in _items(content)]
    held = ", ".join(map(str, names)) or "nothing"
    held = held if isinstance(content, Mapping) else f"{type(content).__name__} of {held}"
    places = ", ".join(_places(content))
    advice = f"weights lie at {_one_line(places)}: choose with `key`" if places else f"save the model with: {SAVE_IT}"
    raise WeightsError(f"{source}: a state dict expected, or {wanted}; found {_one_line(held)}; {advice}")


def _items(content: object) -> Iterable[tuple[Any, Any]]:
    if isinstance(content, Mapping):
        return content.items()
    return enumerate(content) if isinstance(content, list | tuple) else ()


def _at(content: object, key: str) -> object:
    """What dicts and lists hold at a path: `model.state_dict`, `0.weights`."""
    while key:
        held = {str(name): value for name, value in _items(content)}
        if key in held:
            return held[key]
        first, _, key = key.partition(".")
        content = held.get(first)
    return None


def _places(content: object) -> list[str]:
    places, seen, left = [], set(), [("", content)]
    while left:
        path, one = left.pop()
        if id(one) in seen or path.count(".") > _DEEPEST:
            continue
        seen.add(id(one))
        if any("weight" in str(name) and _is_tensor(value) for name, value in _items(one)):
            places.append(path)
        left += [(f"{path}.{name}".lstrip("."), value) for name, value in _items(one) if _items(value)]
    return sorted(places)


def _is_tensor(value: object) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "untyped_storage")


def _spec(source: str, name: str, value: Any) -> TensorSpec:
    if isinstance(value, np.ndarray):
        return spec_of(name, value)
    if not _is_tensor(value):
        return TensorSpec(name, type(value).__name__, ())
    kind = _DTYPES.get(str(value.dtype), str(value.dtype))
    if value.is_quantized or value.is_meta or str(value.layout) != "torch.strided":
        return TensorSpec(name, value.type(), tuple(value.shape))
    stored, needed = value.untyped_storage().nbytes(), value.numel() * value.element_size()
    if stored < needed:  # by strides of 0, a small file asks for any memory
        raise WeightsError(
            f"{source}: tensor {_one_line(name)} {list(value.shape)}: {needed} bytes expected, its storage holds "
            f"{stored}; save the tensor's .contiguous()"
        )
    return TensorSpec(name, kind, tuple(value.shape))


def _array(value: Any) -> Array:
    if isinstance(value, np.ndarray):
        return value
    import torch  # noqa: PLC0415

    tensor = value.detach().cpu().contiguous()
    array: Array = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def _one_line(text: str) -> str:
    return text[:200] if text.isprintable() else ascii(text[:200])


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
