"""One epoch on a phone, from the events that `phonograd-phone train` prints."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from phonograd.android_harness.errors import PhoneRunError
from phonograd.android_harness.phones.facts import CoreNumber
from phonograd.android_harness.result import CodecCost, OutputLayer, Placement, Step
from phonograd.device_runtime.base.documents import Amount, Count, FieldError, Number, Positive, read

# Called with (steps done, steps in total).
StepProgress = Callable[[int, int], None]


class StartEvent(msgspec.Struct, frozen=True):
    """Event `start`: the text and the engine are loaded."""

    load_seconds: Amount
    threads: Positive
    pinned: bool
    cores: tuple[CoreNumber, ...]
    allowed_cores: tuple[CoreNumber, ...]
    output_layer: OutputLayer

    @property
    def placement(self) -> Placement:
        """Placement of the epoch's threads."""
        return Placement(self.threads, self.pinned, self.cores, self.allowed_cores)


class StepEvent(msgspec.Struct, frozen=True):
    """Event `step`: one of `steps` is done; its loss in nats per token."""

    steps: Count
    seconds: Amount
    loss: Number
    phases: Mapping[str, Amount]


class ReportEvent(msgspec.Struct, frozen=True):
    """Event `report`: the epoch is done."""

    seconds: Amount
    tokens: Count
    loss_first: Number
    loss_last: Number
    peak_rss_bytes: Count
    kernels: str
    codecs: tuple[CodecCost, ...] = ()


E = TypeVar("E", StartEvent, StepEvent, ReportEvent)


@dataclass(frozen=True)
class TrainedEpoch:
    """An epoch as the phone's program reported it; times as in result.py's Epoch."""

    started_at_s: float
    start: StartEvent
    steps: tuple[Step, ...]
    report: ReportEvent


class EpochRecorder:
    """Receives the events of one process in order; `trained` is the epoch then. For use by one thread."""

    def __init__(self, serial: str, on_step: StepProgress):
        self._serial = serial
        self._on_step = on_step
        self._started_at_s = 0.0
        self._start: StartEvent | None = None
        self._report: ReportEvent | None = None
        self._steps: list[Step] = []

    def on_event(self, at_s: float, event: dict[str, Any]) -> None:
        """Receive an event and its time. Raises PhoneRunError if a field is missing or wrong."""
        kind = event.get("event")
        if kind == "start":
            self._start = self._read(StartEvent, event)
            # Loading ends when the event is printed, so this is when the process started.
            self._started_at_s = at_s - self._start.load_seconds
        elif kind == "step":
            step = self._read(StepEvent, event)
            self._steps.append(Step(at_s, step.seconds, step.loss, step.phases))
            self._on_step(len(self._steps), step.steps)
        elif kind == "report":
            self._report = self._read(ReportEvent, event)

    @property
    def trained(self) -> TrainedEpoch:
        """The epoch, after its process has ended. Raises PhoneRunError if an event is missing."""
        start, report = self._start, self._report
        if start is None or report is None or not self._steps:
            missing = "start" if start is None else "report" if report is None else "step"
            raise PhoneRunError(
                f"phone {self._serial}: phonograd-phone train succeeded but printed no {missing} event; please report "
                "this with the phone's model"
            )
        return TrainedEpoch(self._started_at_s, start, tuple(self._steps), report)

    def _read(self, kind: type[E], event: dict[str, Any]) -> E:
        try:
            return read(kind, event)
        except FieldError as error:
            raise PhoneRunError(
                f"phone {self._serial}: phonograd-phone's {event['event']} event: {error}; training gave NaN or "
                "infinity, or the binary has another version: rebuild it with phonograd build-phone --force"
            ) from error
