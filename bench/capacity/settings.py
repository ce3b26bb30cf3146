"""All settings of the benchmark, with their defaults."""

from typing import Annotated

from msgspec import Meta

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Count, FromZero, NotNegative, Positive, Settings, Share


class Prices(Settings, frozen=True):
    """US dollars. They are examples, of the order of a public cloud's: give your own. Received bytes cost nothing."""

    core: Annotated[NotNegative, about("A core for an hour, in US dollars.")] = 0.04
    memory: Annotated[NotNegative, about("A GB of memory for an hour.")] = 0.005
    disk: Annotated[NotNegative, about("A GB of disk for a month.")] = 0.10
    store: Annotated[NotNegative, about("A GB of the object store for a month.")] = 0.023
    sent: Annotated[NotNegative, about("A GB sent to phones.")] = 0.08
    puts: Annotated[NotNegative, about("A million objects that are written to the store.")] = 5.0


class Demand(Settings, frozen=True):
    """What a service must do: each phone takes part once a day."""

    rounds_a_day: Annotated[Count, about("Rounds a day, of which each phone takes part in one.")] = 1
    peak: Annotated[
        float, Meta(ge=1), about("The busiest hour's rate divided by the mean: phones train at night, as they charge.")
    ] = 4.0
    load: Annotated[
        Share, about("The most that a server is planned for, of what it was measured to do at its lowest limit.")
    ] = 0.5
    models_kept: Annotated[FromZero, about("Models on disk, besides the first.")] = 5
    ledger_days: Annotated[
        FromZero, about("Days of updates' rows that the disk has room for; a server deletes none.")
    ] = 30
    gigabits: Annotated[Positive, about("Gigabits a second, of a server's network.")] = 1.0
    prices: Prices = Prices()


class CapacityConfig(Settings, frozen=True):
    """What is measured, and what to plan for. Raises ValueError for fewer phones than rounds."""

    preset: Annotated[str, about("The model of the service.")] = "popov-2x650"
    small: Annotated[
        str, about("A model whose updates cost almost nothing: its phones show what requests and the ledger cost.")
    ] = "tiny"
    phones: Annotated[Count, about("Phones with the service's model.")] = 1000
    small_phones: Annotated[Count, about("Phones with the small model, before them.")] = 10_000
    profiled: Annotated[Count, about("Phones of each, in two rounds of a server that counts where its time goes.")] = (
        200
    )
    rounds: Annotated[Count, about("Rounds of each.")] = 10
    at_once: Annotated[Count, about("Phones at a time.")] = 16
    phones_a_day: Annotated[tuple[Count, ...], about("Phones to plan for.")] = (10_000, 1_000_000, 100_000_000)
    demand: Demand = Demand()
    ledger: Annotated[
        str | None,
        about("An empty database in PostgreSQL, to measure its commits too: postgresql://USER@HOST/DATABASE"),
    ] = None

    def check_together(self) -> None:
        """Raise ValueError for fewer phones than rounds."""
        for name in ("phones", "small_phones"):
            expected = f"at least one for each of `rounds` ({self.rounds})"
            self.require(name, getattr(self, name) >= self.rounds, expected)
