"""Settings of `phonograd phone-bench`, and their defaults."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from phonograd.android_harness.phones.readiness import DEFAULT_READINESS
from phonograd.android_harness.result import OutputLayerKind
from phonograd.android_harness.session.settings import SessionSettings, TrainingSettings
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Count, FromZero, NotNegative, Positive, Settings, Share, as_dict
from phonograd.device_runtime.formats.manifest import TrainingConfig


class TextSettings(Settings, frozen=True):
    """What the phones train on."""

    user: Annotated[
        Path | None, about("Train on this text, one message a line.  [default: a synthetic text of 20 KB]")
    ] = None
    rehearsal: Annotated[Path | None, about("General text to draw rehearsal messages from.")] = None
    user_share: Annotated[
        Share | None,
        about(f"With rehearsal: λ, the user's share of the tokens.  [default: {TrainingConfig().user_share}]"),
    ] = None
    seed: Annotated[FromZero, about("Seed of the rehearsal draw and the synthetic text.")] = 0

    def check_together(self) -> None:
        """Raise ValueError for a text to mix in without one to mix it into."""
        if self.rehearsal is not None and self.user is None:
            raise ValueError("`rehearsal` needs `user`, the text to mix it into")
        if self.user_share is not None and self.rehearsal is None:
            raise ValueError("`user_share` needs `rehearsal`, the general text to mix in")

    @property
    def share(self) -> float:
        """λ, or its default."""
        if self.rehearsal is None:
            return 1.0
        return TrainingConfig().user_share if self.user_share is None else self.user_share


class PhoneBenchSettings(TrainingSettings, frozen=True):
    """Settings of a bench. Seconds are wall time on this machine.

    output_sample: train with the sampled softmax too, in turn with the full one. Raises ValueError for impossible
    settings.
    """

    epochs: Annotated[Count, about("Epochs to time.")] = 3
    warm_up: Annotated[FromZero, about("Warm-up epochs before them.")] = 1
    pin: Annotated[bool, about("Pin each thread to one core.")] = True
    full_softmax: Annotated[
        bool, about("With an output sample: time the full softmax too, in turn, which takes longer.")
    ] = True
    cooldown_seconds: Annotated[
        NotNegative, about("Longest wait before each epoch for the temperature to settle; 0: no wait.")
    ] = 180.0
    min_battery: Annotated[
        int,
        Meta(ge=0, le=100),
        about("Skip phones with less battery than this, in percent; they also run no further epoch below it."),
    ] = DEFAULT_READINESS.min_battery_percent
    sample_seconds: Annotated[Positive, about("Time between samples of clocks and temperatures.")] = 1.0
    codecs: Annotated[bool, about("Encode an update with each codec after the last epoch, and time it.")] = True
    sweep: Annotated[bool, about("Then train an epoch for each number of threads and choice of cores.")] = False
    keep: Annotated[bool, about("Keep files on the phones, except texts, so that the next run pushes less.")] = False
    fixed_performance: Annotated[bool, about("Ask Android for clock rates that it can sustain.")] = True
    stay_awake: Annotated[
        bool, about("Keep the screen on, doze and battery saver off, and restore the settings afterwards.")
    ] = True
    heartbeat_timeout: Annotated[
        Positive, about("Seconds without contact after which a phone counts as lost and ends its work.")
    ] = SessionSettings().timeout_seconds
    text: TextSettings = TextSettings()

    def check_together(self) -> None:
        """Raise ValueError for cores that no phone has, and where there is no softmax to time."""
        super().check_together()
        if not self.full_softmax and self.output_sample is None:
            raise ValueError("without `full_softmax` there is nothing to time; give `output_sample` too")

    @property
    def output_layers(self) -> tuple[OutputLayerKind, ...]:
        """The kinds of output layer to time."""
        full: tuple[OutputLayerKind, ...] = ("full",) if self.full_softmax else ()
        return full if self.output_sample is None else (*full, "sampled")


def settings_document(settings: PhoneBenchSettings) -> Mapping[str, object]:
    """The settings for a report: file names instead of paths."""
    text = settings.text
    shown = {
        "user": text.user.name if text.user else None,
        "rehearsal": text.rehearsal.name if text.rehearsal else None,
        "user_share": text.share,
        "seed": text.seed,
    }
    return {**as_dict(settings), "text": shown}
