"""The file of `phonograd train`."""

from pathlib import Path
from typing import Annotated

from phonograd.api.training import ResumableState, TrainSettings
from phonograd.config.connection import CONNECTION_TABLE, SERVER, SERVER_TABLE, WAIT
from phonograd.config.layout import GIVEN, Layout, table
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Settings
from phonograd.device_runtime.engine.backend import BackendOptions, PrecisionChoice
from phonograd.device_runtime.masked.phone import Company

STATE = "state"


class Training(Settings, frozen=True):
    """What the command `train` reads and writes, and the precision that it is asked for."""

    artifacts: Annotated[Path, about("The artifacts folder.")]
    user: Annotated[Path, about("The user's text, one message a line.")]
    rehearsal: Annotated[Path | None, about("General text to draw rehearsal messages from.")] = None
    out: Annotated[Path | None, about("Write the trained weights here.")] = None
    update: Annotated[Path | None, about("Write the update for the server here.")] = None
    state: Annotated[Path | None, about("Folder to save resumable state in, and to resume from.")] = None
    precision: Annotated[
        PrecisionChoice,
        about(
            "Precision of matrix products: bf16 needs CPU support; bf16-emulated runs on any CPU, slowly; "
            "auto: bf16 if it is faster here."
        ),
    ] = "fp32"


class Masked(Company, frozen=True):
    """A phone's part in masked rounds."""

    identity: Annotated[
        Path | None, about("File of the phone's key.  [default: one made in the user's state folder]")
    ] = None
    certificate: Annotated[
        str | None, about("The vendor's certificate of the phone's name and key: see phonograd keys sign.")
    ] = None


TRAIN = Layout(
    "train",
    (
        table("", Training, "artifacts", "user", "rehearsal", "out", "update", "state"),
        table("", TrainSettings, "weights", "phone", "seed", "codec", round="round_number"),
        SERVER_TABLE,
        table(
            "training",
            TrainSettings,
            *("epochs", "steps", "learning_rate", "output_sample", "max_unknown", "duty"),
        ),
        table("training", TrainSettings, "user_share", chosen_by=("rehearsal", (GIVEN,))),
        table("training", ResumableState, "save_every", "restart", chosen_by=(STATE, (GIVEN,))),
        table("engine", BackendOptions, "threads", "pin_threads"),
        table("engine", Training, "precision"),
        CONNECTION_TABLE,
        table(
            "masked",
            Masked,
            *("identity", "certificate", "vendor", "min_cohort"),
            about="In masked rounds.",
            chosen_by=(SERVER, (GIVEN,)),
        ),
    ),
    flags={
        "artifacts": "ARTIFACTS",
        "user": "",
        "rehearsal": "",
        "out": "",
        "update": "",
        "state": "",
        "weights": "",
        "phone": "",
        "seed": "",
        "codec": "",
        "round": "",
        SERVER: "",
        WAIT: "--wait",
    },
)
