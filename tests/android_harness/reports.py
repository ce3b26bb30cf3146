"""Phone bench reports for tests: every number here is INVENTED, of a plausible size, and measured on no phone."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from phonograd.android_harness.phones.facts import Battery, Cluster, Core, PhoneFacts, Power
from phonograd.android_harness.result import (
    CodecCost,
    Energy,
    Epoch,
    Failure,
    KeptAwake,
    OutputLayer,
    PhoneBenchReport,
    PhoneResult,
    Placement,
    PowerState,
    Pushed,
    PushedFile,
    Sample,
    Step,
    SweepRun,
    Workload,
)

PAPERS = Workload(
    manifest_sha256="ab" * 32,
    model="2-layer LSTM of 650, embedding 650, 30,000 words",
    parameters=45_800_400,
    minibatch=10,
    bptt=20,
    tokens=3895,
    text="3,895 tokens, half of them the user's",
)
SMALL = replace(PAPERS, model="1-layer LSTM of 32, 500 words", parameters=40_500, tokens=1000)
SETTINGS = {
    "epochs": 3, "warm_up": 1, "threads": None, "cores": "big", "pin": True, "precision": "fp32",
    "output_sample": None, "full_softmax": True,
    "cooldown_seconds": 180.0, "fixed_performance": True, "keep": False, "text": {"user": None, "seed": 0},
}  # fmt: skip
CODEC_BYTES = {
    "full-f32": 183_205_736, "rows-f32": 108_512_004, "delta-bf16": 54_301_220, "delta-int8": 27_420_120,
    "rot-q4": 13_820_400, "rot-q2": 7_020_432, "rot-q1": 3_602_100, "top-rows": 1_104_880,
}  # fmt: skip
CODECS = tuple(CodecCost(name, nbytes, 0.4 + nbytes / 4e8) for name, nbytes in CODEC_BYTES.items())
# What a phone may call itself.
HOSTILE = "<script>alert(1)</script> [/bold] :smile: {{7*7}} $\\frac$ \x00\x1b[31m\n\u202eevil \ud800 " + "W" * 300
FULL, SAMPLED = OutputLayer("full", 30_000), OutputLayer("sampled", 3_495)
PHASES = {"embedding": 0.01, "lstm": 0.24, "output layer": 0.61, "update": 0.14}


def report(*phones: PhoneResult, workload: Workload = PAPERS, **settings: object) -> PhoneBenchReport:
    """A report of these phones; `settings` replace those of the command."""
    return PhoneBenchReport(
        created="2026-02-03T04:05:06Z",
        phonograd_version="0.1.0",
        adb_version="36.0.0-13206524",
        binary_sha256="cd" * 32,
        workload=workload,
        settings={**SETTINGS, **settings},
        phones=phones,
    )


def phone(
    serial: str = "R5CT10ABCDE",
    model: str = "SM-A546B",
    seed: int = 0,
    codecs: Sequence[CodecCost] = CODECS,
    **options: Any,
) -> PhoneResult:
    """A phone that finished. Options: those of _run, and PhoneResult's fields."""
    timing = {
        name: options.pop(name) for name in ("epochs", "steps", "step_seconds", "noise", "hot") if name in options
    }
    fields = {
        "facts": facts(serial, model),
        "failure": None,
        "pushed": push_result(),
        "fixed_performance": True,
        "power_before": PowerState(False, False, True),
        "power": PowerState(True, False, False),
        "power_after": PowerState(True, False, False),
        "kept_awake": KeptAwake(("screen_off_timeout", "low_power"), ()),
        "sweep": (),
        **_run(seed, **timing),
    }
    return with_codecs(PhoneResult(**{**fields, **options}), codecs)


def with_codecs(one: PhoneResult, codecs: Sequence[CodecCost]) -> PhoneResult:
    """The phone, whose last epoch's update has these costs."""
    if not one.epochs:
        return one
    return replace(one, epochs=(*one.epochs[:-1], replace(one.epochs[-1], codecs=tuple(codecs))))


def both_layers(**options: Any) -> PhoneResult:
    """A phone that timed both output layers: the sampled one is 2.5 times faster, in half the memory and bytes."""
    one = phone(**options)
    epochs = [
        layer
        for epoch in one.epochs
        for layer in (
            epoch,
            replace(
                epoch,
                output_layer=SAMPLED,
                seconds=epoch.seconds / 2.5,
                peak_rss_bytes=epoch.peak_rss_bytes // 2,
                codecs=tuple(replace(cost, nbytes=cost.nbytes // 2) for cost in epoch.codecs),
            ),
        )
    ]
    return replace(one, epochs=tuple(epochs))


def swept(**options: Any) -> PhoneResult:
    """A phone that ran a sweep: more threads are faster, little cores slower."""
    one = phone(**options)
    runs = []
    for cores, threads, factor in (("big", 1, 3.1), ("big", 4, 1.0), ("little", 4, 2.2), ("all", 8, 1.3)):
        epoch = one.epochs[-1]
        numbers = {"big": (4, 5, 6, 7), "little": (0, 1, 2, 3), "all": (4, 5, 6, 7, 0, 1, 2, 3)}[cores][:threads]
        place = Placement(threads, True, numbers, tuple(range(8)))
        seconds = epoch.seconds * factor
        runs.append(SweepRun(cores, threads, replace(epoch, seconds=seconds, placement=place)))
    return replace(one, sweep=tuple(runs))


def lost_phone(serial: str = "0A1B2C3D", model: str | None = "Pixel 4a", **options: Any) -> PhoneResult:
    """A phone that was lost before its first epoch."""
    failure = Failure(f"{serial}: disconnected while weights.safetensors was pushed; plug it in again and rerun", 21)
    nothing = {"failure": failure, "pushed": None, "epochs": 0, "samples": (), "fixed_performance": False}
    nothing |= {"power_before": None, "power": None}
    return phone(serial, model or "", **{**nothing, **options})


def quiet_facts(serial: str = "emulator-5554") -> PhoneFacts:
    """A phone that says nothing of itself."""
    unknown = dict.fromkeys(PhoneFacts.__struct_fields__)
    nothing = {"serial": serial, "cores": (), "clusters": (), "battery": Battery(None, None, None)}
    return PhoneFacts(**{**unknown, **nothing})  # type: ignore[arg-type]


def facts(serial: str, model: str) -> PhoneFacts:
    """Four little and four big cores."""
    little = [Core(number, 2_002_000, 324, "Cortex-A55") for number in range(4)]
    big = [Core(number, 2_400_000, 1024, "Cortex-A78") for number in range(4, 8)]
    return PhoneFacts(
        serial=serial,
        manufacturer="samsung",
        model=model,
        soc="s5e8835",
        android="14",
        sdk=34,
        abi="arm64-v8a",
        fingerprint=f"samsung/{model}/a54x:14/UP1A.231005.007/A546BXXU:user/release-keys",
        cores=(*little, *big),
        clusters=(
            Cluster((0, 1, 2, 3), 2_002_000, "Cortex-A55"),
            Cluster((4, 5, 6, 7), 2_400_000, "Cortex-A78"),
        ),
        memory_bytes=7_800_000_000,
        memory_available_bytes=3_100_000_000,
        free_bytes=88_000_000_000,
        battery=Battery(81, 29.5, True),
        thermal_status=0,
        temperature_c=31.2,
    )


def push_result() -> Pushed:
    """The weights were there already."""
    files = (
        PushedFile("phonograd-phone", 1_127_608, "11" * 32, True),
        PushedFile("artifacts/training_model.onnx", 9_120, "22" * 32, True),
        PushedFile("artifacts/weights.safetensors", 183_205_736, "33" * 32, False),
    )
    return Pushed(files, 1_136_728, 0.31)


@functools.cache
def _run(
    seed: int, epochs: int = 3, steps: int = 20, step_seconds: float = 1.55, noise: float = 0.01, hot: bool = False
) -> Mapping[str, Any]:
    """Epochs one after another, the first a warm-up, and a sample every 3 seconds; hot: the last epoch is throttled."""
    random = np.random.default_rng(seed)
    done: list[Epoch] = []
    samples: list[Sample] = []
    at = 0.0
    for number in range(epochs + 1 if epochs else 0):
        slowed = 1.6 if hot and number == epochs else 1.0
        speed = step_seconds * math.exp(random.normal(0, noise)) * slowed
        epoch = _epoch(at + 20.0, steps, speed, random, warm_up=number == 0, throttled=slowed > 1)
        ended = epoch.started_at_s + epoch.wall_seconds
        samples += [_sample(second, number, slowed, random) for second in np.arange(at, ended, 3.0).tolist()]
        done.append(epoch)
        at = ended
    return {"epochs": tuple(done), "samples": tuple(samples)}


def _epoch(
    started: float, steps: int, speed: float, random: np.random.Generator, warm_up: bool, throttled: bool
) -> Epoch:
    at = started + 0.6
    found: list[Step] = []
    for number in range(steps):
        seconds = speed * (1.9 if number == 0 else 1.0) * math.exp(random.normal(0, 0.02))
        at += seconds
        phases = {name: share * seconds for name, share in PHASES.items()}
        found.append(Step(round(at, 3), seconds, 6.91 - 0.06 * number, phases))
    seconds = math.fsum(step.seconds for step in found)
    return Epoch(
        warm_up=warm_up,
        output_layer=FULL,
        started_at_s=started,
        cooled_seconds=20.0,
        cooling="cool",
        load_seconds=0.6,
        seconds=seconds,
        wall_seconds=seconds + 1.1,
        tokens=3895,
        steps=tuple(found),
        loss_first=found[0].loss,
        loss_last=found[-1].loss,
        peak_rss_bytes=242_000_000 + 4096 * int(random.integers(0, 100)),
        kernels="neon",
        placement=Placement(4, True, (4, 5, 6, 7), tuple(range(8))),
        energy=Energy(3.1 * seconds, 3.1, "current"),
        throttled=("cores 4-7 capped at 1,400 of 2,400 MHz", "thermal status 2 (moderate)") if throttled else (),
        codecs=(),
    )


def _sample(at: float, epoch: int, slowed: float, random: np.random.Generator) -> Sample:
    warmth = 31 + 4 * epoch + 6 * (slowed > 1) + random.normal(0, 0.3)
    cap = 1_400_000 if slowed > 1 else 2_400_000
    return Sample(
        at_s=at,
        frequencies_khz={core: 2_002_000 if core < 4 else cap for core in range(8)},
        caps_khz={core: 2_002_000 if core < 4 else cap for core in range(8)},
        temperatures_c={"cpu": warmth + 14, "battery": 29 + epoch, "skin": warmth},
        battery_percent=81 - epoch,
        battery_temperature_c=29.0 + epoch,
        thermal_status=2 if slowed > 1 else 0,
        power=Power(-750_000, 4_133_000, 3_600_000 - int(300 * at), False),
    )


def many(count: int) -> Sequence[PhoneResult]:
    """`count` phones of different speed, every fourth hot and every seventh lost."""
    makers = ("SM-A546B", "Pixel 8", "moto g54 5G", "Redmi Note 12 Pro", "CPH2449", "SM-A546B")
    phones = []
    for number in range(count):
        serial, model = f"SERIAL{number:05}", makers[number % len(makers)]
        if number % 7 == 6:
            phones.append(lost_phone(serial, model))
        else:
            phones.append(phone(serial, model, number, step_seconds=0.8 + 0.37 * (number % 9), hot=number % 4 == 2))
    return phones
