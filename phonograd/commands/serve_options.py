"""The options of `phonograd serve`, made from the settings' own fields: one place declares a default."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from phonograd.commands.options import Command, InGroup, Options, decorated, opt, refuse, usage_errors
from phonograd.commands.own_classes import OWN, STRATEGY, own_values
from phonograd.console import Console, option_names
from phonograd.device_runtime.update.codecs import NORM_FACTORS
from phonograd.server_agg.aggregation.settings import (
    ESTIMATORS,
    FTRL,
    NORM_STRATEGIES,
    NORMS,
    PRIVATE_STRATEGIES,
    SAMPLED_STRATEGIES,
    SERVER_OPTIMIZERS,
    STRATEGIES,
    WEIGHTINGS,
    StrategySettings,
)
from phonograd.server_agg.aggregation.settings import TRANSFER as TRANSFER_STRATEGY
from phonograd.server_agg.settings.masked import FEWEST, MaskedSettings
from phonograd.server_agg.settings.noise import MOST
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.transfer.settings import TransferSettings


def number_or_all(text: str) -> int | None:
    """A whole number, or None for `all`. Raises ValueError for anything else."""
    return None if text == "all" else int(text)


SERVER = Options(ServerSettings).group(
    "Server",
    host="Address to listen on; phones need tokens unless it is loopback.",
    port="0 picks a free port.",
    max_upload_bytes="Largest update.  [default: twice the model]",
    idle_seconds="A silent connection is closed after this time.",
    expire_seconds="An unfinished upload is deleted after this time.",
    announce_seconds="An announced update that does not begin in this time loses its place in the round.",
    retry_seconds="How long a phone without a place in the round is asked to wait.",
    models_kept=opt("Newest models to keep on disk in addition to the exported one; or all.", number_or_all),
    links_kept=opt("Newest links to keep on disk, as far as they are smaller than a model; or all.", number_or_all),
    ledger="PostgreSQL for several servers: postgresql://USER@HOST/DATABASE.  [default: SQLite in the state folder]",
    store="Object store for models and updates: s3://BUCKET/FOLDER.  [default: the state folder]",
    end_privacy="Let a restart open rounds without the noise or the masks that the last round has.",
    accept_noise=f"Start with noise of more than {MOST:g} times S, which destroys the model.",
    downloads="Who sends models: the server, nginx before it, or the store (docs/deployment.md).",
)
RULES = Options(RoundRules).group(
    "Rounds",
    clients_per_round="Accepted updates that close a round.",
    min_clients="Fewest updates with which a deadline closes a round.",
    max_clients="Most phones that take part at once (over-selection).  [default: no limit]",
    deadline_seconds="Also close a round this long after it opened.  [default: never]",
    late="What to do with updates for a closed round.",
    publish="Codec of the link from the last model to the next; top-rows is lossy (docs/server.md).",
    publish_rows="top-rows: rows of largest change to publish.",
    publish_bits="top-rows: bits a weight, 1, 2 or 4.",
)
SECURITY = Options(SecuritySettings).group(
    "Security",
    auth="Who needs a token; auto: everyone, unless the server listens on loopback and the strategy is not private.",
    tls_cert="PEM certificate: serve https.",
    tls_key="Its PEM key, if it is a separate file.",
    requests_per_second="Rate limit for each phone.",
    burst="Requests that a phone may send at once.",
    concurrent_per_phone="Requests that a phone may have open at once.",
)
AVERAGING = Options(StrategySettings).group(
    "Strategy",
    strategy=opt("How updates are averaged; or MODULE:CLASS of your own (docs/strategies.md).", STRATEGY),
    weighting=opt("An update's weight in the average; paper P: equal.", click.Choice(WEIGHTINGS)),
    max_tokens="Most tokens that an update may claim.",
    server_optimizer=opt("Server optimizer that applies the averaged delta.", click.Choice(SERVER_OPTIMIZERS)),
    server_lr="Its learning rate.",
    momentum="Of --server-optimizer momentum.",
    beta1="Of --server-optimizer adam.",
    beta2="Of --server-optimizer adam.",
    adam_epsilon="Of --server-optimizer adam.",
    attention_step="fedatt: paper J's epsilon.",
    attention_norm=opt("fedatt: p of the distance.", click.Choice(NORMS)),
    attention_noise="fedatt: beta x sigma.",
    trim_share="trimmed-mean: share dropped at each end.",
    krum_byzantine="multi-krum: hostile updates to tolerate.",
    krum_selected="multi-krum: updates to average; 0: all but the hostile ones.",
    norm_bound="norm-bound: largest L2 norm of a delta.",
)
PRIVACY = Options(StrategySettings).group(
    "Differential privacy (strategies dp-...)",
    clip_norm=opt("S, largest L2 norm of a delta.", name="--dp-clip-norm"),
    per_layer="Clip each tensor to S/sqrt(m).",
    noise_multiplier="z; of dp-ftrl, for the whole run.",
    token_cap="Tokens at which a phone has weight 1.  [default: all weigh 1]",
    mean_weight="W / N; of dp-ftrl, a guess of the phones' mean weight.",
    delta=opt("Delta of the guarantee.", name="--dp-delta"),
)
SAMPLING = Options(StrategySettings).group(
    "Differential privacy by sampling (dp-fedavg, dp-fedsgd)",
    estimator=opt("f_f or f_c of paper M.", click.Choice(ESTIMATORS)),
    min_share="W_min / W, with estimator f_c.",
    adaptive_clip="The quantile of the phones' norms that S follows, from round to round.  [default: S stays]",
    sampling="q, each phone's sampling probability.",
    population="Enrolled phones needed before a round samples any.",
    epsilon_budget="Stop before a round exceeds this epsilon.  [default: no limit]",
)
CORRELATED = Options(StrategySettings).group(
    "Differential privacy by correlated noise (dp-ftrl)",
    planned_rounds="n, rounds of the whole run, fixed before the first.",
    min_separation="b, rounds from one participation of a phone to its next, at least.",
    max_participations="k, of a phone in the whole run, at most.",
    noise_buffers="Buffers of the model's size that the noise keeps.",
)
TRANSFER = Options(TransferSettings).group(
    "Strategy transfer",
    general="transfer: general text that the student learns on, a file; generated: text that the model writes.",
    transfer_tokens="transfer: tokens of the text of a cycle.",
    transfer_cycles="transfer: cycles, each with a text of its own.",
    transfer_epochs="transfer: passes over each text.",
    transfer_lr="transfer: the student's learning rate.  [default: the artifacts']",
)
GRID: Mapping[str, str | Mapping[str, Any]] = {
    "bits": opt("Bits of a code, 4, 8 or 16.", name="--mask-bits"),
    "support": "Send one of 1, 4, 16 or 64 of the rotated weights, others in each round.",
    "clip": opt("Largest L2 norm of a delta, to which phones hold.", name="--mask-clip"),
    "weight_cap": "A phone's weight is its tokens, cut to this; 1: all phones weigh the same.",
    "distributed_noise": "Noise that phones add together: its standard deviation over how far one can move the sum.",
}
MASKED = Options(MaskedSettings).group(
    "Masked rounds (with --masked)",
    cohort="Phones that mask together, at most; takes the place of --clients-per-round.",
    min_cohort="Fewest phones of a cohort; with fewer, a round fails and releases nothing.",
    **GRID,
    curious="Share of the phones that may work with the server.",
    dropouts="Share of the phones that may drop out.",
    stage_seconds="How long a stage waits for its phones.",
    vendor=opt("Public key that certifies phones (`phonograd keys`).  [default: any phone]", name="--vendor-key"),
)

# Options that count only while another one has one of these values.
DEPENDENT: tuple[tuple[str, tuple[str, ...], Iterable[str]], ...] = (
    ("strategy", ("fedavg", "fedsgd", "norm-bound", OWN), ("weighting",)),
    ("strategy", ("fedatt",), ("attention_step", "attention_norm", "attention_noise")),
    ("strategy", ("trimmed-mean",), ("trim_share",)),
    ("strategy", ("multi-krum",), ("krum_byzantine", "krum_selected")),
    ("strategy", ("norm-bound",), ("norm_bound",)),
    ("strategy", PRIVATE_STRATEGIES, PRIVACY),
    ("strategy", SAMPLED_STRATEGIES, SAMPLING),
    ("strategy", (FTRL,), CORRELATED),
    ("strategy", (TRANSFER_STRATEGY,), TRANSFER),
    ("estimator", ("clipped",), ("min_share",)),
    ("server_optimizer", ("momentum",), ("momentum",)),
    ("server_optimizer", ("adam",), ("beta1", "beta2", "adam_epsilon")),
    ("publish", ("top-rows",), ("publish_rows", "publish_bits")),
)


def refuse_dependent(options: Mapping[str, Any]) -> None:
    """Raise UsageError for an option that would be ignored, as another one has not the value with which it counts."""
    for decisive, values, names in DEPENDENT:
        value = options.get(decisive)
        if value not in (None, *values) and not (OWN in values and value not in STRATEGIES):
            refuse(f"expected with {option_names()[decisive]} {' or '.join(values)}", *names)


MASKED_FLAG = click.option(
    "--masked", is_flag=True, cls=InGroup, group="Masked rounds (with --masked)", help="The server sees sums alone."
)


def serve_options(command: Command) -> Command:
    """All of them; `settings_from` makes the settings."""
    return decorated(command, SERVER, RULES, SECURITY, strategy_options, TRANSFER, MASKED_FLAG, MASKED)


def strategy_options(command: Command) -> Command:
    """Those of a round's strategy; `strategy_from` makes its settings."""
    return decorated(command, AVERAGING, PRIVACY, SAMPLING, CORRELATED)


def strategy_from(options: dict[str, Any]) -> StrategySettings:
    """The strategy's settings, whose options leave `options`. Raises click.UsageError for a value out of range, and for
    any of the options that would be ignored.
    """
    refuse_dependent(options)
    private = {name: options.pop(name) for name in (*PRIVACY, *SAMPLING, *CORRELATED)}
    return AVERAGING.take(options, **private, own=_own_settings(options))


def _own_settings(options: dict[str, Any]) -> str:
    """The settings of a strategy of one's own, whose options leave `options`, as JSON; "" for others."""
    if options["strategy"] in STRATEGIES:
        return ""
    from phonograd.server_agg.aggregation.own import own_strategy

    name = options["strategy"]
    with usage_errors():
        return own_strategy(name, **own_values(name, options)).own


def warn_of_norms(console: Console, strategy: StrategySettings, codecs: Iterable[str] = NORM_FACTORS) -> None:
    """Warn of a strategy that goes by the norms of decoded updates, if one of the codecs makes these larger."""
    larger = [f"{codec} {NORM_FACTORS[codec]:g}" for codec in codecs if codec in NORM_FACTORS]
    if strategy.strategy in NORM_STRATEGIES and larger:
        console.say(
            f"phonograd: warning: {strategy.strategy} goes by the norms of decoded updates, and codecs make them "
            f"larger: {', '.join(larger)} times; allow for it in a bound, or use another codec"
        )


def transfer_from(options: dict[str, Any]) -> TransferSettings:
    """The settings of transfer learning. Raises click.UsageError for a value out of range."""
    settings = TRANSFER.take(options)
    if settings.generated:
        return settings
    # The ledger keeps the path, and the next start may be in another folder.
    return dataclasses.replace(settings, general=str(Path(settings.general).absolute()))


def settings_from(options: dict[str, Any]) -> ServerSettings:
    """The settings that the options make. Raises click.UsageError for a value out of range."""
    if options["tls_key"] is not None and options["tls_cert"] is None:
        raise click.UsageError("--tls-key: --tls-cert expected beside it")
    if options["deadline_seconds"] is None:
        refuse("expected with --deadline-seconds, which it is about", "min_clients")
    masked = masked_from(options)
    strategy, rules = strategy_from(options), RULES.take(options)
    if masked is not None:
        rules = dataclasses.replace(rules, clients_per_round=masked.cohort)
        strategy = dataclasses.replace(strategy, weighting=masked.weighting)
        masked = dataclasses.replace(masked, steps=int(strategy.one_step))
    return SERVER.take(
        options,
        strategy=strategy,
        transfer=transfer_from(options),
        rules=rules,
        masked=masked,
        security=SECURITY.take(options),
    )


SIMULATED_GRID = Options(MaskedSettings).group("Masked rounds (with --masked)", **GRID)


def simulated_grid_from(options: dict[str, Any]) -> MaskedSettings | None:
    """The settings of a simulation's masked rounds; None without --masked. Raises click.UsageError."""
    if options["masked"]:
        refuse("expected without --masked, whose updates are rounded to a grid", "codec")
    phones = max(FEWEST, options["clients_per_round"])
    return _masked_of(SIMULATED_GRID, options, cohort=phones, min_cohort=phones)


def masked_from(options: dict[str, Any]) -> MaskedSettings | None:
    """The settings of masked rounds; None without --masked. Raises click.UsageError for a value out of range, and for
    any of the options that would be ignored.
    """
    if options["masked"]:
        refuse("expected without --masked; see --cohort", "clients_per_round", "min_clients", "max_clients")
    return _masked_of(MASKED, options)


def _masked_of(declared: Options[MaskedSettings], options: dict[str, Any], **others: Any) -> MaskedSettings | None:
    if options.pop("masked"):
        refuse("expected without --masked; see --weight-cap", "weighting")
        return declared.take(options, **others)
    refuse("expected with --masked", *declared)
    declared.values(options)
    return None
