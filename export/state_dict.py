"""A model's tensors as a file has them: PyTorch's own, of which no code is run, or safetensors."""

import contextlib
import dataclasses
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.device_runtime.base.errors import MissingExtraError, WeightsError
from phonograd.device_runtime.base.files import regular_file
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, TensorSpec, check_finite, spec_of

FLOAT_DTYPES = ("F32", "F16", "BF16", "F64")
# Where training scripts keep the state dict in a dict of more, such as an epoch's number.
USUAL_KEYS = ("state_dict", "model_state_dict", "model")
SAVE_IT = "torch.save(model.state_dict(), PATH)"
MODULES = ("encoder", "embedding", "rnn", "lstm", "gru", "projection", "decoder")  # the parts of a model, by name
_MOST_LISTED = 16
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
    def of(cls, tensors: Mapping[str, Array], source: str) -> "StateDict":
        """Arrays in memory."""
        return cls(source, {name: spec_of(name, array) for name, array in tensors.items()}, {}, tensors.__getitem__)

    def read(self, name: str) -> Array:
        """A tensor as float32. Raises WeightsError for a dtype not among FLOAT_DTYPES, NaN and infinite values."""
        spec = self.specs[name]
        if spec.dtype not in FLOAT_DTYPES:
            raise WeightsError(
                f"{self.source}: tensor {spec}: dtype {', '.join(FLOAT_DTYPES)} expected, found {spec.dtype}; "
                "convert it with model.float()"
            )
        raw = self._read(name)
        if spec.dtype == "BF16":  # bfloat16 is the upper half of a float32
            values = (raw.astype(np.uint32) << 16).view(np.float32)
        else:
            values = raw.astype(np.float32, copy=False)
        check_finite(self.source, name, values)
        return values

    def renamed(self, names: Mapping[str, str]) -> "StateDict":
        """The same tensors by other names: names[old] is the new one, of all of them."""
        old = {new: name for name, new in names.items()}
        specs = {new: dataclasses.replace(self.specs[name], name=new) for name, new in names.items()}
        return StateDict(self.source, specs, self.metadata, lambda name: self._read(old[name]))

    def listing(self) -> str:
        """Names and shapes on one line, for errors."""
        shown = [f"{_one_line(name)} {list(spec.shape)}" for name, spec in self.specs.items()]
        more = [f"and {len(shown) - _MOST_LISTED} more"] if len(shown) > _MOST_LISTED else []
        return ", ".join(shown[:_MOST_LISTED] + more) or "no tensors"


def is_torch_file(path: Path) -> bool:
    """Whether the file begins as torch.save writes it. Raises WeightsError if it can't be read."""
    try:
        with regular_file(path) as file:
            first = file.read(len(_LEGACY))
    except OSError as error:
        raise WeightsError(f"{path}: cannot be opened: {error.strerror}") from error
    return first.startswith(_ZIP) or first == _LEGACY


@contextlib.contextmanager
def open_state_dict(path: Path) -> Iterator[StateDict]:
    """The tensors of a safetensors or PyTorch file, told apart by how they begin.

    Of a PyTorch file no code is run. It holds a state dict, or a dict that has one under one of USUAL_KEYS. Raises
    WeightsError for a file that is neither, cut short or holds something else, MissingExtraError if torch is needed
    and not installed.
    """
    if is_torch_file(path):
        yield _of_torch(path)
        return
    with TensorFile(path) as file:
        yield StateDict(str(path), file.specs, file.metadata, file.read)


def _of_torch(path: Path) -> StateDict:
    try:
        import torch  # noqa: PLC0415  # safetensors are read without it
    except ImportError as error:
        raise MissingExtraError(
            f"{path}: reading a PyTorch file needs torch ({error}); install it with: pip install 'phonograd[export]'"
        ) from error
    tensors = _tensors_of(path, _unpickled(path))
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64"}
    specs = {}
    for name, tensor in tensors.items():
        if tensor.layout != torch.strided or tensor.is_quantized:
            raise WeightsError(f"{path}: tensor {_one_line(name)}: dense values expected, found {tensor.type()}")
        specs[name] = TensorSpec(name, names.get(tensor.dtype, str(tensor.dtype)), tuple(tensor.shape))

    def read(name: str) -> Array:
        tensor = tensors[name].detach().cpu().contiguous()
        array: Array = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
        return array

    return StateDict(str(path), specs, {}, read)


def _unpickled(path: Path) -> object:
    import torch  # noqa: PLC0415

    # Mapped, so that a shape which does not fit is refused before 180 MB are read; old files can't be.
    mapped = zipfile.is_zipfile(path)
    with regular_file(path) as file:
        if not mapped and file.read(len(_ZIP)) == _ZIP:
            raise WeightsError(f"{path}: a PyTorch file whose end is missing; it is truncated, copy it again")
    try:
        return torch.load(path, map_location="cpu", mmap=mapped, weights_only=True)
    except Exception as error:  # pickle raises kinds of its own for damaged files, and torch others
        if name := re.search(r"GLOBAL ([A-Za-z_][\w.]*)", str(error)):
            raise WeightsError(
                f"{path}: a state dict expected, found an object of {name[1]}, which can't be read without running "
                f"code; save the model with: {SAVE_IT}"
            ) from error
        reason = _one_line(str(error).splitlines()[0]) if str(error) else type(error).__name__
        raise WeightsError(
            f"{path}: cannot be read as a PyTorch file ({reason}); copy it again, or save the model with: {SAVE_IT}"
        ) from error


def _tensors_of(path: Path, content: object) -> Mapping[str, Any]:
    import torch  # noqa: PLC0415

    held = _one_line(", ".join(map(str, content)) if isinstance(content, Mapping) else type(content).__name__)
    if isinstance(content, Mapping):
        for key in USUAL_KEYS:
            if isinstance(content.get(key), Mapping):
                content = content[key]
                break
    if not isinstance(content, Mapping) or not any(isinstance(value, torch.Tensor) for value in content.values()):
        raise WeightsError(
            f"{path}: a state dict expected, or a dict with one as {', '.join(USUAL_KEYS)}; found {held or 'nothing'}; "
            f"save the model with: {SAVE_IT}"
        )
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise WeightsError(
                f"{path}: tensors by name expected, found {_one_line(str(name))}: {type(value).__name__}; save the "
                f"model with: {SAVE_IT}"
            )
    return content


def _one_line(text: str) -> str:
    return text[:200] if text.isprintable() else ascii(text[:200])


Renames = Sequence[tuple[str, str]]


def rename(state: StateDict, renames: Renames) -> StateDict:
    """Each (OLD, NEW), in order, for a tensor called OLD and all whose names begin with `OLD.`; NEW may be empty.

    A beginning that all names share, such as `module.` of DataParallel, is left out by itself. Raises WeightsError
    for an OLD that nothing is called by, and for two tensors that would get one name.
    """
    names = {name: name for name in state.specs}
    for old, new in renames:
        changed = {name: _renamed(now, old.rstrip("."), new.rstrip(".")) for name, now in names.items()}
        if changed == names and old.rstrip(".") != new.rstrip("."):
            raise WeightsError(f"{state.source}: {old} to rename expected, found {state.renamed(names).listing()}")
        names = changed
    names = _without_common_beginning(names)
    seen: dict[str, str] = {}
    for name, new in names.items():
        if not new or new in seen:
            other = f" and {seen[new]}" if new else ""
            raise WeightsError(f"{state.source}: {name}{other} would be called {new!r}; choose another of `renames`")
        seen[new] = name
    return state.renamed(names)


def _renamed(name: str, old: str, new: str) -> str:
    if name == old:
        return new
    if not name.startswith(f"{old}."):
        return name
    rest = name.removeprefix(f"{old}.")
    return f"{new}.{rest}" if new else rest


def _without_common_beginning(names: dict[str, str]) -> dict[str, str]:
    beginnings = {now.partition(".")[0] for now in names.values()}
    if len(beginnings) != 1 or beginnings & {*MODULES} or not all("." in now for now in names.values()):
        return names
    return _without_common_beginning({name: now.partition(".")[2] for name, now in names.items()})
