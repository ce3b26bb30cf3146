"""The file of `phonograd bench capacity`."""

from phonograd.bench.capacity.settings import CapacityConfig, Demand, Prices
from phonograd.config.layout import Layout, table

CAPACITY = Layout(
    "bench capacity",
    (
        table(
            "",
            CapacityConfig,
            *("preset", "phones", "small", "small_phones", "rounds", "at_once", "profiled", "phones_a_day", "ledger"),
        ),
        table(
            "demand",
            Demand,
            *("rounds_a_day", "peak", "load", "models_kept", "ledger_days", "gigabits"),
            about="Each phone takes part once a day.",
        ),
        table("prices", Prices, about="Examples, of the order of a public cloud's."),
    ),
    flags={"preset": "", "phones": "", "small_phones": "", "rounds": "", "ledger": ""},
)
