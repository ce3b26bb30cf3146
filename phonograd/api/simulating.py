"""Federated rounds of virtual phones on this machine, and what their models give away about users."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from phonograd.api.inputs import (
    Engine,
    StrPath,
    Text,
    artifacts_of,
    messages_of,
    require_engine,
    require_output,
    workers_of,
)
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.simulation.attacks.audit import AuditSettings, audit
from phonograd.simulation.attacks.run import AttackSettings, attack
from phonograd.simulation.empirical.pairs import Pair, PrivacySettings, measure_pairs
from phonograd.simulation.records import AttackRecord, AuditRecord, SimulationRecord
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.simulator import OnNoise, Progress, Simulation, Texts, population_of
from phonograd.simulation.users import read_users
from phonograd.simulation.workers import StartWorkers, start_workers


def simulate(
    artifacts: Artifacts | StrPath,
    users: StrPath | Mapping[str, Text],
    out: StrPath,
    settings: SimulationSettings | None = None,
    *,
    rehearsal: Text | None = None,
    general_test: Text | None = None,
    workers: int | None = None,
    engine: Engine = "local",
    config: Mapping[str, Any] | None = None,
    on_noise: OnNoise | None = None,
    progress: Progress | None = None,
    stop: Callable[[], int] | None = None,
) -> SimulationRecord:
    """Simulate federated rounds, and measure the model on general text and for users who never train.

    users: a JSONL file of {"user", "text"} lines, a folder with a text for each user, or texts by user. out: the
    simulation's folder, made if missing; one that was interrupted is resumed, and more `rounds` continue it. rehearsal:
    general text that phones mix in; general_test: general text to evaluate on. workers: processes, each of one thread;
    None is one a core; the result is the same for any number. engine: what runs them, processes of this machine or Ray,
    which repeats the work of those that are killed. config: for the record alone, what a command was asked.

    on_noise hears, before anything is made, how large a round's noise is, and may raise. progress hears
    (phones done, phones in all rounds, last quality); stop is asked between phones for the number of a
    signal that asks to end, 0 for none. Raises TextError, ArtifactsError, WeightsError, StateError for a folder of
    another simulation, TrainingError if training diverges, StorageError, OutOfMemoryError, StoppedError,
    MissingExtraError without Ray.
    """
    require_output(out, artifacts, users, rehearsal, general_test, folder=True)
    settings = settings or SimulationSettings()
    start = _starting(engine)
    texts = texts_of(users, rehearsal, general_test)
    place, count = Path(out), workers_of(workers)
    begun = Simulation(artifacts_of(artifacts), texts, settings, place, count, start, on_noise=on_noise, config=config)
    with begun as simulation:
        return simulation.run(progress, stop)


def _starting(engine: Engine) -> StartWorkers:
    require_engine(engine)
    if engine == "local":
        return start_workers
    from phonograd.adapters.ray.workers import RayWorkers

    return RayWorkers


def texts_of(users: StrPath | Mapping[str, Text], rehearsal: Text | None, general_test: Text | None = None) -> Texts:
    """The texts of a simulation. Raises TextError for one that can't be read or holds none."""
    by_user = (
        {user: messages_of(text) for user, text in users.items()}
        if isinstance(users, Mapping)
        else read_users(Path(users))
    )
    return Texts(by_user, *([] if text is None else messages_of(text) for text in (rehearsal, general_test)))


def empirical_privacy(
    artifacts: Artifacts | StrPath,
    users: StrPath | Mapping[str, Text],
    settings: PrivacySettings | None = None,
    *,
    rehearsal: Text | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Pair]:
    """Measure empirical privacy over pairs of adjacent user sets (paper P), each in one direction, then in the other.

    users, rehearsal, workers: as in `simulate`. progress hears (pairs done, pairs in all). Raises TextError,
    ArtifactsError, TrainingError, StorageError, OutOfMemoryError.
    """
    settings = settings or PrivacySettings()
    folder = artifacts_of(artifacts)
    texts = texts_of(users, rehearsal)
    training = population_of(folder, texts, settings.simulation, test_users=0).training
    pairs = measure_pairs(folder, dict(training), texts.rehearsal, settings, workers_of(workers), progress)
    return list(pairs)


def simulate_attacks(
    artifacts: Artifacts | StrPath,
    users: StrPath | Mapping[str, Text],
    out: StrPath,
    simulation: SimulationSettings | None = None,
    settings: AttackSettings | None = None,
    *,
    rehearsal: Text | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    stop: Callable[[], int] | None = None,
) -> AttackRecord:
    """Simulate rounds, with secrets in the texts of users who take part, and attack the last model.

    It measures the exposure of the secrets (Carlini et al. 2019), and whether the model tells who took part. `simulate`
    documents users, out, rehearsal, workers, progress and stop. Raises UsageError if too few users take part, and what
    `simulate` raises.
    """
    require_output(out, artifacts, users, rehearsal, folder=True)
    return attack(
        artifacts_of(artifacts),
        texts_of(users, rehearsal),
        simulation or SimulationSettings(),
        settings or AttackSettings(),
        Path(out),
        workers_of(workers),
        progress,
        stop,
    )


def simulate_audit(
    artifacts: Artifacts | StrPath,
    users: StrPath | Mapping[str, Text],
    out: StrPath,
    simulation: SimulationSettings | None = None,
    settings: AuditSettings | None = None,
    *,
    rehearsal: Text | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    stop: Callable[[], int] | None = None,
) -> AuditRecord:
    """Simulate rounds with canary users, guess who of them took part, and bound epsilon from below (Steinke et al.
    2023). It holds for one run: the best of several seeds or settings is no bound.

    `simulate` documents users, out, rehearsal, workers, progress and stop. Raises UsageError for masked rounds and for
    another delta than a private strategy's, and what `simulate` raises.
    """
    require_output(out, artifacts, users, rehearsal, folder=True)
    return audit(
        artifacts_of(artifacts),
        texts_of(users, rehearsal),
        simulation or SimulationSettings(),
        settings or AuditSettings(),
        Path(out),
        workers_of(workers),
        progress,
        stop,
    )
