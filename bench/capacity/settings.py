"""All settings of the benchmark, with their defaults."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Prices:
    """US dollars. They are examples, of the order of a public cloud's: give your own.

    core, memory: a core's and a GB's, for an hour; disk, store: a GB's, for a month; sent: a GB's to phones; received
    ones cost nothing. puts: a million objects' that are written to the store.
    """

    core: float = 0.04
    memory: float = 0.005
    disk: float = 0.10
    store: float = 0.023
    sent: float = 0.08
    puts: float = 5.0


@dataclass(frozen=True)
class Demand:
    """Each phone takes part once a day, in one of `rounds_a_day` rounds.

    peak: the busiest hour's rate divided by the mean: phones train at night, while they charge. load: the most that a
    server is planned for, of what it was measured to do. models_kept: on disk, besides the first. ledger_days: of
    updates' rows that the disk has room for; a server deletes none. gigabits: a second, of a server's network.
    """

    rounds_a_day: int = 1
    peak: float = 4.0
    load: float = 0.5
    models_kept: int = 5
    ledger_days: int = 30
    gigabits: float = 1.0
    prices: Prices = field(default_factory=Prices)


@dataclass(frozen=True)
class CapacityConfig:
    """preset: the model of the service; small: one whose updates cost almost nothing, so that its phones show what
    requests and the ledger cost. phones, small_phones: of each, in `rounds` rounds, at_once at a time. profiled: of
    each, in two rounds of a server that counts where its time goes. phones_a_day: to plan for.
    ledger: the URL of an empty database in PostgreSQL, whose commits are measured too.
    """

    preset: str = "popov-2x650"
    small: str = "tiny"
    phones: int = 1000
    small_phones: int = 10_000
    profiled: int = 200
    rounds: int = 10
    at_once: int = 16
    phones_a_day: tuple[int, ...] = (10_000, 1_000_000, 100_000_000)
    demand: Demand = field(default_factory=Demand)
    ledger: str | None = None
