"""Settings of a round on real phones, and their defaults."""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from phonograd.android_harness.session.programs import CORES
from phonograd.android_harness.session.settings import WORK_FOLDER, SessionSettings
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.engine.backend import Precision
from phonograd.device_runtime.update.codecs import DEFAULT_CODEC, PLAIN

# phonograd-phone writes the codecs without zstd.
PHONE_CODECS: tuple[str, ...] = tuple(codec.name for codec in PLAIN)
TEXT_ON_PHONE = f"{WORK_FOLDER}/user.txt"


@dataclass(frozen=True)
class PhoneTraining:
    """What each phone is asked to do; user_share (λ, with rehearsal only) and learning_rate None: the usual ones.

    rehearsal: general text on this machine, pushed. cores: big (not much slower than the fastest), little, all, or a
    hexadecimal mask; threads: None is one for each of them, and more there are never. Each stays on its core. Raises
    UsageError for what can't be.
    """

    codec: str = DEFAULT_CODEC
    rehearsal: Path | None = None
    user_share: float | None = None
    learning_rate: float | None = None
    threads: int | None = None
    cores: str = "big"
    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        if self.codec not in PHONE_CODECS:
            raise UsageError(f"codec {self.codec!r}: one that phones write expected: {', '.join(PHONE_CODECS)}")
        if self.user_share is not None and self.rehearsal is None:
            raise UsageError("user_share needs rehearsal, the general text to mix in")
        if not CORES.fullmatch(self.cores):
            raise UsageError(f"cores {self.cores!r}: big, little, all, or a hexadecimal mask such as f0 expected")

    def options(self) -> list[str]:
        """These settings as options of phonograd-phone train; files aside."""
        chosen = {
            "--codec": self.codec,
            "--user-share": self.user_share,
            "--lr": self.learning_rate,
            "--cores": self.cores,
            "--threads": self.threads,
            "--precision": self.precision,
        }
        options = [str(part) for option, value in chosen.items() if value is not None for part in (option, value)]
        return [*options, "--pin-threads"]


@dataclass(frozen=True)
class RoundSettings:
    """Settings of one round.

    texts: folder with a text for each phone (see `naming.text_of`), pushed and removed again; None: the text that lies
    on the phone at text_on_phone, which is left alone. updates: folder for what phones trained until the server has it.
    min_phones: fewer that get their update accepted are a failure of the round. patience_seconds: how long an upload
    that gets no byte further is tried again. wait_seconds: how long to wait for the round to close; 0: not at all.
    silence_seconds: how long this machine and a phone wait for a word of the other before they count it as lost.
    """

    updates: Path
    training: PhoneTraining = field(default_factory=PhoneTraining)
    texts: Path | None = None
    text_on_phone: str = TEXT_ON_PHONE
    min_phones: int = 1
    patience_seconds: float = 120.0
    wait_seconds: float = 60.0
    silence_seconds: float = SessionSettings.silence

    def __post_init__(self) -> None:
        checks = (
            (self.min_phones >= 1, f"min_phones is {self.min_phones}, expected at least 1"),
            (self.patience_seconds >= 0, f"patience_seconds is {self.patience_seconds}, expected at least 0"),
            (self.wait_seconds >= 0, f"wait_seconds is {self.wait_seconds}, expected at least 0"),
            (self.silence_seconds > 0, f"silence_seconds is {self.silence_seconds}, expected more than 0"),
            (
                self.text_on_phone.startswith("/"),
                f"text on phone {self.text_on_phone!r}: an absolute path expected, such as {TEXT_ON_PHONE}",
            ),
        )
        for good, message in checks:
            if not good:
                raise UsageError(message)

    def document(self) -> dict[str, object]:
        """As a JSON object."""
        flat = {**dataclasses.asdict(self), **dataclasses.asdict(self.training)}
        del flat["training"]
        return {name: str(value) if isinstance(value, Path) else value for name, value in flat.items()}
