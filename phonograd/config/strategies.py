"""Tables of a round's strategy, and of how it publishes, for all files that have them."""

from phonograd.config.layout import MODULE_CLASS, Table, table
from phonograd.device_runtime.base.settings import Settings, fields_of
from phonograd.server_agg.aggregation.settings import FTRL, SAMPLED_STRATEGIES, TRANSFER, StrategySettings
from phonograd.server_agg.transfer.settings import TransferSettings

STRATEGY = "strategy.name"
OPTIMIZER = "optimizer.name"
_PRIVATE = ("clip_norm", "per_layer", "noise_multiplier", "token_cap", "mean_weight", "delta")
_SAMPLING = ("estimator", "min_share", "adaptive_clip", "sampling", "population", "epsilon_budget")
_CORRELATED = ("planned_rounds", "min_separation", "max_participations", "noise_buffers")


def _of(name: str, *fields: str, about: str = "", counts_for: str = "") -> Table:
    return table(
        f"strategy.{name}", StrategySettings, *fields, about=about, chosen_by=(STRATEGY, (counts_for or name,))
    )


STRATEGY_TABLES = (
    table("strategy", StrategySettings, "max_tokens", name="strategy"),
    *(_of(name, "weighting") for name in ("fedavg", "fedsgd")),
    _of("fedatt", "attention_step", "attention_norm", "attention_noise"),
    _of("trimmed-mean", "trim_share"),
    _of("multi-krum", "krum_byzantine", "krum_selected"),
    _of("norm-bound", "norm_bound", "weighting"),
    *(_of(name, *_PRIVATE, *_SAMPLING) for name in SAMPLED_STRATEGIES),
    _of(FTRL, *_PRIVATE, *_CORRELATED),
    table(f"strategy.{TRANSFER}", TransferSettings, *fields_of(TransferSettings), chosen_by=(STRATEGY, (TRANSFER,))),
    _of(
        "own",
        "weighting",
        about="The settings of a strategy of your own, whose name is its MODULE:CLASS; `weighting` is phonograd's.",
        counts_for=MODULE_CLASS,
    ),
    table("optimizer", StrategySettings, "server_lr", name="server_optimizer"),
    table("optimizer.momentum", StrategySettings, "momentum", chosen_by=(OPTIMIZER, ("momentum",))),
    table("optimizer.adam", StrategySettings, "beta1", "beta2", "adam_epsilon", chosen_by=(OPTIMIZER, ("adam",))),
)


def publish_tables(kind: type[Settings]) -> tuple[Table, Table]:
    """The tables of how a round publishes its model; the kind has the fields of RoundRules."""
    top_rows = ("publish_rows", "publish_bits")
    return (
        table("publish", kind, codec="publish"),
        table("publish.top-rows", kind, *top_rows, chosen_by=("publish.codec", ("top-rows",))),
    )
