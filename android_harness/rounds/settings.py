"""Settings of a round on phones, and their defaults."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from phonograd.android_harness.session.pace import require_pace
from phonograd.android_harness.session.program import CORES_PATTERN
from phonograd.android_harness.session.settings import WORK_FOLDER, SessionSettings
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.engine.backend import Precision
from phonograd.device_runtime.update.codecs import CODECS, DEFAULT_CODEC

TEXT_ON_PHONE = f"{WORK_FOLDER}/user.txt"


@dataclass(frozen=True)
class PhoneTraining:
    """Settings of the training on each phone.

    rehearsal: general text on this machine, pushed to phones. user_share: λ, with rehearsal only. cores: big (not much
    slower than the fastest), little, all, or a hexadecimal mask. threads: at most one per core, None: one per core;
    each stays on its core. output_sample: train the softmax over the text's words and this many others, None: over the
    vocabulary; each phone keeps its draw to itself. duty: share of the time that steps take, the rest of it is rests
    between them. nice: lower the priority to this nice value. steps: 1 takes a single step with the gradient of the
    whole text, None a step for each window. max_unknown: largest share of a text's words that the vocabulary may
    lack, for an update to be made. None means the default of phonograd-phone. Raises UsageError for impossible
    settings.
    """

    codec: str = DEFAULT_CODEC
    rehearsal: Path | None = None
    user_share: float | None = None
    learning_rate: float | None = None
    threads: int | None = None
    cores: str = "big"
    precision: Precision = "fp32"
    output_sample: int | None = None
    duty: float | None = None
    nice: int | None = None
    steps: int | None = None
    max_unknown: float | None = None

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise UsageError(f"`codec` is {self.codec!r}, expected one of {', '.join(CODECS)}")
        if self.user_share is not None and self.rehearsal is None:
            raise UsageError("`user_share` needs `rehearsal`, the general text to mix in")
        if self.output_sample is not None and self.output_sample < 1:
            raise UsageError(f"`output_sample` is {self.output_sample}, expected at least 1")
        if self.steps not in (None, 1):
            raise UsageError(f"`steps` {self.steps}: expected 1, a single step with the gradient of the whole text")
        require_pace(self.duty, self.nice)
        if not CORES_PATTERN.fullmatch(self.cores):
            raise UsageError(f"`cores` is {self.cores!r}, expected big, little, all, or a hexadecimal mask such as f0")

    def options(self) -> list[str]:
        """These settings as options of phonograd-phone train, without files."""
        chosen = {
            "--codec": self.codec,
            "--user-share": self.user_share,
            "--steps": self.steps,
            "--lr": self.learning_rate,
            "--cores": self.cores,
            "--threads": self.threads,
            "--precision": self.precision,
            "--output-sample": self.output_sample,
            "--duty": self.duty,
            "--nice": self.nice,
            "--max-unknown": self.max_unknown,
        }
        options = [str(part) for option, value in chosen.items() if value is not None for part in (option, value)]
        return [*options, "--pin-threads"]


@dataclass(frozen=True)
class RoundSettings:
    """Settings of one round.

    texts: folder with a text for each phone (see `naming.find_text`), pushed and removed again; None: each phone trains
    on its own text at text_on_phone, which is not changed. updates: folder that keeps updates until the server has
    them. min_phones: the round fails if fewer updates are accepted. patience_seconds: how long an upload without
    progress is retried. wait_seconds: how long to wait for the round to close; 0: not at all. heartbeat_timeout: how
    many seconds this machine and a phone wait for each other before the other counts as lost.
    """

    updates: Path
    training: PhoneTraining = field(default_factory=PhoneTraining)
    texts: Path | None = None
    text_on_phone: str = TEXT_ON_PHONE
    min_phones: int = 1
    patience_seconds: float = 120.0
    wait_seconds: float = 60.0
    heartbeat_timeout: float = SessionSettings.timeout_seconds

    def __post_init__(self) -> None:
        checks = (
            (self.min_phones >= 1, f"`min_phones` is {self.min_phones}, expected at least 1"),
            (self.patience_seconds >= 0, f"`patience_seconds` is {self.patience_seconds}, expected at least 0"),
            (self.wait_seconds >= 0, f"`wait_seconds` is {self.wait_seconds}, expected at least 0"),
            (self.heartbeat_timeout > 0, f"`heartbeat_timeout` is {self.heartbeat_timeout}, expected more than 0"),
            (
                self.text_on_phone.startswith("/"),
                f"`text_on_phone` is {self.text_on_phone!r}, expected an absolute path such as {TEXT_ON_PHONE}",
            ),
        )
        for good, message in checks:
            if not good:
                raise UsageError(message)

    def document(self) -> dict[str, object]:
        """The settings as a JSON object."""
        flat = {**dataclasses.asdict(self), **dataclasses.asdict(self.training)}
        del flat["training"]
        flat["silence_seconds"] = flat.pop("heartbeat_timeout")  # its name in schema version 1
        return {name: str(value) if isinstance(value, Path) else value for name, value in flat.items()}
