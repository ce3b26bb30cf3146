"""The file of `phonograd export`."""

from pathlib import Path
from typing import Annotated, Literal

from phonograd.config.layout import Layout, table
from phonograd.config.shape import PRESET, SHAPE_TABLE
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Count, FromZero, Settings
from phonograd.device_runtime.formats.manifest import TrainingConfig

READ = ("read.rename", "read.ignore", "read.key", "read.weights_vocab")


class Exporting(Settings, frozen=True, kw_only=True):
    """What the command `export` reads and writes."""

    model: Annotated[
        Path | None,
        about("Your own model: a PyTorch state dict (.pt or safetensors). The shape is inferred from its tensors."),
    ] = None
    vocabulary: Annotated[
        Path,
        about("vocab.txt; the model has as many words. Without counts, they follow Zipf's law."),
    ]
    weights: Annotated[
        Path | None, about("Trained weights for the declared shape; the same file types as the model's.")
    ] = None
    seed: Annotated[FromZero | None, about("Random weights for the declared shape, from this seed.")] = None
    out: Annotated[Path, about("The artifacts folder to write.")]
    overwrite: Annotated[bool, about("Replace an existing folder.")] = False
    check: Annotated[
        Path | None,
        about(
            "A text, one message a line: print its perplexity by the model in PyTorch and by the artifacts; write none "
            "if these differ. Compare with what your own code measures."
        ),
    ] = None
    predict: Annotated[
        Literal["int8"] | None,
        about("Also write prediction weights: a quarter of the size, for a keyboard's suggestions."),
    ] = None
    distill: Annotated[
        bool, about("Also write the distillation graph, for servers: phonograd serve --strategy transfer.")
    ] = False
    renames: Annotated[
        tuple[str, ...],
        about(
            "OLD=NEW: rename a tensor of the file, or all below OLD: lm_head=decoder, model.rnns=rnn, net= (removes "
            "net.)."
        ),
    ] = ()
    ignore: Annotated[tuple[str, ...], about("Leave out the tensors of these names, such as criterion.*.")] = ()
    key: Annotated[str | None, about("Where in the file the state dict lies: model.state_dict, or 0 in a list.")] = None
    trained_with: Annotated[
        Path | None,
        about("The vocabulary that the file was trained with, if another; rows are reordered to match."),
    ] = None
    freeze: Annotated[
        tuple[str, ...],
        about("Exclude a tensor, or all below a name such as lstm.0, from training and updates."),
    ] = ()
    train: Annotated[
        tuple[str, ...], about("Freeze all tensors but these, or those below a name such as decoder.")
    ] = ()
    adapters: Annotated[
        Count | None,
        about(
            "Train low-rank adapters of this rank in place of every matrix, beside the biases: few numbers, so that a "
            "private round adds less noise."
        ),
    ] = None
    adapters_seed: Annotated[FromZero, about("Seed of the adapters' fixed random part.")] = 0

    def check_together(self) -> None:
        """Raise ValueError for a new name without the old one."""
        self.require("renames", all("=" in one[1:] for one in self.renames), "OLD=NEW, each")

    @property
    def new_names(self) -> dict[str, str]:
        """New names by the old ones."""
        return {old: new for old, _, new in (one.partition("=") for one in self.renames)}


EXPORT = Layout(
    "export",
    (
        table(
            "",
            Exporting,
            *("model", "weights", "seed", "out", "overwrite", "check", "predict", "distill"),
            vocab="vocabulary",
        ),
        SHAPE_TABLE,
        table(
            "read",
            Exporting,
            *("ignore", "key"),
            rename="renames",
            weights_vocab="trained_with",
            about="How the file of the model or of the weights is read.",
        ),
        table("phones", Exporting, "freeze", "train", "adapters", "adapters_seed", about="What phones train and send."),
        table(
            "training",
            TrainingConfig,
            *("loss", "loss_reduction", "learning_rate", "clip_norm", "dropout", "minibatch", "bptt"),
        ),
        table("training", TrainingConfig, "user_share", chosen_by=("training.loss", ("lwf",))),
    ),
    flags={
        "model": "",
        PRESET: "",
        "vocab": "",
        "weights": "",
        "seed": "",
        "read.rename": "",
        "check": "",
        "predict": "",
        "distill": "",
        "out": "",
        "overwrite": "",
    },
)
