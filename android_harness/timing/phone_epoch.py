"""One epoch on a phone: what `phonograd-phone train` prints, gathered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from phonograd.android_harness.errors import PhoneRunError
from phonograd.android_harness.phones.facts import CoreNumber
from phonograd.android_harness.result import CodecCost, Placement, Step
from phonograd.device_runtime.base.documents import Amount, Count, FieldError, Number, Positive, read

# (steps done, steps in all)
StepProgress = Callable[[int, int], None]


class Started(msgspec.Struct, frozen=True):
    """Event `start`: the text and the engine are loaded."""

    load_seconds: Amount
    threads: Positive
    pinned: bool
    cores: tuple[CoreNumber, ...]
    allowed_cores: tuple[CoreNumber, ...]

    @property
    def placement(self) -> Placement:
        """What of it goes into the epoch's result."""
        return Placement(self.threads, self.pinned, self.cores, self.allowed_cores)


class Stepped(msgspec.Struct, frozen=True):
    """Event `step`: one of `steps` is done; its loss in nats a token."""

    steps: Count
    seconds: Amount
    loss: Number
    phases: Mapping[str, Amount]


class Reported(msgspec.Struct, frozen=True):
    """Event `report`: the epoch is done."""

    seconds: Amount
    tokens: Count
    loss_first: Number
    loss_last: Number
    peak_rss_bytes: Count
    kernels: str
    codecs: tuple[CodecCost, ...] = ()


E = TypeVar("E", Started, Stepped, Reported)


@dataclass(frozen=True)
class Trained:
    """An epoch as the phone's program told it; times as in result.py's Epoch."""

    started_at_s: float
    start: Started
    steps: tuple[Step, ...]
    report: Reported


class EpochEvents:
    """Takes the events of one process, in order; `trained` then is the epoch. Used from one thread."""

    def __init__(self, serial: str, on_step: StepProgress):
        self._serial = serial
        self._on_step = on_step
        self._started_at_s = 0.0
        self._start: Started | None = None
        self._report: Reported | None = None
        self._steps: list[Step] = []

    def hear(self, at_s: float, event: dict[str, Any]) -> None:
        """One event, and when it came. Raises PhoneRunError for an event without its fields, or with wrong ones."""
        kind = event.get("event")
        if kind == "start":
            self._start = self._read(Started, event)
            # Loading ends as the event is printed; so this is when the process began.
            self._started_at_s = at_s - self._start.load_seconds
        elif kind == "step":
            step = self._read(Stepped, event)
            self._steps.append(Step(at_s, step.seconds, step.loss, step.phases))
            self._on_step(len(self._steps), step.steps)
        elif kind == "report":
            self._report = self._read(Reported, event)

    @property
    def trained(self) -> Trained:
        """The epoch, once its process has ended. Raises PhoneRunError if it did not tell all of it."""
        start, report = self._start, self._report
        if start is None or report is None or not self._steps:
            missing = "start" if start is None else "report" if report is None else "step"
            raise PhoneRunError(
                f"phone {self._serial}: phonograd-phone train ended well but printed no {missing} event; report it "
                "with the phone's model"
            )
        return Trained(self._started_at_s, start, tuple(self._steps), report)

    def _read(self, kind: type[E], event: dict[str, Any]) -> E:
        try:
            return read(kind, event)
        except FieldError as error:
            raise PhoneRunError(
                f"phone {self._serial}: phonograd-phone's {event['event']} event: {error}; training left the finite "
                "numbers, or the binary is of another version: phonograd build-phone --force makes this one's"
            ) from error
