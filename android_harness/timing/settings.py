"""Settings of `phonograd phone-bench`, and their defaults."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from phonograd.android_harness.phones.readiness import Readiness
from phonograd.android_harness.result import OutputLayerKind
from phonograd.android_harness.session.pace import require_pace
from phonograd.android_harness.session.program import CORES_PATTERN
from phonograd.android_harness.session.settings import SessionSettings
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.engine.backend import PRECISIONS, Precision
from phonograd.device_runtime.formats.manifest import TrainingConfig

MAX_THREADS = 256  # phonograd-phone's limit


@dataclass(frozen=True)
class TextSettings:
    """What the phones train on; without `user`, a synthetic token stream.

    user: the user's text, one message per line; rehearsal: general text, from which random messages are mixed in until
    the user's share of the tokens is `user_share` (paper P's λ). seed: of that draw and of the synthetic stream.
    """

    user: Path | None = None
    rehearsal: Path | None = None
    user_share: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rehearsal is not None and self.user is None:
            raise UsageError("`rehearsal` needs `user`, the text to mix it into")
        if self.user_share is not None and self.rehearsal is None:
            raise UsageError("`user_share` needs `rehearsal`, the general text to mix in")
        if self.user_share is not None and not 0 < self.user_share <= 1:
            raise UsageError(f"`user_share` is {self.user_share}, expected a number in (0, 1]")

    @property
    def share(self) -> float:
        """λ, or its default."""
        if self.rehearsal is None:
            return 1.0
        return TrainingConfig().user_share if self.user_share is None else self.user_share


@dataclass(frozen=True)
class PhoneBenchSettings:
    """Settings of a bench. Seconds are wall time on this machine.

    epochs: timed epochs, after `warm_up` untimed ones. cores: big (not much slower than the fastest), little, all, or a
    hexadecimal mask; pin keeps each thread on one of them. threads: at most one per core, None: one per core;
    phonograd-phone decides which cores these are, and every epoch records them.
    output_sample: also train with the softmax over the text's words and this many others, in turn with the full
    softmax, or without it if `full_softmax` is off; None: the full softmax only.
    duty: share of the time that steps take, the rest of it is rests between them; nice: lower the priority to this nice
    value; None: phonograd-phone's defaults.
    cooldown_seconds: longest wait before an epoch for the temperature to settle, 0: none.
    min_battery: below this percentage a phone is left out, or runs no further epoch.
    sample_seconds: time between samples of frequencies and temperatures.
    codecs: encode the trained weights with every codec after the last epoch, and time it. sweep: then run an epoch for
    each number of threads and choice of cores.
    keep: leave files on the phone for the next run. fixed_performance: ask Android for steady clocks.
    stay_awake: keep the screen on, and doze and battery saver off.
    heartbeat_timeout: how long this machine and a phone wait for each other before the other counts as lost.

    Raises UsageError for impossible settings.
    """

    epochs: int = 3
    warm_up: int = 1
    threads: int | None = None
    cores: str = "big"
    pin: bool = True
    precision: Precision = "fp32"
    output_sample: int | None = None
    full_softmax: bool = True
    duty: float | None = None
    nice: int | None = None
    cooldown_seconds: float = 180.0
    min_battery: int = Readiness.min_battery_percent
    sample_seconds: float = 1.0
    codecs: bool = True
    sweep: bool = False
    keep: bool = False
    fixed_performance: bool = True
    stay_awake: bool = True
    heartbeat_timeout: float = SessionSettings.timeout_seconds
    text: TextSettings = field(default_factory=TextSettings)

    def __post_init__(self) -> None:
        checks = (
            (self.epochs >= 1, f"`epochs` is {self.epochs}, expected at least 1"),
            (self.warm_up >= 0, f"`warm_up` is {self.warm_up}, expected at least 0"),
            (
                self.threads is None or 1 <= self.threads <= MAX_THREADS,
                f"`threads` is {self.threads}, expected 1 to {MAX_THREADS}",
            ),
            (
                CORES_PATTERN.fullmatch(self.cores) is not None,
                f"`cores` is {self.cores!r}, expected big, little, all, or a hexadecimal mask such as f0",
            ),
            (
                self.precision in PRECISIONS,
                f"`precision` is {self.precision!r}, expected one of {', '.join(PRECISIONS)}",
            ),
            (
                self.output_sample is None or self.output_sample >= 1,
                f"`output_sample` is {self.output_sample}, expected at least 1",
            ),
            (
                self.full_softmax or self.output_sample is not None,
                "without `full_softmax` there is nothing to time; give `output_sample` too",
            ),
            (
                0 <= self.cooldown_seconds < math.inf,
                f"`cooldown_seconds` is {self.cooldown_seconds}, expected seconds, at least 0",
            ),
            (0 <= self.min_battery <= 100, f"`min_battery` is {self.min_battery}, expected 0 to 100"),
            (
                0 < self.sample_seconds < math.inf,
                f"`sample_seconds` is {self.sample_seconds}, expected seconds, more than 0",
            ),
            (
                0 < self.heartbeat_timeout < math.inf,
                f"`heartbeat_timeout` is {self.heartbeat_timeout}, expected seconds, more than 0",
            ),
        )
        for good, message in checks:
            if not good:
                raise UsageError(message)
        require_pace(self.duty, self.nice)

    @property
    def output_layers(self) -> tuple[OutputLayerKind, ...]:
        """The kinds of output layer to time."""
        full: tuple[OutputLayerKind, ...] = ("full",) if self.full_softmax else ()
        return full if self.output_sample is None else (*full, "sampled")


def settings_document(settings: PhoneBenchSettings) -> Mapping[str, object]:
    """The settings for a report: file names instead of paths."""
    plain = asdict(settings)
    text = settings.text
    plain["text"] = {
        "user": text.user.name if text.user else None,
        "rehearsal": text.rehearsal.name if text.rehearsal else None,
        "user_share": text.share,
        "seed": text.seed,
    }
    return plain
