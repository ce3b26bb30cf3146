"""The kinds of model that `bench epoch` can run: the paper's, and that with one thing changed."""

from collections.abc import Callable

import msgspec

from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig

Kind = tuple[LanguageModelConfig, TrainingConfig]

_KINDS: dict[str, Callable[[LanguageModelConfig], Kind]] = {
    "untied": lambda paper: (paper, TrainingConfig()),
    "tied": lambda paper: (msgspec.structs.replace(paper, tied=True), TrainingConfig()),
    "lwf": lambda paper: (paper, TrainingConfig(loss="lwf")),
    "gru": lambda paper: (msgspec.structs.replace(paper, cell="gru"), TrainingConfig()),
}
KINDS = tuple(_KINDS)


def kind_named(name: str, paper: LanguageModelConfig) -> Kind:
    """Shape and training of one of KINDS; paper: the shape of `untied`."""
    return _KINDS[name](paper)
