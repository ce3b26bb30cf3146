"""Frozen tensors: those of a model that training, updates and the fold leave as they are.

A weights file names them in its metadata, so they belong to the model's identity; phone, server and commands read them
from the base model.
"""

from collections.abc import Collection, Mapping

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import TensorFile, TensorSpec

FROZEN = "frozen"  # metadata key: their names in the order of the file, a comma between
SEPARATOR = ","


def frozen_metadata(frozen: Collection[str], names: Collection[str]) -> Mapping[str, str]:
    """The metadata of a weights file of these names; none if nothing is frozen."""
    return {FROZEN: SEPARATOR.join(name for name in names if name in frozen)} if frozen else {}


def frozen_in(base: TensorFile) -> frozenset[str]:
    """Names of a base model's frozen tensors. Raises WeightsError for one that the file has not, and if all are."""
    text = base.metadata.get(FROZEN)
    names = frozenset() if text is None else frozenset(text.split(SEPARATOR))
    odd = sorted(names - base.specs.keys())
    if odd or (names and len(names) == len(base.specs)):
        found = f"{odd[0][:80]!r}, which it has not" if odd else "all of them"
        raise WeightsError(f"{base.path}: frozen: names of some of its tensors expected, found {found}; export again")
    return names


def trained_specs(base: TensorFile) -> list[TensorSpec]:
    """The other tensors, in the order of the file. Raises WeightsError as frozen_in does."""
    frozen = frozen_in(base)
    return [spec for name, spec in base.specs.items() if name not in frozen]
