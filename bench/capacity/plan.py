"""What a service needs for a number of phones a day: plain arithmetic on what was measured."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from phonograd.bench.capacity.settings import Demand

if TYPE_CHECKING:
    from phonograd.bench.capacity.rounds_of_phones import PhonesRun

DAY_SECONDS = 86_400
DAYS, HOURS = 30, 730  # of a month
GB = 1e9


@dataclass(frozen=True)
class Plan:
    """For `phones` a day. services: each a server with a ledger and a model of its own, for a region or a language, for
    updates of a round are taken one at a time. Bytes are of all services together.

    down_bytes: of one phone: a link for each round since it last took part, or the model where that is smaller.
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


def plan_for(phones: int, run: "PhonesRun", demand: Demand) -> Plan:
    """The plan from a run of full-size phones."""
    per_second = demand.peak * phones / DAY_SECONDS
    services = max(1, math.ceil(per_second / (demand.load * run.phones_per_second)))
    cores = max(float(services), per_second * run.cpu_per_phone / demand.load)
    down = min(demand.rounds_a_day * run.link_bytes, run.model_bytes)
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
