"""What a service needs for a number of phones a day: plain arithmetic on what was measured."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from phonograd.bench.capacity.parts import DISK, Part
from phonograd.bench.capacity.rates import Rate
from phonograd.bench.capacity.rounds_of_phones import PhonesRun
from phonograd.bench.capacity.settings import Demand

DAY_SECONDS = 86_400
DAYS, HOURS = 30, 730  # of a month
GB = 1e9
COMMITS = 2  # of a phone: it gets a place, and its update counts
CPU, COMMITTING, FILES, NETWORK = "CPU: a core", "ledger: its commits", "disk: files", "network"


@dataclass(frozen=True)
class Limit:
    """How many phones a second a server could take if only this were in its way."""

    name: str
    phones_per_second: float


def limits_of(run: PhonesRun, parts: Sequence[Part], rates: Sequence[Rate], demand: Demand) -> tuple[Limit, ...]:
    """The limits of a server, by what was measured; the lowest first."""
    commit = next(rate.seconds for rate in rates if rate.name == "ledger commits")
    files = next(part.wall for part in parts if part.name == DISK)
    link = demand.gigabits * GB / 8
    limits = (
        Limit(CPU, 1 / run.cpu_per_phone),
        Limit(COMMITTING, 1 / (COMMITS * commit)),
        Limit(FILES, 1 / files),
        Limit(NETWORK, link / max(run.update_bytes, down_bytes(run, demand))),
    )
    return tuple(sorted(limits, key=lambda limit: limit.phones_per_second))


def down_bytes(run: PhonesRun, demand: Demand) -> float:
    """Bytes down of one phone: a link for each round since it last took part, or the model where that is smaller."""
    return min(demand.rounds_a_day * run.link_bytes, run.model_bytes)


@dataclass(frozen=True)
class Plan:
    """Plan for `phones` a day.

    services: each a server with a ledger and a model of its own, for a region or a language, as
    many as its lowest limit asks for. Bytes are of all services together.

    down_bytes: of one phone.
    """

    phones: int
    peak_phones_per_second: float
    services: int
    cores: float
    memory_bytes: float
    disk_bytes: float
    store_bytes: float
    down_bytes: float
    gigabits_up: float
    gigabits_down: float
    dollars_a_month: float


def plan_for(phones: int, run: PhonesRun, limits: Sequence[Limit], demand: Demand) -> Plan:
    """The plan from a run of full-size phones, and the limits of its server."""
    per_second = demand.peak * phones / DAY_SECONDS
    services = max(1, math.ceil(per_second / (demand.load * limits[0].phones_per_second)))
    cores = max(float(services), per_second * run.cpu_per_phone / demand.load)
    down = down_bytes(run, demand)
    memory = services * run.peak_rss_bytes
    models = services * (demand.models_kept + 1) * run.model_bytes
    disk = models + demand.ledger_days * phones * run.ledger_bytes / run.phones
    store = models + phones / demand.rounds_a_day * run.update_bytes
    prices = demand.prices
    dollars = (
        HOURS * (cores * prices.core + memory / GB * prices.memory)
        + disk / GB * prices.disk
        + store / GB * prices.store
        + DAYS * phones * (down / GB * prices.sent + prices.puts / 1e6)
    )
    return Plan(
        phones=phones,
        peak_phones_per_second=per_second,
        services=services,
        cores=cores,
        memory_bytes=memory,
        disk_bytes=disk,
        store_bytes=store,
        down_bytes=down,
        gigabits_up=per_second * run.update_bytes * 8 / GB,
        gigabits_down=per_second * down * 8 / GB,
        dollars_a_month=dollars,
    )
