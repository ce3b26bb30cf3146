"""What `phonograd phone-bench` found, as its JSON document has it: schema phonograd.phone-bench, version 2.

Seconds are wall time on the phone unless a name says otherwise, bytes are bytes, `at_s` counts from the moment the
phone's work began.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from phonograd.android_harness.phones.facts import BY_CORE, CoreNumber, PhoneFacts, Power
from phonograd.android_harness.phones.power import cpu_temperature
from phonograd.device_runtime.base.documents import (
    Amount,
    Count,
    Duration,
    Integer,
    Number,
    Positive,
    Record,
    Sha256,
    about,
)

SCHEMA: Final = "phonograd.phone-bench"
SCHEMA_VERSION: Final = 2
# Paper P: one epoch over about 20 KB with the 2x650 model on a quad-core 2.31 GHz phone CPU.
PAPER_EPOCH_SECONDS = 140.0

# How a wait for a phone to cool ended.
CoolingEnd = Literal["not asked", "cool", "settled", "limit", "no sensor"]


class PushedFile(Record, frozen=True):
    """A file that the phone was to have."""

    name: Annotated[str, about("Its name on the phone, below the harness's folder")]
    nbytes: Annotated[Count, about("Its size, in bytes")]
    sha256: Annotated[Sha256, about("Its SHA-256, in hexadecimal")]
    pushed: Annotated[bool, about("Whether it went over the cable; false: the phone had it already, by its hash")]


class Pushed(Record, frozen=True):
    """What went over the cable before the first epoch."""

    files: Annotated[tuple[PushedFile, ...], about("All files, those that lay there already among them")]
    nbytes: Annotated[Count, about("Size of the pushed files, in bytes")]
    seconds: Annotated[Amount, about("Time on the host's clock, in seconds")]


class Step(Record, frozen=True):
    """One training step."""

    at_s: Annotated[Number, about("When it ended, in seconds since the phone's work began")]
    seconds: Annotated[Duration, about("How long it took, in seconds")]
    loss: Annotated[Number, about("Loss before the update, in nats a token")]
    phases: Annotated[Mapping[str, Amount], about("Time by phase, in seconds")]


class Placement(Record, frozen=True):
    """Where an epoch ran, as phonograd-phone says when it starts."""

    threads: Annotated[Positive, about("Threads that ran, never more than cores that they might use")]
    pinned: Annotated[bool, about("Whether each thread stayed on one core")]
    cores: Annotated[
        tuple[Integer, ...],
        about("Numbers of the cores that the threads ran on; if pinned, in the order of the threads"),
    ]
    allowed_cores: Annotated[tuple[Integer, ...], about("Numbers of the cores that Android let the program use")]


class Energy(Record, frozen=True):
    """What the whole phone drew from its battery during an epoch's steps."""

    joules: Annotated[Amount, about("Energy, in J: mean power times the epoch's seconds")]
    watts: Annotated[Amount, about("Mean power, in W")]
    basis: Annotated[
        Literal["current", "charge counter"],
        about("What tells: samples of the battery's current, or its charge counter, which moves in steps"),
    ]


class Epoch(Record, frozen=True):
    """One process on the phone that trained one epoch."""

    warm_up: Annotated[bool, about("Whether it is left out of all figures")]
    started_at_s: Annotated[Number, about("When it started, in seconds since the phone's work began")]
    cooled_seconds: Annotated[Amount, about("How long was waited for the phone to cool before it, in seconds")]
    cooling: Annotated[
        CoolingEnd,
        about("How that wait ended: as cool as when the run began, no longer cooling, or still cooling at the limit"),
    ]
    load_seconds: Annotated[Amount, about("From the process's start to its first step, in seconds")]
    seconds: Annotated[Duration, about("Sum of its steps, in seconds: the epoch's time")]
    wall_seconds: Annotated[
        Amount, about("All of the process as the host saw it: loading, steps, writing, adb, in seconds")
    ]
    tokens: Annotated[Count, about("Tokens trained")]
    steps: Annotated[tuple[Step, ...], about("Its steps, in order")]
    loss_first: Annotated[Number, about("Loss of the first step, in nats a token")]
    loss_last: Annotated[Number, about("Loss of the last step, in nats a token")]
    peak_rss_bytes: Annotated[
        Count, about("Highest resident memory of the process (VmHWM of /proc/self/status), in bytes")
    ]
    kernels: Annotated[str, about("The instruction set of the kernels that ran")]
    placement: Annotated[Placement, about("Threads, and the cores they ran on")]
    energy: Annotated[
        Energy | None, about("What it took from the battery; null where power came in or the phone does not say")
    ]
    throttled: Annotated[tuple[str, ...], about("What speaks for throttling, one line each; empty if nothing does")]


class Sample(Record, frozen=True):
    """Clocks and heat at one moment."""

    at_s: Annotated[Number, about("When, in seconds since the phone's work began")]
    frequencies_khz: Annotated[
        Mapping[CoreNumber, Count], about("Clock (scaling_cur_freq) by core number, in kHz"), BY_CORE
    ]
    caps_khz: Annotated[
        Mapping[CoreNumber, Count],
        about("Highest clock allowed now (scaling_max_freq) by core number, in kHz"),
        BY_CORE,
    ]
    temperatures_c: Annotated[Mapping[str, Number], about("Temperature by name of the sensor, in °C")]
    battery_percent: Annotated[Count | None, about("Charge, in percent")]
    battery_temperature_c: Annotated[Number | None, about("Temperature of the battery, in °C")]
    thermal_status: Annotated[Count | None, about("Android's, 0 to 6 as in PhoneFacts")]
    power: Annotated[Power, about("The battery's current, voltage and charge")]

    @property
    def hottest_c(self) -> float | None:
        """The hottest CPU temperature in °C, else the hottest there is, else the battery's, else None."""
        found = cpu_temperature(self.temperatures_c)
        return self.battery_temperature_c if found is None else found


class CodecCost(Record, frozen=True):
    """The trained weights as an update by one codec."""

    codec: Annotated[str, about("The codec's name, as phonograd train --codec takes it")]
    nbytes: Annotated[Count, about("Size of the update, in bytes")]
    seconds: Annotated[Amount, about("How long the phone took to encode it, in seconds")]


class SweepRun(Record, frozen=True):
    """One epoch of --sweep."""

    cores: Annotated[str, about("The --cores it was asked for")]
    threads: Annotated[Positive, about("The --threads it was asked for")]
    epoch: Annotated[Epoch, about("The epoch, which counts in no other figure")]


class Failure(Record, frozen=True):
    """Why a phone has no full result."""

    message: Annotated[str, about("One line that names what was done, found, and the next step")]
    exit_code: Annotated[Count, about("The exit code of such an error")]


class PowerState(Record, frozen=True):
    """What Android may slow the phone down for, at one moment; null where the phone does not say."""

    screen_on: Annotated[bool | None, about("Whether it was awake, neither asleep nor dreaming")]
    dozing: Annotated[bool | None, about("Whether it was in deep or light doze, in which background work waits")]
    battery_saver: Annotated[bool | None, about("Whether battery saver was on")]


class PhoneResult(Record, frozen=True):
    """Everything of one phone. With a failure, what was measured before it stands."""

    facts: Annotated[PhoneFacts, about("What the phone is")]
    failure: Annotated[Failure | None, about("Why the result is not full; null if it is")]
    pushed: Annotated[Pushed | None, about("What went over the cable; null if it did not come to that")]
    fixed_performance: Annotated[bool, about("Whether Android was asked to keep the clocks fixed, and did not refuse")]
    power_before: Annotated[
        PowerState | None, about("How the phone was as the work began; null if it did not come to that")
    ]
    power: Annotated[
        PowerState | None,
        about(
            "How it was while it worked: asked to stay awake, unless --no-stay-awake was given; "
            "null if it did not come to that"
        ),
    ]
    epochs: Annotated[tuple[Epoch, ...], about("Its epochs in order, warm-ups among them")]
    samples: Annotated[tuple[Sample, ...], about("Clocks and heat during the run, in order")]
    codecs: Annotated[tuple[CodecCost, ...], about("What the update would weigh, by codec")]
    sweep: Annotated[tuple[SweepRun, ...], about("The epochs of --sweep, in order")]

    @property
    def used_cores(self) -> tuple[int, ...]:
        """Numbers of the cores that some epoch ran on, in rising order."""
        return tuple(sorted({core for epoch in self.epochs for core in epoch.placement.cores}))

    @property
    def timed(self) -> tuple[Epoch, ...]:
        """The epochs that are no warm-up."""
        return tuple(epoch for epoch in self.epochs if not epoch.warm_up)


class Workload(Record, frozen=True):
    """What was trained."""

    manifest_sha256: Annotated[Sha256, about("SHA-256 of the artifacts' manifest.json, in hexadecimal")]
    model: Annotated[str, about("The model in words")]
    parameters: Annotated[Count, about("Trainable numbers of the model")]
    minibatch: Annotated[Positive, about("Columns of a step")]
    bptt: Annotated[Positive, about("Tokens of a column in a step")]
    tokens: Annotated[Count, about("Tokens an epoch")]
    text: Annotated[str, about("The text in words")]


class PhoneBenchReport(Record, frozen=True):
    """A whole run: when (ISO 8601, UTC), with what, and each phone's result. `settings` are those of the command."""

    created: Annotated[str, about("When the run began: ISO 8601, UTC")]
    phonograd_version: Annotated[str, about("Version of phonograd")]
    adb_version: Annotated[str, about("Version of adb")]
    binary_sha256: Annotated[Sha256, about("SHA-256 of the program that ran on the phones, in hexadecimal")]
    workload: Annotated[Workload, about("What was trained")]
    settings: Annotated[
        Mapping[str, Any], about("The command's options by name; what they are may change from version to version")
    ]
    phones: Annotated[tuple[PhoneResult, ...], about("Each phone's result")]
