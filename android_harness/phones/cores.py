"""A phone's cores, grouped into clusters."""

import re
from collections.abc import Mapping, Sequence

from phonograd.android_harness.phones.cpu_parts import part_name, speed_rank
from phonograd.android_harness.phones.facts import Cluster, Core

# No phone has longer numbers, and Python's int() refuses very long ones.
_NUMBER = "([0-9]{1,12})"
_PROCESSOR = re.compile(rf"processor\s*:\s*{_NUMBER}\s*")
_FIELD = re.compile(r"CPU (implementer|part)\s*:\s*0x([0-9a-fA-F]{1,8})\s*")
_CORE = re.compile(rf"cpu{_NUMBER} max_khz={_NUMBER}? capacity={_NUMBER}?\s*")


def parse_cpuinfo(text: str) -> dict[int, str | None]:
    """Core number -> name of its part, from /proc/cpuinfo; None if it has no part, as with old kernels."""
    parts: dict[int, str | None] = {}
    number = implementer = None
    for line in text.splitlines():
        processor, field = _PROCESSOR.fullmatch(line), _FIELD.fullmatch(line)
        if processor is not None:
            number = int(processor[1])
            parts[number] = None
        elif field is not None and field[1] == "implementer":
            implementer = int(field[2], 16)
        elif field is not None and number is not None:
            parts[number] = part_name(implementer or 0, int(field[2], 16))
    return parts


def parse_cores(listed: str, cpuinfo: str) -> tuple[Core, ...]:
    """All cores, from /proc/cpuinfo and lines such as `cpu0 max_khz=1800000 capacity=250`; numbers may be missing.

    Kernels before 3.19 name one part for all cores; it is used if all cores have the same speed.
    """
    parts = parse_cpuinfo(cpuinfo)
    speeds: dict[int, tuple[int | None, int | None]] = {}
    for line in listed.splitlines():
        match = _CORE.fullmatch(line)
        if match is not None:
            speeds[int(match[1])] = (_positive(match[2]), _positive(match[3]))
    known = {part for part in parts.values() if part is not None}
    if len(known) == 1 and None in parts.values() and len(set(speeds.values())) <= 1:
        parts = dict.fromkeys(parts, known.pop())
    elif None in parts.values():
        parts = dict.fromkeys(parts, None)
    numbers = sorted(set(parts) | set(speeds))
    return tuple(Core(number, *speeds.get(number, (None, None)), parts.get(number)) for number in numbers)


def group_clusters(cores: Sequence[Core]) -> tuple[Cluster, ...]:
    """Group cores of one kind, slowest first: by capacity, else by maximum frequency, else by their parts' names.

    Capacity comes first, as a little core with a high clock is still little; it is skipped if all cores have the same.
    A core without the value (it is offline) joins the cores with its part, else the slowest.
    """
    keys: tuple[Mapping[int, int], ...] = (
        {core.number: core.capacity for core in cores if core.capacity is not None},
        {core.number: core.max_khz for core in cores if core.max_khz is not None},
        {core.number: speed_rank(core.part) for core in cores if core.part is not None},
    )
    speeds = next((key for key in keys if len(set(key.values())) > 1), {})
    slowest = min(speeds.values(), default=0)
    of_part: dict[str | None, int] = {
        core.part: speeds[core.number] for core in cores if core.part is not None and core.number in speeds
    }
    members: dict[int, list[Core]] = {}
    for core in cores:
        members.setdefault(speeds.get(core.number, of_part.get(core.part, slowest)), []).append(core)
    return tuple(_cluster(members[level]) for level in sorted(members))


def _cluster(cores: Sequence[Core]) -> Cluster:
    frequencies = [core.max_khz for core in cores if core.max_khz is not None]
    parts = dict.fromkeys(core.part for core in cores if core.part is not None)
    return Cluster(
        tuple(core.number for core in cores),
        max(frequencies, default=None),
        "/".join(parts) or None,
    )


def describe_cores(clusters: Sequence[Cluster]) -> str:
    """Describe cores like `4x Cortex-A55 1.8 GHz + 4x Cortex-A76 2.4 GHz`; "" without clusters."""
    return " + ".join(_cluster_line(cluster) for cluster in clusters)


def _cluster_line(cluster: Cluster) -> str:
    frequency = "" if cluster.max_khz is None else f" {cluster.max_khz / 1e6:.1f} GHz"
    return f"{len(cluster.cores)}x {cluster.part or 'core'}{frequency}"


def _positive(digits: str | None) -> int | None:
    return int(digits) or None if digits else None
