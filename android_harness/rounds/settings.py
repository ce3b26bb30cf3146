"""Settings of a round on phones, and their defaults."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from msgspec.structs import asdict

from phonograd.android_harness.session.settings import WORK_FOLDER, SessionSettings, TrainingSettings
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.settings import Count, NotNegative, Positive, Settings, Share
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.masked.phone import Company
from phonograd.device_runtime.text.rehearsal import MAX_UNKNOWN
from phonograd.device_runtime.update.codecs import CODECS, DEFAULT_CODEC

TEXT_ON_PHONE = f"{WORK_FOLDER}/user.txt"
_PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")


class PhoneTraining(TrainingSettings, frozen=True):
    """Settings of the training on each phone, whose threads each stay on their core.

    Of an output sample, each phone keeps its draw to itself. Raises ValueError for impossible settings.
    """

    codec: Annotated[str, about(f"The update's encoding, one of {', '.join(CODECS)}.")] = DEFAULT_CODEC
    rehearsal: Annotated[Path | None, about("General text to draw rehearsal messages from, pushed to phones.")] = None
    user_share: Annotated[
        Share | None,
        about(f"With rehearsal: λ, the user's share of the tokens.  [default: {TrainingConfig().user_share}]"),
    ] = None
    learning_rate: Annotated[Positive | None, about("Learning rate.  [default: the artifacts']")] = None
    steps: Annotated[
        Literal[1] | None,
        about("1: a single step, with the gradient of the whole text (FedSGD).  [default: one for each window]"),
    ] = None
    max_unknown: Annotated[
        Share | None,
        about(
            "Largest share of a text's words that the vocabulary may lack, for an update to be made.  "
            f"[default: {MAX_UNKNOWN}]"
        ),
    ] = None

    def check_together(self) -> None:
        """Raise ValueError for cores or a codec that there are not, and a share of a text that is not there."""
        super().check_together()
        if self.user_share is not None and self.rehearsal is None:
            raise ValueError("`user_share` needs `rehearsal`, the general text to mix in")
        self.require("codec", self.codec in CODECS, f"one of {', '.join(CODECS)}")

    def command_line(self, masked: str | None = None) -> list[str]:
        """Options of phonograd-phone train for these settings, without files. masked: a masked round's settings."""
        names = ("user_share", "steps", "max_unknown")
        own = {"codec": self.codec} if masked is None else {"masked": masked}
        own |= {name: getattr(self, name) for name in names}
        return self.options(**own, lr=self.learning_rate, pin_threads=True)


class MaskingSettings(Company, frozen=True, kw_only=True):
    """What phones take part with in masked rounds. Raises ValueError for impossible settings.

    certificates: None: with `vendor` each phone needs one, without it none.
    """

    certificates: Annotated[Mapping[str, str] | None, about("By phone name, hex.")] = None

    def check_together(self) -> None:
        """Raise ValueError if the vendor's key is not one."""
        known = self.vendor is None or bool(_PUBLIC_KEY.fullmatch(self.vendor))
        self.require("vendor", known, "a public key, 64 digits of hex")

    @property
    def masked_only(self) -> bool:
        """Whether phones take part in masked rounds alone."""
        return self.vendor is not None or self.certificates is not None

    def command_line(self, name: str, identity: str) -> list[str]:
        """Options of phonograd-phone mask, for a phone and its public key. Raises UsageError without a certificate."""
        line = ["--min-cohort", str(self.min_cohort)]
        if self.vendor is not None:
            line += ["--vendor", self.vendor]
        if not self.masked_only:
            return line
        if name not in (self.certificates or {}):
            raise UsageError(
                f"phone {name}: no certificate of its key; make one with `phonograd keys sign VENDOR_KEY_FILE {name} "
                f"{identity}`, and give it to `certificate_file` as a line {name} CERTIFICATE"
            )
        return [*line, "--certificate", (self.certificates or {})[name]]


class RoundSettings(Settings, frozen=True):
    """Settings of one round. Raises ValueError for impossible ones."""

    updates: Annotated[Path, about("Folder for updates that the server does not have yet.")] = Path("phonograd-updates")
    training: PhoneTraining = PhoneTraining()
    masking: MaskingSettings = MaskingSettings()
    texts: Annotated[
        Path | None,
        about(
            "Folder with SERIAL.txt or NAME.txt, which are pushed to the phones and removed afterwards.  "
            "[default: texts on the phones]"
        ),
    ] = None
    text_on_phone: Annotated[str, about("A text on each phone, which stays there as it is.")] = TEXT_ON_PHONE
    min_phones: Annotated[Count, about("The round fails if fewer phones upload.")] = 1
    patience_seconds: Annotated[NotNegative, about("How long to retry an upload without progress.")] = 120.0
    wait_seconds: Annotated[NotNegative, about("How long to wait for the round to close; 0: do not wait.")] = 60.0
    heartbeat_timeout: Annotated[
        Positive, about("Seconds without contact after which a phone counts as lost and ends its work.")
    ] = SessionSettings().timeout_seconds

    def check_together(self) -> None:
        """Raise ValueError for a text on the phone that is not at an absolute path."""
        absolute = self.text_on_phone.startswith("/")
        self.require("text_on_phone", absolute, f"an absolute path such as {TEXT_ON_PHONE}")

    def document(self) -> dict[str, object]:
        """The settings as a JSON object."""
        flat = {**asdict(self), **asdict(self.training)}
        del flat["training"], flat["masking"]
        flat |= {"vendor": self.masking.vendor, "min_cohort": self.masking.min_cohort}
        flat["silence_seconds"] = flat.pop("heartbeat_timeout")  # its name in schema version 1
        return {name: str(value) if isinstance(value, Path) else value for name, value in flat.items()}
