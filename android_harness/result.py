"""What `phonograd phone-bench` found, as its JSON document has it: schema phonograd.phone-bench, version 2.

Seconds are wall time on the phone unless a name says otherwise, bytes are bytes, `at_s` counts from the moment the
phone's work began.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from phonograd.android_harness.phones.facts import PhoneFacts, Power
from phonograd.android_harness.phones.power import cpu_temperature

SCHEMA = "phonograd.phone-bench"
SCHEMA_VERSION = 2
# Paper P: one epoch over about 20 KB with the 2x650 model on a quad-core 2.31 GHz phone CPU.
PAPER_EPOCH_SECONDS = 140.0

# How a wait for a phone to cool ended.
CoolingEnd = Literal["not asked", "cool", "settled", "limit", "no sensor"]


@dataclass(frozen=True)
class PushedFile:
    """A file the phone was to have; `pushed` is false if it lay there already, by its hash."""

    name: str
    nbytes: int
    sha256: str
    pushed: bool


@dataclass(frozen=True)
class Pushed:
    """What went over the cable before the first epoch: bytes of the pushed files, seconds of the host's clock."""

    files: tuple[PushedFile, ...]
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class Step:
    """One training step: when it ended, how long it took, its loss in nats a token, its phases in seconds."""

    at_s: float
    seconds: float
    loss: float
    phases: Mapping[str, float]


@dataclass(frozen=True)
class Placement:
    """Where an epoch ran, as phonograd-phone's `start` event says: how many threads, and the numbers of their cores.

    Pinned threads stay on one core each, `cores` in the order of the threads; others move among them. `allowed_cores`
    are those that Android let the process use.
    """

    threads: int
    pinned: bool
    cores: tuple[int, ...]
    allowed_cores: tuple[int, ...]


@dataclass(frozen=True)
class Energy:
    """What the whole phone drew from its battery during an epoch's steps: joules, mean watts, and what tells.

    `basis`: samples of the battery's current, or two readings or more of its charge counter.
    """

    joules: float
    watts: float
    basis: Literal["current", "charge counter"]


@dataclass(frozen=True)
class Epoch:
    """One process on the phone that trained one epoch.

    `seconds` are those of its steps, `load_seconds` from its start to the first step, `wall_seconds` all of it as the
    host saw it. `cooled_seconds` were waited before it, until the phone was cool (as when the run began), settled (no
    longer cooling), or the limit was reached. `energy` is None where the phone does not say, or
    power came in. `throttled` has what speaks for throttling, one line each.
    """

    warm_up: bool
    started_at_s: float
    cooled_seconds: float
    cooling: CoolingEnd
    load_seconds: float
    seconds: float
    wall_seconds: float
    tokens: int
    steps: tuple[Step, ...]
    loss_first: float
    loss_last: float
    peak_rss_bytes: int
    kernels: str
    placement: Placement
    energy: Energy | None
    throttled: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """Frequencies and caps (scaling_max_freq) in kHz by core number, temperatures in °C by name, at one moment."""

    at_s: float
    frequencies_khz: Mapping[int, int]
    caps_khz: Mapping[int, int]
    temperatures_c: Mapping[str, float]
    battery_percent: int | None
    battery_temperature_c: float | None
    thermal_status: int | None
    power: Power

    @property
    def hottest_c(self) -> float | None:
        """The hottest CPU temperature in °C, else the hottest there is, else the battery's, else None."""
        found = cpu_temperature(self.temperatures_c)
        return self.battery_temperature_c if found is None else found


@dataclass(frozen=True)
class CodecCost:
    """The trained weights as an update: its bytes, and the seconds the phone took to encode it."""

    codec: str
    nbytes: int
    seconds: float


@dataclass(frozen=True)
class SweepRun:
    """One epoch of a sweep: the --cores and --threads it was asked for."""

    cores: str
    threads: int
    epoch: Epoch


@dataclass(frozen=True)
class Failure:
    """Why a phone has no full result: one line, and the exit code of such an error."""

    message: str
    exit_code: int


@dataclass(frozen=True)
class PowerState:
    """What Android may slow a phone down for, at one moment; None where the phone does not say.

    screen_on: awake, neither asleep nor dreaming. dozing: deep or light doze, in which background work waits.
    """

    screen_on: bool | None
    dozing: bool | None
    battery_saver: bool | None


@dataclass(frozen=True)
class PhoneResult:
    """Everything of one phone. With a `failure`, what was measured before it stands.

    `fixed_performance` is whether Android was asked to keep the clocks fixed, and did not refuse. `power_before` is how
    the phone was as the work began, `power` how it was once it had been asked to stay awake.
    `sweep` has the epochs of --sweep, which count in no other figure.
    """

    facts: PhoneFacts
    failure: Failure | None
    pushed: Pushed | None
    fixed_performance: bool
    power_before: PowerState | None
    power: PowerState | None
    epochs: tuple[Epoch, ...]
    samples: tuple[Sample, ...]
    codecs: tuple[CodecCost, ...]
    sweep: tuple[SweepRun, ...]

    @property
    def used_cores(self) -> tuple[int, ...]:
        """Numbers of the cores that some epoch ran on, in rising order."""
        return tuple(sorted({core for epoch in self.epochs for core in epoch.placement.cores}))

    @property
    def timed(self) -> tuple[Epoch, ...]:
        """The epochs that are no warm-up."""
        return tuple(epoch for epoch in self.epochs if not epoch.warm_up)


@dataclass(frozen=True)
class Workload:
    """What was trained: the manifest's hash, the model in words, minibatch and BPTT, tokens an epoch, the text."""

    manifest_sha256: str
    model: str
    parameters: int
    minibatch: int
    bptt: int
    tokens: int
    text: str


@dataclass(frozen=True)
class PhoneBenchReport:
    """A whole run: when (ISO 8601, UTC), with what, and each phone's result. `settings` are those of the command."""

    created: str
    phonograd_version: str
    adb_version: str
    binary_sha256: str
    workload: Workload
    settings: Mapping[str, object]
    phones: tuple[PhoneResult, ...]
