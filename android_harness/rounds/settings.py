"""Settings of a round on phones, and their defaults."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from phonograd.android_harness.session.settings import (
    WORK_FOLDER,
    SessionSettings,
    TrainingSettings,
    require_settings,
)
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.masked.phone import PhoneMasking
from phonograd.device_runtime.update.codecs import CODECS, DEFAULT_CODEC

TEXT_ON_PHONE = f"{WORK_FOLDER}/user.txt"
_PUBLIC_KEY = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class PhoneTraining(TrainingSettings):
    """Settings of the training on each phone, whose threads each stay on their core.

    rehearsal: general text on this machine, pushed to phones. user_share: λ, with rehearsal only. steps: 1 takes a
    single step with the gradient of the whole text, None a step for each window. max_unknown: largest share of a text's
    words that the vocabulary may lack, for an update to be made. Of an output sample, each phone keeps its draw to
    itself. Raises UsageError for impossible settings.
    """

    codec: str = DEFAULT_CODEC
    rehearsal: Path | None = None
    user_share: float | None = None
    learning_rate: float | None = None
    steps: int | None = None
    max_unknown: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.user_share is not None and self.rehearsal is None:
            raise UsageError("`user_share` needs `rehearsal`, the general text to mix in")
        require_settings(
            self,
            codec=(self.codec in CODECS, f"one of {', '.join(CODECS)}"),
            steps=(self.steps in (None, 1), "1, a single step with the gradient of the whole text"),
        )

    def command_line(self, masked: str | None = None) -> list[str]:
        """These settings as options of phonograd-phone train, without files. masked: a masked round's settings."""
        names = ("user_share", "steps", "max_unknown")
        own = {"codec": self.codec} if masked is None else {"masked": masked}
        own |= {name: getattr(self, name) for name in names}
        return self.options(**own, lr=self.learning_rate, pin_threads=True)


@dataclass(frozen=True)
class MaskingSettings:
    """What phones take part with in masked rounds: see PhoneMasking. Raises UsageError for impossible settings.

    certificates: by phone name, hex; None: with `vendor` each phone needs one, without it none.
    """

    certificates: Mapping[str, str] | None = None
    vendor: str | None = None
    min_cohort: int = PhoneMasking.min_cohort

    def __post_init__(self) -> None:
        require_settings(
            self,
            vendor=(self.vendor is None or bool(_PUBLIC_KEY.fullmatch(self.vendor)), "a public key, 64 digits of hex"),
            min_cohort=(self.min_cohort >= 1, "at least 1"),
        )

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


@dataclass(frozen=True)
class RoundSettings:
    """Settings of one round.

    texts: folder with a text for each phone (see `naming.find_text`), pushed and removed again; None: each phone trains
    on its own text at text_on_phone, which is not changed. updates: folder that keeps updates until the server has
    them. min_phones: the round fails if fewer updates are accepted. patience_seconds: how long an upload without
    progress is retried. wait_seconds: how long to wait for the round to close; 0: not at all. heartbeat_timeout: how
    many seconds this machine and a phone wait for each other before the other counts as lost. masking: for masked
    rounds.
    """

    updates: Path
    training: PhoneTraining = field(default_factory=PhoneTraining)
    masking: MaskingSettings = field(default_factory=MaskingSettings)
    texts: Path | None = None
    text_on_phone: str = TEXT_ON_PHONE
    min_phones: int = 1
    patience_seconds: float = 120.0
    wait_seconds: float = 60.0
    heartbeat_timeout: float = SessionSettings.timeout_seconds

    def __post_init__(self) -> None:
        require_settings(
            self,
            min_phones=(self.min_phones >= 1, "at least 1"),
            patience_seconds=(self.patience_seconds >= 0, "at least 0"),
            wait_seconds=(self.wait_seconds >= 0, "at least 0"),
            heartbeat_timeout=(self.heartbeat_timeout > 0, "more than 0"),
            text_on_phone=(self.text_on_phone.startswith("/"), f"an absolute path such as {TEXT_ON_PHONE}"),
        )

    def document(self) -> dict[str, object]:
        """The settings as a JSON object."""
        flat = {**dataclasses.asdict(self), **dataclasses.asdict(self.training)}
        del flat["training"], flat["masking"]
        flat |= {"vendor": self.masking.vendor, "min_cohort": self.masking.min_cohort}
        flat["silence_seconds"] = flat.pop("heartbeat_timeout")  # its name in schema version 1
        return {name: str(value) if isinstance(value, Path) else value for name, value in flat.items()}
