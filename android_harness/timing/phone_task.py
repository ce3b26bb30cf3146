"""One phone's part of a bench: push files, warm up, time epochs with pauses to cool.

A failure keeps the results so far.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import asdict

from phonograd.android_harness.errors import NoPhoneError, PhoneRunError
from phonograd.android_harness.phone_artifacts import ARTIFACTS_FOLDER
from phonograd.android_harness.phones.facts import PhoneFacts
from phonograd.android_harness.result import (
    Epoch,
    Failure,
    KeptAwake,
    OutputLayerKind,
    PhoneResult,
    PowerState,
    Pushed,
    Sample,
    SweepRun,
    with_kind,
)
from phonograd.android_harness.session import PhoneSession
from phonograd.android_harness.session.program import SIGNAL_EXIT_BASE, Event
from phonograd.android_harness.timing.cooling import Cooling, cool_down
from phonograd.android_harness.timing.energy import epoch_energy
from phonograd.android_harness.timing.epoch_events import EpochRecorder
from phonograd.android_harness.timing.settings import PhoneBenchSettings
from phonograd.android_harness.timing.throttling import LIGHT, throttling_evidence
from phonograd.device_runtime.base.errors import PhonogradError, StoppedError

CORE_CHOICES = ("big", "little", "all")

# The exit code of a stopped task before the signal is known.
STOPPED_EXIT_CODE = SIGNAL_EXIT_BASE + signal.SIGINT


@dataclass(frozen=True)
class BenchJob:
    """What all phones do: files by their name on the phone, and how epochs run."""

    files: Mapping[str, Path]
    text_options: tuple[str, ...]
    settings: PhoneBenchSettings


@dataclass(frozen=True)
class PhoneProgress:
    """A phone's progress: `done` of `total` bytes or steps of a stage such as "epoch 2 of 3"; temperature in °C."""

    serial: str
    stage: str
    done: int
    total: int
    temperature_c: float | None


class BenchTask:
    """One phone's part of a bench; runs in its own thread."""

    def __init__(
        self,
        session: PhoneSession,
        facts: PhoneFacts,
        job: BenchJob,
        on_progress: Callable[[PhoneProgress], None],
        stop: threading.Event,
    ):
        self._session, self._facts, self._job = session, facts, job
        self._on_progress, self._stop = on_progress, stop
        self._pushed: Pushed | None = None
        self._fixed_performance = False
        self._power_before: PowerState | None = None
        self._power: PowerState | None = None
        self._power_after: PowerState | None = None
        self._kept_awake: KeptAwake | None = None
        self._epochs: list[Epoch] = []
        self._samples: list[Sample] = []
        self._sweep: list[SweepRun] = []
        self._baseline_c: float | None = None
        self._cool_caps_khz: Mapping[int, int] = {}

    def run(self) -> PhoneResult:
        """Run all epochs. Never raises: an error becomes the result's failure, next to the measurements before it."""
        failure = None
        try:
            with self._session as session:
                self._work(session)
        except StoppedError:
            settings = self._job.settings
            wanted = (settings.warm_up + settings.epochs) * len(settings.output_layers)
            failure = Failure(
                self._with_serial(f"stopped after {len(self._epochs)} of {wanted} epochs"), STOPPED_EXIT_CODE
            )
        except PhonogradError as error:
            failure = Failure(self._with_serial(str(error)), error.exit_code)
        except Exception as error:  # a bug on one phone must not lose the others' results
            failure = Failure(self._with_serial(f"a bug: {type(error).__name__}: {error}"), 1)
        self._report_progress("failed" if failure else "done", 1, 1)
        return PhoneResult(
            facts=self._facts,
            failure=failure,
            pushed=self._pushed,
            fixed_performance=self._fixed_performance,
            power_before=self._power_before,
            power=self._power,
            power_after=self._power_after,
            kept_awake=self._kept_awake,
            epochs=tuple(self._epochs),
            samples=tuple(self._samples),
            sweep=tuple(self._sweep),
        )

    def _work(self, session: PhoneSession) -> None:
        settings = self._job.settings
        self._samples.append(session.sample())
        self._baseline_c = self._samples[0].hottest_c
        self._pushed = session.sync(self._job.files, self._report_pushing)
        self._power_before, self._power, self._kept_awake = session.power_states(settings.stay_awake)
        if settings.fixed_performance:
            self._fixed_performance = session.fixed_performance()
        self._samples.append(session.sample())
        self._cool_caps_khz = cool_caps(self._facts, self._samples[-1])
        for number in range(settings.warm_up + settings.epochs):
            # Which goes first alternates, so that the heat of one slows the other as much as the reverse.
            for kind in settings.output_layers[:: 1 if number % 2 == 0 else -1]:
                self._epochs.append(self._run_numbered(session, number - settings.warm_up + 1, kind))
        if settings.sweep:
            self._run_sweep(session)
        self._power_after, *_ = session.power_states(keep_awake=False)

    def _run_numbered(self, session: PhoneSession, timed: int, kind: OutputLayerKind) -> Epoch:
        settings = self._job.settings
        name = f"epoch {timed} of {settings.epochs}"
        if timed <= 0:
            name = f"warm-up {timed + settings.warm_up} of {settings.warm_up}"
        line = self._arguments(settings.cores, settings.threads, kind)
        if settings.codecs and timed == settings.epochs:
            line.append("--codec-costs")
        return self._run_epoch(session, with_kind(name, kind), line, warm_up=timed <= 0)

    def _run_sweep(self, session: PhoneSession) -> None:
        events: list[Event] = []
        settings = self._job.settings
        session.run(["info"], lambda _, event: events.append(event), self._stop)
        choices = next((event["choices"] for event in events if "choices" in event), None)
        if choices is None:
            raise PhoneRunError(f"phone {self._facts.serial}: phonograd-phone info printed no choices of cores")
        points = list(sweep_points(choices, settings.pin))
        for number, (cores, threads) in enumerate(points, 1):
            for kind in settings.output_layers:
                stage = with_kind(f"sweep {number} of {len(points)}", kind)
                epoch = self._run_epoch(session, stage, self._arguments(cores, threads, kind), warm_up=False)
                self._sweep.append(SweepRun(cores, threads, epoch))

    def _run_epoch(self, session: PhoneSession, stage: str, line: list[str], warm_up: bool) -> Epoch:
        settings = self._job.settings
        cooling = self._cool(session, stage)
        self._check_battery()
        events = EpochRecorder(self._facts.serial, lambda done, total: self._report_progress(stage, done, total))
        with session.sample_periodically(self._samples.append, settings.sample_seconds):
            wall_seconds = session.run(line, events.on_event, self._stop)
        trained = events.trained
        ran = trained.start.placement
        evidence = throttling_evidence(trained.steps, self._samples, ran.cores, ran.threads, self._cool_caps_khz)
        return Epoch(
            warm_up=warm_up,
            output_layer=trained.start.output_layer,
            started_at_s=trained.started_at_s,
            cooled_seconds=cooling.seconds,
            cooling=cooling.outcome,
            load_seconds=trained.start.load_seconds,
            wall_seconds=wall_seconds,
            steps=trained.steps,
            placement=ran,
            energy=epoch_energy(trained.steps, self._samples, trained.report.seconds),
            throttled=evidence,
            **asdict(trained.report),
        )

    def _cool(self, session: PhoneSession, stage: str) -> Cooling:
        def take_sample() -> Sample:
            self._samples.append(session.sample())
            self._report_progress(f"cooling before {stage}", 0, 1)
            return self._samples[-1]

        cooling = cool_down(take_sample, self._baseline_c, self._job.settings.cooldown_seconds, self._stop)
        if self._stop.is_set():
            raise StoppedError("stopped", signal.SIGINT)
        return cooling

    def _check_battery(self) -> None:
        percent, minimum = self._samples[-1].battery_percent, self._job.settings.min_battery
        if percent is not None and percent < minimum:
            raise NoPhoneError(
                f"battery at {percent} %, expected at least {minimum} %; charge it, or lower `min_battery`"
            )

    def _arguments(self, cores: str, threads: int | None, kind: OutputLayerKind) -> list[str]:
        settings = self._job.settings
        sample: dict[str, int | None] = {"output_sample": None}
        if kind == "sampled":
            # The same words in every epoch; no update is published, so the seed need not be secret.
            sample = {"output_sample": settings.output_sample, "sample_seed": settings.text.seed}
        options = settings.options(threads=threads, cores=cores, **sample, pin_threads=settings.pin)
        return ["train", ARTIFACTS_FOLDER, *self._job.text_options, *options]

    def _report_progress(self, stage: str, done: int, total: int) -> None:
        temperature = self._samples[-1].hottest_c if self._samples else None
        self._on_progress(PhoneProgress(self._facts.serial, stage, done, total, temperature))

    def _report_pushing(self, done: int, total: int, _name: str) -> None:
        if self._stop.is_set():  # between two files; a push itself is not interrupted
            raise StoppedError("stopped", signal.SIGINT)
        self._report_progress("pushing", done, total)

    def _with_serial(self, message: str) -> str:
        return message if self._facts.serial in message else f"phone {self._facts.serial}: {message}"


def cool_caps(facts: PhoneFacts, now: Sample) -> dict[int, int]:
    """Each core's cap in kHz while the phone is cool: the present one, or the core's maximum if it is hot already.

    A cap below the maximum alone is not throttling: fixed-performance mode and battery savers set one too.
    """
    hot = (now.thermal_status or 0) >= LIGHT
    maxima = {core.number: core.max_khz for core in facts.cores if core.max_khz is not None}
    return maxima if hot else {**maxima, **now.caps_khz}


def sweep_points(choices: Mapping[str, Sequence[int]], pin: bool) -> Iterator[tuple[str, int]]:
    """Yield (--cores, --threads) to time: 1, 2, 4 and so on up to one per core, for each of CORE_CHOICES.

    choices: the cores of each choice, the fastest first, from phonograd-phone info. Repetitions are left out: two
    pinned threads run on the same two cores with `all` as with `big`.
    """
    seen = set()
    for word in CORE_CHOICES:
        cores = choices.get(word, ())
        powers = (1 << power for power in range(len(cores).bit_length()))
        for threads in sorted({len(cores), *(count for count in powers if count < len(cores))} - {0}):
            place = (frozenset(cores[:threads] if pin else cores), threads)
            if place not in seen:
                seen.add(place)
                yield word, threads
