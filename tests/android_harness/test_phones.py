"""Facts out of what phones answer, and the rules of readiness."""

import random

import pytest
from msgspec.structs import replace

from phonograd.android_harness.phones.cores import describe_cores, group_clusters, parse_cores
from phonograd.android_harness.phones.cpu_parts import part_name
from phonograd.android_harness.phones.facts import Battery, Cluster, Core, PhoneFacts, Power
from phonograd.android_harness.phones.power import (
    cpu_temperature,
    parse_battery,
    parse_hal_temperatures,
    parse_power,
    parse_zones,
)
from phonograd.android_harness.phones.query import PROPERTIES, parse_facts
from phonograd.android_harness.phones.readiness import Readiness
from tests.android_harness.answers import GALAXY_S7, MEDIATEK, OLD_REFUSING, PIXEL_6A

EMPTY = parse_facts("S", "")


def test_a_phone_of_three_kinds_of_cores() -> None:
    facts = parse_facts("S", PIXEL_6A)
    assert facts.clusters == (
        Cluster((0, 1, 2, 3), 1803000, "Cortex-A55"),
        Cluster((4, 5), 2253000, "Cortex-A78"),
        Cluster((6, 7), 2802000, "Cortex-X1"),
    )
    assert describe_cores(facts.clusters) == "4x Cortex-A55 1.8 GHz + 2x Cortex-A78 2.3 GHz + 2x Cortex-X1 2.8 GHz"
    assert facts.cores[6] == Core(6, 2802000, 1024, "Cortex-X1")
    assert replace(facts, cores=(), clusters=()) == PhoneFacts(
        serial="S",
        manufacturer="Google",
        model="Pixel 6a",
        soc="Google Tensor",
        android="14",
        sdk=34,
        abi="arm64-v8a",
        fingerprint="google/bluejay/bluejay:14/UQ1A.240205.002/11224170:user/release-keys",
        cores=(),
        clusters=(),
        memory_bytes=5710444 * 1024,
        memory_available_bytes=2603364 * 1024,
        free_bytes=73823776 * 1024,
        battery=Battery(85, 29.1, True),
        thermal_status=1,
        temperature_c=41.0,
    )


def test_a_phone_without_capacities_and_with_cores_offline() -> None:
    facts = parse_facts("S", GALAXY_S7)
    assert describe_cores(facts.clusters) == "4x Cortex-A53 1.6 GHz + 4x Exynos M1 2.6 GHz"
    assert facts.clusters[1].cores == (4, 5, 6, 7)
    assert facts.soc == "exynos8890"
    assert facts.free_bytes == 11378708 * 1024
    assert facts.battery == Battery(12, 25.4, True)
    assert facts.thermal_status is None
    assert facts.temperature_c == 43


def test_a_phone_whose_capacities_are_all_alike() -> None:
    facts = parse_facts("S", MEDIATEK)
    assert [cluster.cores for cluster in facts.clusters] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert facts.soc == "Mediatek MT6895"
    assert facts.battery.percent == 100
    assert facts.thermal_status == 3
    assert facts.temperature_c == 52.1


def test_a_phone_that_denies_most_queries() -> None:
    facts = parse_facts("S", OLD_REFUSING)
    assert facts.clusters == (Cluster((0, 1, 2, 3), None, "Cortex-A53"),)
    assert describe_cores(facts.clusters) == "4x Cortex-A53"
    assert facts.soc == "msm8992"
    assert facts.sdk == 27
    assert (facts.memory_bytes, facts.free_bytes, facts.thermal_status, facts.temperature_c) == (None,) * 4
    assert facts.battery == Battery(None, None, None)
    assert Readiness(min_free_bytes=1).problem(facts) is None


@pytest.mark.parametrize("answer", ["", "garbage\n\0\x1b[31m", "phonograd-section", "phonograd-section x\n" * 3])
def test_an_answer_without_facts(answer: str) -> None:
    facts = parse_facts("S", answer)
    assert facts == EMPTY
    assert facts.cores == () and facts.clusters == () and facts.model is None
    assert describe_cores(facts.clusters) == ""


def test_one_part_for_cores_of_two_speeds_is_ignored() -> None:
    cpuinfo = "processor : 0\nprocessor : 1\nCPU implementer : 0x41\nCPU part : 0xd07\n"
    cores = parse_cores("cpu0 max_khz=1400000 capacity=\ncpu1 max_khz=2000000 capacity=", cpuinfo)
    assert [core.part for core in cores] == [None, None]
    assert describe_cores(group_clusters(cores)) == "1x core 1.4 GHz + 1x core 2.0 GHz"


def test_cores_grouped_by_part_alone() -> None:
    cpuinfo = "".join(
        f"processor : {number}\nCPU implementer : {implementer}\nCPU part : {part}\n\n"
        for number, (implementer, part) in enumerate(
            [("0x51", "0x804"), ("0x51", "0x805"), ("0x41", "0xd44"), ("0x51", "0x805")]
        )
    )
    clusters = group_clusters(parse_cores("", cpuinfo))
    assert describe_cores(clusters) == "2x Kryo 4xx Silver + 1x Kryo 4xx Gold + 1x Cortex-X1"
    assert [cluster.cores for cluster in clusters] == [(1, 3), (0,), (2,)]


def test_a_core_of_unknown_speed_and_part_is_among_the_slowest() -> None:
    cores = (Core(0, 1000, 300, None), Core(1, 2000, 1024, None), Core(2, None, None, None))
    assert [cluster.cores for cluster in group_clusters(cores)] == [(0, 2), (1,)]


def test_a_fast_little_core_is_little() -> None:
    cores = (Core(0, 2400000, 400, None), Core(1, 2000000, 1024, None))
    assert [cluster.cores for cluster in group_clusters(cores)] == [(0,), (1,)]


def test_parts_have_names_or_numbers() -> None:
    assert part_name(0x41, 0xD05) == "Cortex-A55"
    assert part_name(0x51, 0x001) == "Oryon"
    assert part_name(0x41, 0xFFF) == "0xfff"
    assert part_name(0x99, 0x001) == "0x001"


def test_a_models_control_characters_are_dropped() -> None:
    facts = parse_facts("S", f"\nphonograd-section properties\nro.product.model=a\x1b[31mb\x07{'c' * 500}\n")
    assert facts.model is not None and facts.model.startswith("a[31mbc") and len(facts.model) == 120


def test_impossible_temperatures_are_dropped() -> None:
    zones = "a -274000\nb 2147483647\nc 0\nd 35500\nd 36500\ne 42\nf x\n 7\n"
    assert parse_zones(zones) == {"d": 36.5, "e": 42.0}
    assert parse_hal_temperatures("Temperature{mValue=NaN, mType=0, mName=CPU0, mStatus=0}") == {}
    assert cpu_temperature({"battery": 30.0, "skin": 31.0}) == 31.0
    assert cpu_temperature({"battery": 60.0, "cpu-0-0": 31.0}) == 31.0
    assert cpu_temperature({}) is None
    assert parse_battery("  level: 50\n  temperature: -9999\n") == Battery(50, None, None)


def test_what_a_phone_does_not_know_is_unknown() -> None:
    """A box without a battery, a thermal service without a HAL: Android prints zeros."""
    box = PIXEL_6A.replace("present: true", "present: false").replace("level: 85", "level: 0")
    box = box.replace("Thermal Status: 1", "Thermal Status: 0").replace("HAL Ready: true", "HAL Ready: false")
    facts = parse_facts("S", box)
    assert (facts.battery, facts.thermal_status) == (Battery(None, None, True), None)
    assert Readiness().problem(facts) is None
    assert parse_power([], "  present: false\n  USB powered: true\n  Charge counter: 0\n  voltage: 5\n") == Power(
        None, None, None, True
    )


KEYS = ["level", "scale", "temperature", "USB powered", "Thermal Status", "MemTotal", "CPU part", *PROPERTIES]
VALUES = [str(10**30), "-1", "", "true", "0xd05", "9" * 5000, "\ud800é\0", "cpu7 max_khz= capacity=9", "2 kB"]
SECTIONS = ["properties", "cpuinfo", "cores", "meminfo", "df", "zones", "battery", "thermal"]


def test_no_answer_makes_the_facts_raise() -> None:
    draw = random.Random(1)
    for _ in range(300):
        lines = [draw.choice(KEYS) + draw.choice([": ", "=", " "]) + draw.choice(VALUES) for _ in range(20)]
        value = draw.choice(VALUES)
        lines += [
            f"cpu{draw.randrange(9)} max_khz={value} capacity={value}",
            f"processor : {value}",
            f"MemTotal: {value} kB",
        ]
        lines += [f"phonograd-section {name}" for name in SECTIONS]
        draw.shuffle(lines)
        start, stop = sorted(draw.sample(range(len(PIXEL_6A)), 2))
        for answer in ("\n".join(["", *lines]), PIXEL_6A[:start] + draw.choice(VALUES) + PIXEL_6A[stop:]):
            facts = parse_facts("S", answer)
            assert facts.battery.percent is None or 0 <= facts.battery.percent <= 100
            clustered = sorted(number for cluster in facts.clusters for number in cluster.cores)
            assert clustered == [core.number for core in facts.cores]
            Readiness(min_free_bytes=1).problem(facts)


READY = parse_facts("S", PIXEL_6A)


@pytest.mark.parametrize(
    ("change", "reason", "cure"),
    [
        ({"abi": "armeabi-v7a"}, "it runs armeabi-v7a programs; arm64-v8a is needed", "use a 64-bit Arm phone"),
        (
            {"sdk": 25, "android": "7.1"},
            "it has Android 7.1 (API level 25); level 26 is needed",
            "update it, or use a phone with Android 8 or later",
        ),
        (
            {"free_bytes": 99_000_000},
            "it has 99 MB of free space; 100 MB is needed",
            "free space on it (Settings, Storage)",
        ),
        (
            {"battery": Battery(19, 30.0, True)},
            "its battery is at 19 %; 20 % is needed, even on a charger",
            "charge it first",
        ),
        ({"thermal_status": 2}, "it is hot: thermal status moderate, expected light or less", "let it cool down"),
    ],
)
def test_each_rule_of_readiness(change: dict[str, object], reason: str, cure: str) -> None:
    rules = Readiness(min_free_bytes=100_000_000)
    assert rules.problem(READY) is None
    problem = rules.problem(replace(READY, **change))  # type: ignore[arg-type]
    assert problem is not None
    assert (problem.reason, problem.cure) == (reason, cure)


def test_limits_are_inclusive_and_unknown_values_pass() -> None:
    edge = replace(READY, battery=Battery(20, None, None), thermal_status=1, sdk=26, free_bytes=5)
    assert Readiness(min_free_bytes=5).problem(edge) is None
    assert Readiness(min_free_bytes=5).problem(EMPTY) is None


DISCHARGING = "AC powered: false\n  USB powered: false\n  Charge counter: 3672000\n  voltage: 4243\n  status: 3\n"


@pytest.mark.parametrize(
    ("files", "said", "power"),
    [
        ("-512000 4100000 3000000 Discharging", DISCHARGING, Power(-512_000, 4_100_000, 3_000_000, False)),
        ("- - - -", DISCHARGING, Power(None, 4_243_000, 3_672_000, False)),
        ("512 4100000 - Charging", "", Power(512, 4_100_000, None, True)),
        ("- - - Not charging", "", Power(None, None, None, True)),
        ("- - - Discharging", "USB powered: true", Power(None, None, None, True)),
        ("x 1e9 99999999999999 Unknown", "voltage: 0", Power(None, None, None, None)),
        ("", "garbage", Power(None, None, None, None)),
    ],
)
def test_a_batterys_power_is_read_from_files_and_the_service(files: str, said: str, power: Power) -> None:
    assert parse_power(files.split(), said) == power
