"""The benchmark of capacity as tables for people."""

from collections.abc import Iterator

from phonograd.bench.capacity.bench import CapacityBench
from phonograd.bench.capacity.plan import GB
from phonograd.bench.markdown import MB


def capacity_tables(result: CapacityBench) -> list[tuple[str, list[dict[str, object]]]]:
    """Titled tables: rates, runs, their requests, plans."""
    return [
        ("One core's work (commits: the disk's)", [*_rates(result)]),
        ("Phones through one server", [*_runs(result)]),
        ("Their requests", [*_requests(result)]),
        (f"A service of {result.preset}", [*_plans(result)]),
    ]


def _rates(result: CapacityBench) -> Iterator[dict[str, object]]:
    for one in result.rates:
        yield {"work": one.name, "unit": one.unit, "ms each": one.seconds * 1e3, "a second": one.per_second}


def _runs(result: CapacityBench) -> Iterator[dict[str, object]]:
    for one in result.runs:
        yield {
            "model": one.model,
            "phones": one.phones,
            "update, MB": one.update_bytes / MB,
            "link, MB": one.link_bytes / MB,
            "phones/s": one.phones_per_second,
            "CPU ms a phone": one.cpu_per_phone * 1e3,
            "memory idle, MB": one.idle_rss_bytes / MB,
            "after round 1": one.round_rss_bytes[0] / MB,
            "after the last": one.round_rss_bytes[-1] / MB,
            "peak": one.peak_rss_bytes / MB,
        }


def _requests(result: CapacityBench) -> Iterator[dict[str, object]]:
    for run in result.runs:
        for one in run.requests:
            yield {
                "model": run.model,
                "request": one.kind,
                "number": one.count,
                "median, ms": one.median * 1e3,
                "p99": one.p99 * 1e3,
                "slowest": one.slowest * 1e3,
            }


def _plans(result: CapacityBench) -> Iterator[dict[str, object]]:
    for one in result.plans:
        yield {
            "phones a day": one.phones,
            "phones/s at the peak": one.peak_phones_per_second,
            "services": one.services,
            "cores": one.cores,
            "memory, GB": one.memory_bytes / GB,
            "disk, GB": one.disk_bytes / GB,
            "object store, GB": one.store_bytes / GB,
            "Gbit/s up": one.gigabits_up,
            "Gbit/s down": one.gigabits_down,
            "$ a month": one.dollars_a_month,
        }
