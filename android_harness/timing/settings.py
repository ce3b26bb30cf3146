"""What `phonograd phone-bench` can be asked, and the one place of its defaults."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from phonograd.android_harness.phones.readiness import Readiness
from phonograd.android_harness.session.programs import CORES
from phonograd.android_harness.session.settings import SessionSettings
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.engine.backend import PRECISIONS, Precision
from phonograd.device_runtime.formats.manifest import TrainingConfig

MOST_THREADS = 256  # what phonograd-phone takes


@dataclass(frozen=True)
class TextSettings:
    """What the phones train on; without `user`, a synthetic token stream.

    user: the user's text, one message a line; rehearsal: general text that is mixed in at random until the user's
    share of the tokens is `user_share` (paper P's λ). seed: of that draw, and of the synthetic stream.
    """

    user: Path | None = None
    rehearsal: Path | None = None
    user_share: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rehearsal is not None and self.user is None:
            raise UsageError("--rehearsal needs --user, the text it is mixed into")
        if self.user_share is not None and self.rehearsal is None:
            raise UsageError("--user-share needs --rehearsal, the general text to mix in")
        if self.user_share is not None and not 0 < self.user_share <= 1:
            raise UsageError(f"--user-share is {self.user_share}, expected a number in (0, 1]")

    @property
    def share(self) -> float:
        """λ as it is used."""
        if self.rehearsal is None:
            return 1.0
        return TrainingConfig.user_share if self.user_share is None else self.user_share


@dataclass(frozen=True)
class PhoneBenchSettings:
    """How phones are timed. Seconds are wall time on this machine.

    epochs: timed ones, after `warm_up` that are not. cores: big (not much slower than the fastest), little, all, or a
    hexadecimal mask; pin keeps each thread on one of them. threads: None is one for each of these cores, and more than
    that there are never; which and how many they are, phonograd-phone decides, and every epoch records.
    cooldown_seconds: the longest wait for the temperature to settle before an epoch, 0 for none.
    minimum_battery: percent below which a phone takes no part, or no longer.
    sample_seconds: from one sample of frequencies and temperatures to the next.
    codecs: encode the trained weights with every codec after the last epoch, and time it. sweep: after that, an epoch
    for each number of threads and choice of cores.
    keep: leave files on the phone, so that the next run finds them. fixed_performance: ask Android for steady clocks.
    stay_awake: hold off what Android may slow the phone down for: screen off, doze, battery saver.
    silence_seconds: how long this machine and a phone wait for a word of the other before they count it as lost.

    Raises UsageError for what can't be.
    """

    epochs: int = 3
    warm_up: int = 1
    threads: int | None = None
    cores: str = "big"
    pin: bool = True
    precision: Precision = "fp32"
    cooldown_seconds: float = 180.0
    minimum_battery: int = Readiness.battery_percent
    sample_seconds: float = 1.0
    codecs: bool = True
    sweep: bool = False
    keep: bool = False
    fixed_performance: bool = True
    stay_awake: bool = True
    silence_seconds: float = SessionSettings.silence
    text: TextSettings = field(default_factory=TextSettings)

    def __post_init__(self) -> None:
        checks = (
            (self.epochs >= 1, f"--epochs is {self.epochs}, expected at least 1"),
            (self.warm_up >= 0, f"--warm-up is {self.warm_up}, expected at least 0"),
            (
                self.threads is None or 1 <= self.threads <= MOST_THREADS,
                f"--threads is {self.threads}, expected 1 to {MOST_THREADS}",
            ),
            (
                CORES.fullmatch(self.cores) is not None,
                f"--cores is {self.cores!r}, expected big, little, all, or a hexadecimal mask such as f0",
            ),
            (
                self.precision in PRECISIONS,
                f"--precision is {self.precision!r}, expected one of {', '.join(PRECISIONS)}",
            ),
            (
                0 <= self.cooldown_seconds < math.inf,
                f"--cooldown is {self.cooldown_seconds}, expected seconds, at least 0",
            ),
            (0 <= self.minimum_battery <= 100, f"--min-battery is {self.minimum_battery}, expected 0 to 100"),
            (
                0 < self.sample_seconds < math.inf,
                f"--sample-every is {self.sample_seconds}, expected seconds, more than 0",
            ),
            (
                0 < self.silence_seconds < math.inf,
                f"--heartbeat-timeout is {self.silence_seconds}, expected seconds, more than 0",
            ),
        )
        for good, message in checks:
            if not good:
                raise UsageError(message)


def settings_in_words(settings: PhoneBenchSettings) -> Mapping[str, object]:
    """The settings as a report has them: numbers, texts and file names, no paths."""
    plain = asdict(settings)
    text = settings.text
    plain["text"] = {
        "user": text.user.name if text.user else None,
        "rehearsal": text.rehearsal.name if text.rehearsal else None,
        "user_share": text.share,
        "seed": text.seed,
    }
    return plain
