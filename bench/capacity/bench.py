"""The whole benchmark of capacity: rates, rounds of many phones, and plans made of them."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from phonograd.bench.capacity.parts import Part, measure_parts
from phonograd.bench.capacity.plan import GB, limits_of, plan_for
from phonograd.bench.capacity.rates import (
    Rate,
    measure_commits,
    measure_reading,
    measure_receiving,
    measure_sending,
    measure_update,
)
from phonograd.bench.capacity.rounds_of_phones import UNLIMITED, PhonesRun, run_phones
from phonograd.bench.capacity.settings import CapacityConfig
from phonograd.bench.contestants import BenchError, Say
from phonograd.bench.environment import version_of
from phonograd.bench.markdown import MB, MS, Column, Row, Table, figure, text
from phonograd.bench.measuring import in_fresh_process
from phonograd.bench.results import Document, result_of
from phonograd.bench.synthetic import random_weights, write_synthetic_artifacts, write_synthetic_updates
from phonograd.bench.uploads.bodies import BodyMaker
from phonograd.bench.uploads.receivers import phonograd_serve
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.export.presets import preset_named

SCHEMA_VERSION = 1
TOKENS = 4000
CODEC, WHOLE = "top-rows", "full-f32"
DIFFERENT_UPDATES = 8  # so that a round moves more rows than a link brings
RUNS, WHOLE_RUNS, COMMITS, UPDATES, READINGS = 50, 5, 500, 100_000, 3


def bench_capacity(config: CapacityConfig, say: Say = str) -> dict[str, Any]:
    """Measure all in a temporary folder. Raises BenchError, ArtifactsError, StorageError.

    The result has `runs` of the small model, then of the service's, on which the plans are.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _check_space(folder, config)
        rates = _rates(folder, config, say)
        runs = tuple(
            _run(folder, preset, phones, config, say)
            for preset, phones in ((config.small, config.small_phones), (config.preset, config.phones))
        )
        parts = {preset: _parts(folder, preset, config, say) for preset in (config.small, config.preset)}
    limits = limits_of(runs[-1], parts[config.preset], rates, config.demand)
    return result_of(
        "capacity",
        SCHEMA_VERSION,
        versions=version_of("phonograd", "uvicorn", "starlette", "h11", "SQLAlchemy"),
        preset=config.preset,
        codec=CODEC,
        rates=rates,
        runs=runs,
        parts=[{"model": preset, **asdict(part)} for preset, counted in parts.items() for part in counted],
        limits=limits,
        demand=config.demand,
        plans=[plan_for(phones, runs[-1], limits, config.demand) for phones in config.phones_a_day],
    )


def _check_space(folder: Path, config: CapacityConfig) -> None:
    """Raise BenchError if the disk has no room for the models and updates, whole ones in the worst case."""
    model = 4 * preset_named(config.preset).model.parameters
    needed, free = 12 * model + config.phones * model // 100, shutil.disk_usage(folder).free
    if free < needed:
        raise BenchError(f"bench: {folder}: {needed} bytes expected to be free, found {free}; set TMPDIR")


def _rates(folder: Path, config: CapacityConfig, say: Say) -> tuple[Rate, ...]:
    artifacts, updates = _material(folder, config.preset, say)
    whole = folder / WHOLE
    in_fresh_process(write_synthetic_updates, artifacts / WEIGHTS, {WHOLE: whole}, 0, TOKENS)
    say("checking and folding an update")
    folding = in_fresh_process(measure_update, artifacts, updates[0], RUNS)
    say("commits of the ledger")
    commits = [in_fresh_process(measure_commits, folder / "ledger.sqlite", COMMITS)]
    if config.ledger is not None:
        commits.append(in_fresh_process(measure_commits, config.ledger, COMMITS))
    reading = in_fresh_process(measure_reading, folder / "long.sqlite", UPDATES, READINGS)
    say("receiving and sending")
    with phonograd_serve(artifacts, folder / "rates", 2, *UNLIMITED) as server:
        receiving = measure_receiving(server, BodyMaker(whole), WHOLE_RUNS)
        sending = measure_sending(server, (artifacts / WEIGHTS).stat().st_size, WHOLE_RUNS)
    shutil.rmtree(folder / "rates")
    whole.unlink()
    return receiving, folding, *commits, reading, sending


def _run(folder: Path, preset: str, phones: int, config: CapacityConfig, say: Say) -> PhonesRun:
    artifacts, updates = _material(folder, preset, say)
    state = folder / f"{preset}-state"
    run = run_phones(artifacts, updates, state, preset, phones, config.rounds, config.at_once, say)
    shutil.rmtree(state)
    return run


def _parts(folder: Path, preset: str, config: CapacityConfig, say: Say) -> tuple[Part, ...]:
    artifacts, updates = _material(folder, preset, say)
    state = folder / f"{preset}-parts"
    parts = measure_parts(artifacts, updates, state, preset, config.profiled, 2, config.at_once, say)
    shutil.rmtree(state)
    return parts


def _material(folder: Path, preset: str, say: Say) -> tuple[Path, list[Path]]:
    artifacts, updates = folder / preset, [folder / f"{preset}-{CODEC}-{number}" for number in range(DIFFERENT_UPDATES)]
    if not artifacts.exists():
        say(f"making artifacts and updates of {preset}")
        in_fresh_process(_make, artifacts, updates, preset_named(preset).model)
    return artifacts, updates


def _make(artifacts: Path, updates: Sequence[Path], model: LanguageModelConfig) -> None:
    write_synthetic_artifacts(artifacts, model, random_weights(model, 0))
    for seed, path in enumerate(updates):
        write_synthetic_updates(artifacts / WEIGHTS, {CODEC: path}, seed, TOKENS)


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results."""
    demand, prices, last = document["demand"], document["demand"]["prices"], document["runs"][-1]
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    yield f"Capacity: {document['preset']}, updates by {document['codec']}"
    yield (
        f"{versions}. What a server's work costs in time of one core, alone; of the ledger's, which wait for the "
        "disk, the time itself. Decoding, checking and folding is of one update of the service's model. /metrics reads "
        "each update of the open round, and those of a closed one once."
    )
    columns = {
        "work": text("name"),
        "unit": text("unit"),
        "ms each": figure("seconds", ".3g", MS),
        "a second": Column(lambda one: 1 / one["seconds"] if one["seconds"] else None, ",.0f"),
    }
    yield Table("One core's work (commits: the disk's)", columns, document["rates"])
    yield (
        "Phones that take part in rounds of a real server, over loopback and from the same cores, each with its own "
        f"connection, {last['at_once']} at a time: GET the round, GET the link from its model to the round's (none in "
        "round 1), POST the update. The server checks and folds each, and publishes by top-rows."
    )

    def per_phone(key: str, form: str, unit: float = 1) -> Column:
        return Column(lambda run: run[key] / run["phones"] / unit, form)

    columns = {
        "model": text("model"),
        "phones": figure("phones", ","),
        "rounds": figure("rounds", "d"),
        "update, MB": figure("update_bytes", ".3f", MB),
        "link, MB": figure("link_bytes", ".3f", MB),
        "phones/s": Column(lambda run: run["phones"] / run["seconds"], ".1f"),
        "CPU ms a phone": per_phone("cpu_seconds", ".1f", MS),
        "ledger, bytes a phone": per_phone("ledger_bytes", ",.0f"),
        "memory idle, MB": figure("idle_rss_bytes", ".0f", MB),
        "after each round": Column(lambda run: ", ".join(f"{n / MB:.0f}" for n in run["round_rss_bytes"]), ">"),
        "peak": figure("peak_rss_bytes", ".0f", MB),
    }
    yield Table("Phones through one server", columns, document["runs"])
    yield "Milliseconds of their requests. The last update of a round waits for the next model."
    columns = {
        "model": text("model"),
        "request": text("kind"),
        "number": figure("count", ","),
        **{name: figure(name, ".0f", MS) for name in ("median", "p99", "slowest")},
    }
    requests = [{"model": run["model"], **one} for run in document["runs"] for one in run["requests"]]
    yield Table("Milliseconds of their requests", columns, requests)
    yield from _where_time_goes(document["parts"])
    limit = document["limits"][0]
    yield (
        f"What one server of {last['model']} could take if only this were in its way, by what was measured above; "
        f"its network has {demand['gigabits']:g} Gbit/s. The first line is its limit: a service has as many "
        f"servers as that asks for at a load of {demand['load']:.0%}."
    )
    columns = {"limit": text("name"), "phones/s": figure("phones_per_second", ",.0f")}
    yield Table("What limits a server", columns, document["limits"])
    yield (
        f"What a service of {last['model']} needs. Each phone takes part once a day, in one of "
        f"the day's rounds ({demand['rounds_a_day']}); the busiest hour has {demand['peak']:g} times the mean rate; a "
        f"server is planned for {demand['load']:.0%} of the {limit['phones_per_second']:.0f} phones/s and "
        f"{last['cpu_seconds'] / last['phones'] * 1e3:.0f} ms of CPU time a phone that were measured above. A service "
        "is a server with a ledger and a model of its own, for a region or a language. "
        f"Memory is the peak above, of each. Disk: the ledger's rows of {demand['ledger_days']} days, and "
        f"{demand['models_kept'] + 1} models of each. Object store: these models, and the updates of a round. Bytes "
        "down: the link above for each round since the last, or the model if that is smaller. Prices, as examples: "
        f"${prices['core']:g} a core and ${prices['memory']:g} a GB of memory an hour, ${prices['disk']:g} a GB of "
        f"disk and ${prices['store']:g} a GB of store a month, ${prices['sent']:g} a GB sent, ${prices['puts']:g} a "
        "million objects written. Databases, load balancers and people are not in it."
    )

    def peak(plan: Row) -> str:
        rate = plan["peak_phones_per_second"]
        return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"

    columns = {
        "phones a day": figure("phones", ","),
        "phones/s at the peak": Column(peak, ">"),
        "services": figure("services", ","),
        "cores": figure("cores", ",.0f"),
        "memory, GB": figure("memory_bytes", ",.1f", GB),
        "disk, GB": figure("disk_bytes", ",.1f", GB),
        "object store, GB": figure("store_bytes", ",.1f", GB),
        "Gbit/s up": figure("gigabits_up", ".3g"),
        "Gbit/s down": figure("gigabits_down", ".3g"),
        "$ a month": figure("dollars_a_month", ",.0f"),
    }
    yield Table(f"A service of {document['preset']}", columns, document["plans"])


def _where_time_goes(parts: Sequence[Row]) -> Iterator[str | Table]:
    yield (
        "Where the server's time for a phone goes, in rounds as above of a server that counts it: CPU time of the "
        "threads, and the time itself with what a part waits for, the disk, the interpreter's lock or its turn."
    )
    columns = {
        "model": text("model"),
        "part": text("name"),
        "CPU, ms a phone": figure("cpu", ".2f", MS),
        "ms a phone": Column(lambda part: part["wall"] / MS or None, ".2f"),
    }
    yield Table("Where a phone's time goes", columns, parts)
