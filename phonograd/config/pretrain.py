"""The file of `phonograd pretrain`."""

from pathlib import Path
from typing import Annotated

from phonograd.config.layout import GIVEN, Layout, table
from phonograd.config.shape import PRESET, SHAPE_TABLE
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Settings
from phonograd.export.pretrain_config import PretrainConfig

BACKEND = "training.backend"


class Pretraining(Settings, frozen=True, kw_only=True):
    """What the command `pretrain` reads and writes."""

    vocabulary: Annotated[Path, about("vocab.txt; the model has as many words.")]
    texts: Annotated[tuple[Path, ...], about("General text.")] = ()
    validation: Annotated[Path | None, about("Validation text.  [default: the last 5 % of the messages]")] = None
    teacher: Annotated[
        Path | None, about("Artifacts of a model to learn from; its vocabulary begins with this one's.")
    ] = None
    state: Annotated[Path | None, about("Folder to save the run's state in; the same command resumes from it.")] = None
    out: Annotated[Path, about("Where to write the best weights (safetensors, in the artifacts' layout).")]

    def check_together(self) -> None:
        """Raise ValueError without a text."""
        self.require("texts", bool(self.texts), "at least one")


PRETRAIN = Layout(
    "pretrain",
    (
        table("", Pretraining, "teacher", "state", "out", vocab="vocabulary", text="texts", valid="validation"),
        SHAPE_TABLE,
        table(
            "training",
            PretrainConfig,
            *("epochs", "max_steps", "seed", "backend", "precision", "minibatch", "bptt", "learning_rate", "decay"),
            *("decay_after", "clip_norm", "dropout"),
        ),
        table("training", PretrainConfig, "text_share", chosen_by=("teacher", (GIVEN,))),
        table(
            "training.native",
            PretrainConfig,
            *("threads", "output_sample", "evaluate_every"),
            chosen_by=(BACKEND, ("native",)),
        ),
        table("training.torch", PretrainConfig, "device", chosen_by=(BACKEND, ("torch",))),
    ),
    flags={
        PRESET: "",
        "vocab": "",
        "text": "",
        "valid": "",
        "training.epochs": "",
        "training.max_steps": "",
        "training.seed": "",
        BACKEND: "",
        "teacher": "",
        "state": "",
        "out": "",
    },
)
