"""The file of `phonograd phone-round`."""

from pathlib import Path
from typing import Annotated

from phonograd.android_harness.rounds.settings import MaskingSettings, PhoneTraining, RoundSettings
from phonograd.config.connection import CONNECTION_TABLE, SERVER, SERVER_TABLE, WAIT
from phonograd.config.layout import Layout, table
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Settings

TEXTS, TEXT_ON_PHONE = "text.folder", "text.on_phone"


class PhoneRounding(Settings, frozen=True):
    """What the command `phone-round` reads, and on which phones."""

    artifacts: Annotated[Path, about("The artifacts folder that the server was started with.")]
    token_file: Annotated[Path | None, about("File with a line NAME TOKEN for each phone, mode 600.")] = None
    certificate_file: Annotated[
        Path | None, about("File with a line NAME CERTIFICATE for each phone, from `phonograd keys sign`.")
    ] = None
    serials: Annotated[
        tuple[str, ...], about("Phones to use, by adb's serial, an option for each.  [default: all attached]")
    ] = ()
    names: Annotated[tuple[str, ...], about("Phones' names at the server, an option for each: SERIAL=NAME.")] = ()
    keep: Annotated[
        bool,
        about("Keep the program and the model on the phones, so that the next round pushes only the new model."),
    ] = False


PHONE_ROUND = Layout(
    "phone-round",
    (
        table("", PhoneRounding, "artifacts"),
        SERVER_TABLE,
        CONNECTION_TABLE,
        table("connection", PhoneRounding, "token_file"),
        table("phones", PhoneRounding, "serials", "names", "keep"),
        table("phones", RoundSettings, "heartbeat_timeout"),
        table("text", RoundSettings, folder="texts", on_phone="text_on_phone"),
        table("text", PhoneTraining, "rehearsal", "user_share", "max_unknown"),
        table(
            "training",
            PhoneTraining,
            *("steps", "learning_rate", "output_sample", "codec", "threads", "cores", "precision", "duty", "nice"),
        ),
        table("round", RoundSettings, "updates", "min_phones", "patience_seconds", "wait_seconds"),
        table("masked", MaskingSettings, "vendor", "min_cohort", about="In masked rounds."),
        table("masked", PhoneRounding, "certificate_file"),
    ),
    flags={
        "artifacts": "ARTIFACTS",
        SERVER: "",
        WAIT: "--wait",
        "connection.token_file": "",
        "phones.serials": "--serial",
        "phones.names": "--name",
        "phones.keep": "",
        TEXTS: "--texts",
        "training.codec": "",
        "round.min_phones": "",
    },
)
