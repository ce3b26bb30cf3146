"""What a model gives away about its users."""

from collections.abc import Callable, Mapping

from phonograd.api.inputs import StrPath, Text, artifacts_of
from phonograd.api.simulating import texts_of, workers_of
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.simulation.empirical.pairs import Pair, PrivacySettings, measure_pairs
from phonograd.simulation.simulator import population_of


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
    texts = texts_of(users, rehearsal)
    training = population_of(folder, texts, settings.simulation, test_users=0).training
    pairs = measure_pairs(folder, dict(training), texts.rehearsal, settings, workers_of(workers), progress)
    return list(pairs)
