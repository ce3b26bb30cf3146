"""phonograd's own simulation: the native engine and the server's aggregation."""

from collections.abc import Mapping
from pathlib import Path

from phonograd.bench.environment import version_of
from phonograd.bench.worker import SimulatorJob, Tell
from phonograd.device_runtime.formats.manifest import open_artifacts
from phonograd.device_runtime.text.messages import read_messages
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.simulator import Simulation, Texts
from phonograd.simulation.users import read_users


def run(job: SimulatorJob, tell: Tell) -> tuple[list[float], Mapping[str, str]]:
    """See SimulatorJob."""
    settings = SimulationSettings(
        rounds=job.rounds,
        clients_per_round=job.phones,
        learning_rate=job.learning_rate,
        test_users=0,
        **job.settings,
    )
    texts = Texts(read_users(Path(job.users)), read_messages(Path(job.rehearsal)), [])
    calls = 0

    def progress(*_: object) -> None:
        nonlocal calls
        calls += 1  # one for each phone, and one when the next model is written
        if calls % (job.phones + 1) == 0:
            tell()

    with Simulation(open_artifacts(job.artifacts), texts, settings, Path(job.out), job.workers) as simulation:
        tell()
        record = simulation.run(progress)
    losses = [ended.loss_last for ended in record.rounds if ended.loss_last is not None]
    return losses, version_of("phonograd")
