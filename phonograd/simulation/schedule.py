"""Who takes part in which round, and what becomes of the update: all from the seed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.random_words import SplitMix64, stream_of
from phonograd.server_agg.aggregation.settings import FTRL, SAMPLED_STRATEGIES
from phonograd.simulation.settings import SimulationSettings

_BITS = 53


@dataclass(frozen=True)
class Participation:
    """A phone's part in a round.

    earlier: rounds that its user took part in before; sample_seed: of the output sample's draw, 64 bits. Its update
    arrives, unless it drops out; late is in the next round; it is sent twice if it is a duplicate.
    """

    user: str
    earlier: int
    sample_seed: int
    drops_out: bool
    late: bool
    duplicate: bool


def schedule(settings: SimulationSettings, users: Sequence[str]) -> Iterator[list[Participation]]:
    """The participations of round 1, 2, ... in turn, without end."""
    earlier: Counter[str] = Counter()
    last: dict[str, int] = {}  # by user, the last round with a part in it
    number = 0
    while True:
        number += 1
        random = SplitMix64(stream_of(settings.seed, f"round {number}"))
        taking_part = []
        may = users if settings.strategy.strategy != FTRL else _rested_users(settings, users, number, earlier, last)
        for user in _draw_users(settings, may, random):
            fate, twice, sample_seed = _chance(random), _chance(random), random.next()
            drops_out = fate < settings.drop_outs
            late = not drops_out and fate < settings.drop_outs + settings.late_phones
            taking_part.append(
                Participation(user, earlier[user], sample_seed, drops_out, late, twice < settings.duplicates)
            )
            earlier[user] += 1
            last[user] = number
        yield taking_part


def require_rested(settings: SimulationSettings, users: Sequence[str]) -> None:
    """Raise UsageError if a round of dp-ftrl would find fewer phones that may take part than it expects."""
    if settings.strategy.strategy != FTRL:
        return
    for number, parts in zip(range(1, settings.rounds + 1), schedule(settings, users), strict=False):
        if len(parts) < settings.clients_per_round:
            separation, most = settings.strategy.min_separation, settings.strategy.max_participations
            raise UsageError(
                f"`clients_per_round` {settings.clients_per_round}: only {len(parts)} of {len(users)} users may take "
                f"part in round {number}, with `min_separation` {separation} and `max_participations` {most}; ask for "
                "fewer, or simulate more users"
            )


def _rested_users(
    settings: SimulationSettings, users: Sequence[str], number: int, earlier: Counter[str], last: dict[str, int]
) -> list[str]:
    """The users who may take part in a round of dp-ftrl."""
    separation, most = settings.strategy.min_separation, settings.strategy.max_participations
    return [
        user for user in users if earlier[user] < most and number - last.get(user, number - separation) >= separation
    ]


def _draw_users(settings: SimulationSettings, users: Sequence[str], random: SplitMix64) -> list[str]:
    if settings.strategy.strategy in SAMPLED_STRATEGIES:
        return [user for user in users if _chance(random) < settings.strategy.sampling]
    order = list(users)
    random.shuffle(order)
    return sorted(order[: settings.clients_per_round])


def _chance(random: SplitMix64) -> float:
    return float((random.next() >> (64 - _BITS)) * 2.0**-_BITS)
