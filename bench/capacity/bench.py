"""The whole benchmark of capacity: rates, rounds of many phones, and plans made of them."""

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.bench.capacity.plan import Plan, plan_for
from phonograd.bench.capacity.rates import (
    Rate,
    measure_commits,
    measure_reading,
    measure_receiving,
    measure_sending,
    measure_update,
)
from phonograd.bench.capacity.rounds_of_phones import UNLIMITED, PhonesRun, run_phones
from phonograd.bench.capacity.settings import CapacityConfig, Demand
from phonograd.bench.contestants import BenchError
from phonograd.bench.environment import Environment, this_environment, version_of
from phonograd.bench.measuring import in_fresh_process
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

Say = Callable[[str], object]


@dataclass(frozen=True)
class CapacityBench:
    """The whole benchmark. runs: of the small model, then of the service's, on which the plans are."""

    kind: str
    schema_version: int
    environment: Environment
    versions: Mapping[str, str]
    preset: str
    codec: str
    rates: tuple[Rate, ...]
    runs: tuple[PhonesRun, ...]
    demand: Demand
    plans: tuple[Plan, ...]


def bench_capacity(config: CapacityConfig, say: Say = str) -> CapacityBench:
    """Measure all in a temporary folder. Raises BenchError, ArtifactsError, StorageError."""
    if min(config.phones, config.small_phones) < config.rounds:
        raise BenchError(
            f"bench: at least {config.rounds} phones expected, one for each round, "
            f"found {min(config.phones, config.small_phones)}"
        )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _check_space(folder, config)
        rates = _rates(folder, config, say)
        runs = tuple(
            _run(folder, preset, phones, config, say)
            for preset, phones in ((config.small, config.small_phones), (config.preset, config.phones))
        )
    return CapacityBench(
        kind="capacity",
        schema_version=SCHEMA_VERSION,
        environment=this_environment(),
        versions=version_of("phonograd", "uvicorn", "starlette", "h11", "SQLAlchemy"),
        preset=config.preset,
        codec=CODEC,
        rates=rates,
        runs=runs,
        demand=config.demand,
        plans=tuple(plan_for(phones, runs[-1], config.demand) for phones in config.phones_a_day),
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
    checking, folding = in_fresh_process(measure_update, artifacts, updates[0], RUNS)
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
    return receiving, checking, folding, *commits, reading, sending


def _run(folder: Path, preset: str, phones: int, config: CapacityConfig, say: Say) -> PhonesRun:
    artifacts, updates = _material(folder, preset, say)
    state = folder / f"{preset}-state"
    run = run_phones(artifacts, updates, state, preset, phones, config.rounds, config.at_once, say)
    shutil.rmtree(state)
    return run


def _material(folder: Path, preset: str, say: Say) -> tuple[Path, list[Path]]:
    """Artifacts of a preset and updates of CODEC, which move different rows."""
    artifacts, updates = folder / preset, [folder / f"{preset}-{CODEC}-{number}" for number in range(DIFFERENT_UPDATES)]
    if not artifacts.exists():
        say(f"making artifacts and updates of {preset}")
        in_fresh_process(_make, artifacts, updates, preset_named(preset).model)
    return artifacts, updates


def _make(artifacts: Path, updates: Sequence[Path], model: LanguageModelConfig) -> None:
    write_synthetic_artifacts(artifacts, model, random_weights(model, 0))
    for seed, path in enumerate(updates):
        write_synthetic_updates(artifacts / WEIGHTS, {CODEC: path}, seed, TOKENS)
