"""Federated rounds of virtual phones on this machine."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from phonograd.api.inputs import StrPath, Text, artifacts_of, messages_of
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.simulation.records import SimulationRecord
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.simulator import Progress, Simulation, Texts
from phonograd.simulation.users import read_users


def simulate(
    artifacts: Artifacts | StrPath,
    users: StrPath | Mapping[str, Text],
    out: StrPath,
    settings: SimulationSettings | None = None,
    *,
    rehearsal: Text | None = None,
    general_test: Text | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    stop: Callable[[], int] | None = None,
) -> SimulationRecord:
    """Simulate federated rounds, and measure the model on general text and for users who never train.

    users: a JSONL file of {"user", "text"} lines, a folder with a text for each user, or texts by user. out: the
    simulation's folder, made if missing; one that was interrupted is resumed, and more `rounds` continue it. rehearsal:
    general text that phones mix in; general_test: general text to evaluate on. workers: processes, each of one thread;
    None is one a core; the result is the same for any number.

    progress hears (phones done, phones in all rounds, last quality); stop is asked between phones for the number of a
    signal that asks to end, 0 for none. Raises TextError, ArtifactsError, WeightsError, StateError for a folder of
    another simulation, TrainingError if training diverges, StorageError, OutOfMemoryError, StoppedError.
    """
    texts, settings = texts_of(users, rehearsal, general_test), settings or SimulationSettings()
    with Simulation(artifacts_of(artifacts), texts, settings, Path(out), workers_of(workers)) as simulation:
        return simulation.run(progress, stop)


def texts_of(users: StrPath | Mapping[str, Text], rehearsal: Text | None, general_test: Text | None = None) -> Texts:
    """The texts of a simulation. Raises TextError for one that can't be read or holds none."""
    by_user = (
        {user: messages_of(text) for user, text in users.items()}
        if isinstance(users, Mapping)
        else read_users(Path(users))
    )
    return Texts(by_user, *([] if text is None else messages_of(text) for text in (rehearsal, general_test)))


def workers_of(workers: int | None) -> int:
    """Processes that train: as many as were asked for, else one a core."""
    return workers or len(os.sched_getaffinity(0))
