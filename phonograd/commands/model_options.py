"""Options that declare a model's shape: a preset's name, or sizes. `export` and `pretrain` share them."""

import dataclasses
from dataclasses import dataclass
from typing import Any, get_args

import click
import msgspec

from phonograd.commands.options import COUNT, Options, opt
from phonograd.device_runtime.formats.model_config import Cell, LanguageModelConfig
from phonograd.export.presets import PRESETS

DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(LanguageModelConfig)}


@dataclass(frozen=True)
class DeclaredShape:
    """What was given of a preset and of sizes; None: not given. Raises UsageError for both."""

    preset: str | None = None
    cell: Cell | None = None
    layers: int | None = None
    hidden: int | None = None
    embedding: int | None = None
    tied: bool | None = None
    output_bias: bool | None = None

    def __post_init__(self) -> None:
        if self.preset is not None and (given := self._sizes()):
            raise click.UsageError(f"--preset declares all sizes; leave out {', '.join(map(_option, given))}, or it")

    def require(self) -> None:
        """Raise UsageError unless a whole shape is declared."""
        if not self.given:
            raise click.UsageError("give --preset NAME, or --cell, --layers and --hidden")
        required = {"cell": self.cell, "layers": self.layers, "hidden": self.hidden}
        missing = [name for name, value in required.items() if value is None]
        if self.preset is None and missing:
            raise click.UsageError(f"sizes instead of a preset need {', '.join(map(_option, missing))} too")

    @property
    def given(self) -> bool:
        """Whether a shape is declared at all."""
        return self.preset is not None or bool(self._sizes())

    def config(self, vocabulary: int) -> LanguageModelConfig:
        """The model of this shape with so many words. Raises UsageError unless a whole one is declared."""
        if self.preset is not None:
            return msgspec.structs.replace(PRESETS[self.preset].model, vocabulary=vocabulary)
        self.require()
        return LanguageModelConfig(**{"vocabulary": vocabulary, "embedding": self.hidden, **self._sizes()})

    def _sizes(self) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if name != "preset" and value is not None}


SHAPE = Options(
    DeclaredShape,
    preset=opt("The shape of a paper's model.", click.Choice(list(PRESETS))),
    cell=opt("In place of --preset: the recurrent cell.", click.Choice(get_args(Cell))),
    layers=opt("Recurrent layers.", COUNT),
    hidden=opt("Hidden size.", COUNT),
    embedding=opt("Embedding size.  [default: the hidden size]", COUNT),
    tied=opt(
        "Tied: the output layer uses the embedding's weights, with a projection if their sizes differ.  "
        f"[default: {'tied' if DEFAULTS['tied'] else 'untied'}]",
        name="--tied/--untied",
    ),
    output_bias=opt(
        f"Whether the output layer has a bias.  [default: {'yes' if DEFAULTS['output_bias'] else 'no'}]",
        name="--output-bias/--no-output-bias",
    ),
)


def _option(name: str) -> str:
    return {"tied": "--tied/--untied", "output_bias": "--output-bias/--no-output-bias"}.get(name, f"--{name}")
