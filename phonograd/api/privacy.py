"""What a model gives away about its users."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from phonograd.api.inputs import StrPath, Text, artifacts_of, messages_of
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.simulation.empirical.pairs import Pair, PrivacySettings, measure_pairs
from phonograd.simulation.simulator import Texts, population_of
from phonograd.simulation.users import read_users


def empirical_privacy(
    artifacts: Artifacts | StrPath,
    users: StrPath | Mapping[str, Text],
    settings: PrivacySettings | None = None,
    *,
    rehearsal: Text | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Pair]:
    """Measure empirical privacy over pairs of adjacent user sets (paper P).

    users, rehearsal, workers: as in `simulate`. progress hears (pairs done, pairs in all). Raises TextError,
    ArtifactsError, TrainingError, StorageError, OutOfMemoryError.
    """
    settings = settings or PrivacySettings()
    folder = artifacts_of(artifacts)
    texts = Texts(
        {user: messages_of(text) for user, text in users.items()}
        if isinstance(users, Mapping)
        else read_users(Path(users)),
        [] if rehearsal is None else messages_of(rehearsal),
        [],
    )
    training = population_of(folder, texts, settings.simulation, test_users=0).training
    count = workers or len(os.sched_getaffinity(0))
    return list(measure_pairs(folder, dict(training), texts.rehearsal, settings, count, progress))
