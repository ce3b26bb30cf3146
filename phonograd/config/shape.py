"""Keys that declare a model's shape: a preset's name, or sizes. `export` and `pretrain` share them."""

from typing import Annotated, Any

from msgspec.structs import asdict, replace

from phonograd.config.layout import table
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.nearest import did_you_mean
from phonograd.device_runtime.base.settings import Count, Settings
from phonograd.device_runtime.formats.model_config import Cell, LanguageModelConfig, Layers
from phonograd.export.presets import PRESETS

PRESET = "shape.preset"


class DeclaredShape(Settings, frozen=True):
    """What was given of a preset and of sizes; None: not given. Raises ValueError for both."""

    preset: Annotated[str | None, about(f"The shape of a known model: {', '.join(PRESETS)}.")] = None
    cell: Annotated[Cell | None, about("In place of a preset: the recurrent cell.")] = None
    layers: Annotated[Layers | None, about("Recurrent layers.")] = None
    hidden: Annotated[Count | None, about("Hidden size.")] = None
    embedding: Annotated[Count | None, about("Embedding size.  [default: the hidden size]")] = None
    tied: Annotated[
        bool | None,
        about(
            "The output layer uses the embedding's weights, with a projection if their sizes differ.  [default: false]"
        ),
    ] = None
    output_bias: Annotated[bool | None, about("Whether the output layer has a bias.  [default: true]")] = None

    def check_together(self) -> None:
        """Raise ValueError for an unknown preset, or a preset and sizes."""
        expected = f"one of {', '.join(PRESETS)}{did_you_mean(self.preset or '', PRESETS)}"
        self.require("preset", self.preset is None or self.preset in PRESETS, expected)
        if self.preset is not None and (sizes := self._sizes()):
            raise ValueError(f"`preset` declares all sizes; leave out {', '.join(f'`{one}`' for one in sizes)}, or it")

    @property
    def given(self) -> bool:
        """Whether a shape is declared at all."""
        return self.preset is not None or bool(self._sizes())

    def require_whole(self) -> None:
        """Raise UsageError unless a whole shape is declared."""
        if not self.given:
            raise UsageError("give `preset`, or `cell`, `layers` and `hidden`")
        required = {"cell": self.cell, "layers": self.layers, "hidden": self.hidden}
        missing = [f"`{name}`" for name, value in required.items() if value is None]
        if self.preset is None and missing:
            raise UsageError(f"sizes instead of a preset need {', '.join(missing)} too")

    def config(self, vocabulary: int) -> LanguageModelConfig:
        """The model of this shape with so many words. Raises UsageError unless a whole one is declared."""
        self.require_whole()
        if self.preset is not None:
            return replace(PRESETS[self.preset].model, vocabulary=vocabulary)
        return LanguageModelConfig(**{"vocabulary": vocabulary, "embedding": self.hidden, **self._sizes()})

    def _sizes(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "preset" and value is not None}


SHAPE_TABLE = table("shape", DeclaredShape)
