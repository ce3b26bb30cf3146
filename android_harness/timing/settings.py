"""Settings of `phonograd phone-bench`, and their defaults."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from phonograd.android_harness.phones.readiness import Readiness
from phonograd.android_harness.result import OutputLayerKind
from phonograd.android_harness.session.settings import SessionSettings, TrainingSettings, require_settings
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.formats.manifest import TrainingConfig


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
class PhoneBenchSettings(TrainingSettings):
    """Settings of a bench. Seconds are wall time on this machine.

    epochs: timed epochs, after `warm_up` untimed ones. pin: each thread stays on one core. output_sample: also train
    with the sampled softmax, in turn with the full softmax, or without it if `full_softmax` is off.
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
    pin: bool = True
    full_softmax: bool = True
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
        super().__post_init__()
        if not self.full_softmax and self.output_sample is None:
            raise UsageError("without `full_softmax` there is nothing to time; give `output_sample` too")
        require_settings(
            self,
            epochs=(self.epochs >= 1, "at least 1"),
            warm_up=(self.warm_up >= 0, "at least 0"),
            cooldown_seconds=(0 <= self.cooldown_seconds < math.inf, "seconds, at least 0"),
            min_battery=(0 <= self.min_battery <= 100, "0 to 100"),
            sample_seconds=(0 < self.sample_seconds < math.inf, "seconds, more than 0"),
            heartbeat_timeout=(0 < self.heartbeat_timeout < math.inf, "seconds, more than 0"),
        )

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
