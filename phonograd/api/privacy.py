"""What a model gives away about its users."""

from collections.abc import Callable, Mapping
from pathlib import Path

from phonograd.api.engines import workers_of
from phonograd.api.inputs import StrPath, Text, artifacts_of, require_output
from phonograd.api.simulating import texts_of
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.simulation.attacks.records import AttackRecord
from phonograd.simulation.attacks.run import AttackSettings, attack
from phonograd.simulation.empirical.pairs import Pair, PrivacySettings, measure_pairs
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.simulator import Progress, population_of


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
