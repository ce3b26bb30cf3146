"""Federated rounds of virtual phones on this machine."""

from collections.abc import Callable, Mapping
from pathlib import Path

from phonograd.api.engines import Engine, require_engine, workers_of
from phonograd.api.inputs import StrPath, Text, artifacts_of, messages_of, require_output
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.simulation.records import SimulationRecord
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.simulator import Progress, Simulation, Texts
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
    progress: Progress | None = None,
    stop: Callable[[], int] | None = None,
) -> SimulationRecord:
    """Simulate federated rounds, and measure the model on general text and for users who never train.

    users: a JSONL file of {"user", "text"} lines, a folder with a text for each user, or texts by user. out: the
    simulation's folder, made if missing; one that was interrupted is resumed, and more `rounds` continue it. rehearsal:
    general text that phones mix in; general_test: general text to evaluate on. workers: processes, each of one thread;
    None is one a core; the result is the same for any number. engine: what runs them, processes of this machine or Ray,
    which repeats the work of those that are killed.

    progress hears (phones done, phones in all rounds, last quality); stop is asked between phones for the number of a
    signal that asks to end, 0 for none. Raises TextError, ArtifactsError, WeightsError, StateError for a folder of
    another simulation, TrainingError if training diverges, StorageError, OutOfMemoryError, StoppedError, UsageError for
    Ray with another backend than native, MissingExtraError without Ray.
    """
    require_output(out, artifacts, users, rehearsal, general_test, folder=True)
    settings = settings or SimulationSettings()
    start = _starting(engine, settings)
    texts = texts_of(users, rehearsal, general_test)
    with Simulation(artifacts_of(artifacts), texts, settings, Path(out), workers_of(workers), start) as simulation:
        return simulation.run(progress, stop)


def _starting(engine: Engine, settings: SimulationSettings) -> StartWorkers:
    require_engine(engine)
    if engine == "local":
        return start_workers
    if settings.backend != "native":
        raise UsageError(f"engine ray needs backend native, found {settings.backend}; torch trains in one process")
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
