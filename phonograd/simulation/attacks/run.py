"""Simulates rounds and attacks the last model."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.random_words import SplitMix64, stream_of
from phonograd.device_runtime.base.settings import FromZero, Settings
from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.simulation.attacks import canaries, membership
from phonograd.simulation.attacks.canaries import CanarySettings
from phonograd.simulation.records import AttackRecord
from phonograd.simulation.schedule import schedule
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.simulator import Progress, Simulation, Texts, population_of
from phonograd.simulation.users import Messages, text_slice
from phonograd.simulation.workers import start_workers


class AttackSettings(Settings, frozen=True):
    """Attacks, one or more. canaries: secrets to plant, or None. Raises ValueError if there is no attack."""

    canaries: CanarySettings | None = CanarySettings()
    membership_users: Annotated[FromZero, about("The most users to test on each side; 0: no test.")] = 100

    def check_together(self) -> None:
        """Raise ValueError if there is no attack."""
        some = self.canaries is not None or self.membership_users > 0
        self.require("membership_users", some, "1 or more without canaries")


def attack(
    artifacts: Artifacts,
    texts: Texts,
    simulation: SimulationSettings,
    settings: AttackSettings,
    folder: Path,
    workers: int,
    progress: Progress | None = None,
    stop: Callable[[], int] | None = None,
) -> AttackRecord:
    """Plant secrets in the texts of users who take part, simulate the rounds in `folder`, and attack the last model.

    Raises UsageError if too few users take part, and what `Simulation` raises.
    """
    training = population_of(artifacts, texts, simulation, simulation.test_users).training
    members = users_who_count(simulation, sorted(training))
    vocabulary = Vocabulary.load(artifacts.path(VOCABULARY), artifacts.manifest.model.vocabulary)
    # The users' own texts: a secret in one would tell that its user took part.
    count = settings.membership_users
    took_part = _some(members, texts, simulation, count)
    did_not = _some(set(training) - members, texts, simulation, count)
    if count and not (took_part and did_not):
        raise UsageError(
            f"membership: users who take part and users who do not expected, found {len(members)} of {len(training)}; "
            "simulate other `rounds`"
        )
    plan = None
    if settings.canaries is not None:
        plan = canaries.plan(
            settings.canaries, texts.users, sorted(members), vocabulary, simulation.text_bytes, simulation.seed
        )
        texts = dataclasses.replace(texts, users=plan.users)
    with Simulation(artifacts, texts, simulation, folder, workers) as rounds:
        record = rounds.run(progress, stop)
        models = rounds.model(0), rounds.model(simulation.rounds)
        of_secrets = None
        if plan is not None:
            of_secrets = canaries.measure(artifacts, plan, *models, workers, simulation.seed)
        of_users = None
        if count:
            with start_workers(workers, artifacts, texts.rehearsal, simulation) as phones:
                of_users = membership.measure(phones, took_part, did_not, *models, simulation.seed)
    return AttackRecord(simulation.rounds, record.rounds[-1].epsilon, of_secrets, of_users)


def users_who_count(simulation: SimulationSettings, users: Sequence[str]) -> set[str]:
    """Users with an update in a model: none that drops out or is late, unless late ones count."""
    members = set[str]()
    for number, parts in enumerate(islice(schedule(simulation, users), simulation.rounds), 1):
        drops_late = simulation.late == "drop" and number % simulation.deploy_every == 0  # else phones have its base
        members |= {part.user for part in parts if not (part.drops_out or (part.late and drops_late))}
    return members


def _some(users: Iterable[str], texts: Texts, simulation: SimulationSettings, count: int) -> list[Messages]:
    names = sorted(users)
    SplitMix64(stream_of(simulation.seed, "membership")).shuffle(names)
    return [text_slice(texts.users[user], simulation.text_bytes, 0)[0] for user in names[:count]]
