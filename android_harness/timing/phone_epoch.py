"""One epoch on a phone: what `phonograd-phone train` prints, gathered."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from phonograd.android_harness.errors import PhoneRunError
from phonograd.android_harness.result import CodecCost, Placement, Step

# (steps done, steps in all)
StepProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Trained:
    """An epoch as the phone's program told it; times as in result.py's Epoch."""

    started_at_s: float
    load_seconds: float
    seconds: float
    tokens: int
    steps: tuple[Step, ...]
    loss_first: float
    loss_last: float
    peak_rss_bytes: int
    kernels: str
    placement: Placement
    codecs: tuple[CodecCost, ...]


class EpochEvents:
    """Takes the events of one process, in order; `trained` then is the epoch. Used from one thread."""

    def __init__(self, serial: str, on_step: StepProgress):
        self._serial = serial
        self._on_step = on_step
        self._started_at_s = 0.0
        self._start: Mapping[str, Any] = {}
        self._report: Mapping[str, Any] = {}
        self._steps: list[Step] = []

    def hear(self, at_s: float, event: dict[str, Any]) -> None:
        """One event, and when it came. Raises PhoneRunError for an event without its fields."""
        kind = event.get("event")
        if kind == "start":
            # Loading ends as the event is printed; so this is when the process began.
            self._started_at_s = at_s - self._number(event, "load_seconds")
            self._start = event
        elif kind == "step":
            phases = {str(name): float(seconds) for name, seconds in self._field(event, "phases").items()}
            seconds = self._number(event, "seconds")
            self._steps.append(Step(at_s, seconds, self._number(event, "loss"), phases))
            self._on_step(len(self._steps), int(self._number(event, "steps")))
        elif kind == "report":
            self._report = event

    @property
    def trained(self) -> Trained:
        """The epoch, once its process has ended. Raises PhoneRunError if it did not tell all of it."""
        start, report = self._start, self._report
        if not start or not report or not self._steps:
            missing = "start" if not start else "report" if not report else "step"
            raise PhoneRunError(
                f"phone {self._serial}: phonograd-phone train ended well but printed no {missing} event; report it "
                "with the phone's model"
            )
        return Trained(
            started_at_s=self._started_at_s,
            load_seconds=self._number(start, "load_seconds"),
            seconds=self._number(report, "seconds"),
            tokens=int(self._number(report, "tokens")),
            steps=tuple(self._steps),
            loss_first=self._number(report, "loss_first"),
            loss_last=self._number(report, "loss_last"),
            peak_rss_bytes=int(self._number(report, "peak_rss_bytes")),
            kernels=str(self._field(report, "kernels")),
            placement=Placement(
                threads=int(self._number(start, "threads")),
                pinned=bool(self._field(start, "pinned")),
                cores=tuple(map(int, self._field(start, "cores"))),
                allowed_cores=tuple(map(int, self._field(start, "allowed_cores"))),
            ),
            codecs=tuple(
                CodecCost(
                    str(self._field(cost, "codec")),
                    int(self._number(cost, "nbytes")),
                    self._number(cost, "seconds"),
                )
                for cost in report.get("codecs", ())
            ),
        )

    def _field(self, event: Mapping[str, Any], name: str) -> Any:
        if name not in event:
            kind = event.get("event", "codec")
            raise PhoneRunError(
                f"phone {self._serial}: phonograd-phone's {kind} event has no {name}; the binary is of another "
                "version: phonograd build-phone --force makes this one's"
            )
        return event[name]

    def _number(self, event: Mapping[str, Any], name: str) -> float:
        value = self._field(event, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise PhoneRunError(
                f"phone {self._serial}: phonograd-phone said {name} is {value!r}, expected a number; training left the "
                "finite ones, or the binary is of another version"
            )
        return float(value)
