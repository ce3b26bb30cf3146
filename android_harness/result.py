"""The result of `phonograd phone-bench`, with the fields of its JSON document: schema phonograd.phone-bench.

Seconds are wall time on the phone unless a name says otherwise; `at_s` counts from the moment the phone's work began.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from msgspec.structs import replace

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
SCHEMA_VERSION: Final = 5
# Paper P: one epoch over about 20 KB with the 2x650 model on a quad-core 2.31 GHz phone CPU.
PAPER_EPOCH_SECONDS = 140.0

# How the wait for a phone to cool ended.
CoolingOutcome = Literal["not asked", "cool", "settled", "limit", "no sensor"]
OutputLayerKind = Literal["full", "sampled"]


class PushedFile(Record, frozen=True):
    """A file that the phone needs."""

    name: Annotated[str, about("Its name on the phone, under phonograd's folder")]
    nbytes: Annotated[Count, about("Its size, in bytes")]
    sha256: Annotated[Sha256, about("Its SHA-256, in hexadecimal")]
    pushed: Annotated[bool, about("Whether it was pushed; false: the phone had it already, by its hash")]


class Pushed(Record, frozen=True):
    """The files pushed to the phone before the first epoch."""

    files: Annotated[tuple[PushedFile, ...], about("All files, including those that the phone had already")]
    nbytes: Annotated[Count, about("Size of the pushed files, in bytes")]
    seconds: Annotated[Amount, about("Time on the host's clock, in seconds")]


class OutputLayer(Record, frozen=True):
    """The words that the softmax ran over: the vocabulary, or an output sample."""

    kind: Annotated[
        OutputLayerKind, about("full: the vocabulary; sampled: the text's words and others, drawn at random")
    ]
    words: Annotated[Positive, about("Number of words")]


def with_kind(name: str, kind: OutputLayerKind) -> str:
    """The name of something with this output layer: `, sampled` is added, nothing for the full one."""
    return f"{name}, sampled" if kind == "sampled" else name


class CodecCost(Record, frozen=True):
    """Size and encoding time of the update in one codec."""

    codec: Annotated[str, about("The codec's name, as phonograd train --codec takes it")]
    nbytes: Annotated[Count, about("Size of the update, in bytes")]
    seconds: Annotated[Amount, about("Time the phone took to encode it, in seconds")]


class Step(Record, frozen=True):
    """One training step."""

    at_s: Annotated[Number, about("When it ended, in seconds since the phone's work began")]
    seconds: Annotated[Duration, about("How long it took, in seconds")]
    loss: Annotated[Number, about("Loss before the update, in nats a token")]
    phases: Annotated[Mapping[str, Amount], about("Time by phase, in seconds")]


class Placement(Record, frozen=True):
    """Threads and cores of an epoch, which phonograd-phone reports when it starts."""

    threads: Annotated[Positive, about("Threads that ran; at most one per allowed core")]
    pinned: Annotated[bool, about("Whether each thread stayed on one core")]
    cores: Annotated[
        tuple[Integer, ...],
        about("Numbers of the cores that the threads ran on; if pinned, in the order of the threads"),
    ]
    allowed_cores: Annotated[tuple[Integer, ...], about("Numbers of the cores that Android allowed the program to use")]


class Energy(Record, frozen=True):
    """What the whole phone drew from its battery during an epoch's steps."""

    joules: Annotated[Amount, about("Energy, in J: mean power times the epoch's seconds")]
    watts: Annotated[Amount, about("Mean power, in W")]
    basis: Annotated[
        Literal["current", "charge counter"],
        about("Computed from samples of the battery's current, or from its charge counter, which changes in steps"),
    ]


class Epoch(Record, frozen=True):
    """One epoch, trained by its own process on the phone."""

    warm_up: Annotated[bool, about("Whether it is a warm-up, which counts in no figure")]
    output_layer: Annotated[OutputLayer, about("The words that the softmax ran over")]
    started_at_s: Annotated[Number, about("When it started, in seconds since the phone's work began")]
    cooled_seconds: Annotated[Amount, about("Time waited for the phone to cool before it, in seconds")]
    cooling: Annotated[
        CoolingOutcome,
        about(
            "How that wait ended: not asked for; cool: as cool as at the beginning; settled: no longer cooling; limit: "
            "still cooling when the time was over; no sensor"
        ),
    ]
    load_seconds: Annotated[Amount, about("From the process's start to its first step, in seconds")]
    seconds: Annotated[Duration, about("Sum of its steps, in seconds: the epoch's time")]
    wall_seconds: Annotated[
        Amount, about("The whole process by the host's clock: loading, steps, writing, adb, in seconds")
    ]
    tokens: Annotated[Count, about("Tokens trained")]
    steps: Annotated[tuple[Step, ...], about("Its steps, in order")]
    loss_first: Annotated[Number, about("Loss of the first step, in nats a token")]
    loss_last: Annotated[Number, about("Loss of the last step, in nats a token")]
    peak_rss_bytes: Annotated[
        Count, about("Highest resident memory of the process (VmHWM of /proc/self/status), in bytes")
    ]
    kernels: Annotated[str, about("Instruction set of the kernels that ran")]
    placement: Annotated[Placement, about("Threads, and the cores they ran on")]
    energy: Annotated[
        Energy | None, about("Energy from the battery; null on external power or if the phone does not report it")
    ]
    throttled: Annotated[tuple[str, ...], about("Evidence of throttling, one line each; empty without any")]
    codecs: Annotated[
        tuple[CodecCost, ...],
        about("Size and encoding time of its update, by codec; measured after the last epoch of each output layer"),
    ]


class Sample(Record, frozen=True):
    """Clocks and temperatures at one moment."""

    at_s: Annotated[Number, about("Time of the sample, in seconds since the phone's work began")]
    frequencies_khz: Annotated[
        Mapping[CoreNumber, Count], about("Clock (scaling_cur_freq) by core number, in kHz"), BY_CORE
    ]
    caps_khz: Annotated[
        Mapping[CoreNumber, Count],
        about("Highest clock currently allowed (scaling_max_freq) by core number, in kHz"),
        BY_CORE,
    ]
    temperatures_c: Annotated[Mapping[str, Number], about("Temperature by sensor name, in °C")]
    battery_percent: Annotated[Count | None, about("Charge, in percent")]
    battery_temperature_c: Annotated[Number | None, about("Temperature of the battery, in °C")]
    thermal_status: Annotated[Count | None, about("Android's thermal status, 0 to 6 as in PhoneFacts")]
    power: Annotated[Power, about("The battery's current, voltage and charge")]

    @property
    def hottest_c(self) -> float | None:
        """The highest CPU temperature in °C, else the highest of all, else the battery's, else None."""
        hottest_core = cpu_temperature(self.temperatures_c)
        return self.battery_temperature_c if hottest_core is None else hottest_core


class SweepRun(Record, frozen=True):
    """One epoch of --sweep."""

    cores: Annotated[str, about("The choice of cores")]
    threads: Annotated[Positive, about("The number of threads")]
    epoch: Annotated[Epoch, about("The epoch, which counts in no other figure")]


class Failure(Record, frozen=True):
    """Why a phone's result is incomplete."""

    message: Annotated[str, about("One line: what was done, what was found, and the next step")]
    exit_code: Annotated[Count, about("The error's exit code")]


class PowerState(Record, frozen=True):
    """Screen, doze and battery saver at one moment; null if the phone does not report it."""

    screen_on: Annotated[bool | None, about("Whether it was awake, neither asleep nor dreaming")]
    dozing: Annotated[bool | None, about("Whether it was in deep or light doze, which defers background work")]
    battery_saver: Annotated[bool | None, about("Whether battery saver was on")]


class KeptAwake(Record, frozen=True):
    """What was done to keep a phone awake, by Android's names: settings, or `screen` and `doze`; undone at the end."""

    changed: Annotated[tuple[str, ...], about("What was changed")]
    refused: Annotated[tuple[str, ...], about("What Android did not let be changed")]


class PhoneResult(Record, frozen=True):
    """The result of one phone. After a failure, it has what was measured before."""

    facts: Annotated[PhoneFacts, about("Facts about the phone")]
    failure: Annotated[Failure | None, about("Why the result is incomplete; null if it is complete")]
    pushed: Annotated[Pushed | None, about("The files pushed; null if the phone failed earlier")]
    fixed_performance: Annotated[bool, about("Whether Android's fixed-performance mode was on")]
    power_before: Annotated[
        PowerState | None, about("Its power state when the work began; null if the phone failed earlier")
    ]
    power: Annotated[
        PowerState | None,
        about(
            "Its power state during the work: kept awake, unless `stay_awake` was false; "
            "null if the phone failed earlier"
        ),
    ]
    power_after: Annotated[
        PowerState | None, about("Its power state after the last epoch; null if the phone failed earlier")
    ]
    kept_awake: Annotated[KeptAwake | None, about("What was done to keep it awake; null if the phone failed earlier")]
    epochs: Annotated[tuple[Epoch, ...], about("Its epochs in order, including warm-ups")]
    samples: Annotated[tuple[Sample, ...], about("Clocks and temperatures during the run, in order")]
    sweep: Annotated[tuple[SweepRun, ...], about("The epochs of --sweep, in order")]

    @property
    def used_cores(self) -> tuple[int, ...]:
        """Numbers of the cores that any epoch ran on, in ascending order."""
        return tuple(sorted({core for epoch in self.epochs for core in epoch.placement.cores}))

    @property
    def codecs(self) -> tuple[CodecCost, ...]:
        """Size and encoding time of the updates."""
        return tuple(cost for epoch in self.epochs for cost in epoch.codecs)

    @property
    def output_layer(self) -> OutputLayer | None:
        """The output layer of the last epoch; None before the first."""
        return self.epochs[-1].output_layer if self.epochs else None

    def with_output_layer(self, kind: OutputLayerKind) -> "PhoneResult":
        """This result with only the epochs of one kind of output layer."""
        return replace(self, epochs=tuple(epoch for epoch in self.epochs if epoch.output_layer.kind == kind))

    @property
    def by_output_layer(self) -> tuple["PhoneResult", ...]:
        """A result for each kind of output layer, the full one first; this result if it has no epochs."""
        kinds = sorted({epoch.output_layer.kind for epoch in self.epochs})
        return tuple(map(self.with_output_layer, kinds)) or (self,)

    @property
    def timed(self) -> tuple[Epoch, ...]:
        """The epochs without warm-ups."""
        return tuple(epoch for epoch in self.epochs if not epoch.warm_up)


class Workload(Record, frozen=True):
    """What was trained."""

    manifest_sha256: Annotated[Sha256, about("SHA-256 of the artifacts' manifest.json, in hexadecimal")]
    model: Annotated[str, about("Description of the model")]
    parameters: Annotated[Count, about("Trainable parameters of the model")]
    minibatch: Annotated[Positive, about("Columns of a step")]
    bptt: Annotated[Positive, about("Tokens per column in a step")]
    tokens: Annotated[Count, about("Tokens per epoch")]
    text: Annotated[str, about("Description of the text")]


class PhoneBenchReport(Record, frozen=True):
    """The result of a run. `settings` are the run's."""

    created: Annotated[str, about("When the run began: ISO 8601, UTC")]
    phonograd_version: Annotated[str, about("Version of phonograd")]
    adb_version: Annotated[str, about("Version of adb")]
    binary_sha256: Annotated[Sha256, about("SHA-256 of the program that ran on the phones, in hexadecimal")]
    workload: Annotated[Workload, about("What was trained")]
    settings: Annotated[Mapping[str, Any], about("The run's settings by name; they may change from version to version")]
    phones: Annotated[tuple[PhoneResult, ...], about("Each phone's result")]
