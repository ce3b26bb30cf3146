"""All settings of a server, with their defaults."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from phonograd.device_runtime.formats.tensor_file import HEADER_CAP_BYTES
from phonograd.server_agg.aggregation.strategies import SAMPLED_STRATEGIES, StrategySettings, strategy_of
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.transfer.settings import TransferSettings

# Those that need the sum of the updates alone.
MASKED_STRATEGIES = ("fedavg", "fedsgd", *SAMPLED_STRATEGIES)

# Who sends models and links: this program, nginx, the object store.
Downloads = Literal["direct", "accel", "redirect"]


@dataclass(frozen=True)
class ServerSettings:
    """Where the server listens, its rounds, and its limits.

    host, port: where to listen; port 0 picks a free port.
    rules: of a round; strategy: how its updates become the next model; transfer: of strategy transfer.
    max_upload_bytes: the largest update; None: twice the full model plus 1 MiB for the header.
    idle_seconds: an upload whose connection is silent for this long is aborted.
    expire_seconds: how long an unfinished upload can be resumed.
    announce_seconds: how long an announced update keeps its place in the round without a first byte.
    retry_seconds: Retry-After for a phone that cannot take part in the round.
    models_kept: how many of the newest models stay on disk, besides the exported one; None: all. The ledger lists
        all models.
    links_kept: how many links that end in the current model stay on disk, as far as all of them are smaller than the
        model; None: no fewer.
    ledger: the URL of a database of PostgreSQL's; None: SQLite in the state folder. With one, several servers may work
        together (docs/deployment.md); they need a `store`.
    store: the URL of an object store for models and updates, one of fsspec's; None: the state folder.
    downloads: who sends models and links: `direct` the server, `accel` nginx before it, which has the state folder,
        `redirect` the store, by a presigned URL.
    masked: of masked rounds; None: the server sees each update.
    end_privacy: let a start over rounds with noise or masks open rounds without.
    accept_noise: start with noise that destroys the model (settings/noise).
    security: authentication, rate limits, TLS.

    Raises ValueError for a setting out of range.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    rules: RoundRules = field(default_factory=RoundRules)
    strategy: StrategySettings = field(default_factory=StrategySettings)
    transfer: TransferSettings = field(default_factory=TransferSettings)
    max_upload_bytes: int | None = None
    idle_seconds: float = 60.0
    expire_seconds: float = 24 * 3600.0
    announce_seconds: float = 300.0
    retry_seconds: float = 60.0
    models_kept: int | None = 5
    links_kept: int | None = 100
    ledger: str | None = None
    store: str | None = None
    downloads: Downloads = "direct"
    masked: MaskedSettings | None = None
    end_privacy: bool = False
    accept_noise: bool = False
    security: SecuritySettings = field(default_factory=SecuritySettings)

    def __post_init__(self) -> None:
        seconds = ("idle_seconds", "expire_seconds", "announce_seconds", "retry_seconds")
        least = (("max_upload_bytes", 1), ("models_kept", 1), ("links_kept", 0))
        checks = [
            (0 <= self.port <= 65535, f"`port` is {self.port}, expected 0 to 65535"),
        ]
        checks += (
            (getattr(self, name) > 0, f"`{name}` is {getattr(self, name)}, expected more than 0") for name in seconds
        )
        for name, low in least:
            value = getattr(self, name)
            checks.append((value is None or value >= low, f"`{name}` is {value}, expected at least {low}"))
        for good, message in (*checks, *self._combined_checks(), *self._masked_checks()):
            if not good:
                raise ValueError(message)

    def _combined_checks(self) -> tuple[tuple[bool, str], ...]:
        """Conditions on rules, strategy and security together."""
        strategy, phones, name = strategy_of(self.strategy), self.rules.clients_per_round, self.strategy.strategy
        low, high = strategy.min_updates, strategy.max_updates
        return (
            (
                self.downloads in get_args(Downloads),
                f"`downloads` is {self.downloads!r}, expected one of {', '.join(get_args(Downloads))}",
            ),
            (
                self.downloads != "redirect" or self.store is not None,
                "`store` is None, expected an object store with `downloads` redirect: phones fetch models from it",
            ),
            (
                self.ledger is None or self.store is not None,
                "`store` is None, expected one for a ledger in PostgreSQL: its servers share their models and updates",
            ),
            (
                self.ledger is None or not self.strategy.slow,
                f"`ledger` is set, expected none for {name}: its work files are on one machine",
            ),
            (
                low <= phones <= high,
                f"`clients_per_round` is {phones}, expected {low} to {high} for {name}",
            ),
            (
                not self.strategy.slow or (self.strategy.server_optimizer, self.strategy.server_lr) == ("none", 1),
                f"`server_optimizer` is {self.strategy.server_optimizer!r} with `server_lr` "
                f"{self.strategy.server_lr:g}, expected 'none' with 1 for {name}: it trains the next model itself",
            ),
            (
                not self.strategy.private or self.rules.deadline_seconds is not None,
                f"`deadline_seconds` is None, expected a deadline for {name}: phones drop out, "
                "and when a model appears must not tell who came",
            ),
            (
                not self.strategy.private or self.rules.max_clients is None,
                f"`max_clients` is {self.rules.max_clients}, expected none for {name}: its epsilon holds "
                "only if no phone takes the place of another",
            ),
            (
                not self.strategy.private or self.security.auth != "none",
                f"`auth` is 'none', expected tokens for {name}: anyone could pose as another phone",
            ),
        )

    def _masked_checks(self) -> tuple[tuple[bool, str], ...]:
        """Conditions on what a server can do that sees sums alone."""
        masked, rules, strategy = self.masked, self.rules, self.strategy
        if masked is None:
            return ()
        least, name = rules.min_clients, strategy.strategy
        return (
            (
                name in MASKED_STRATEGIES,
                f"`strategy` is {name!r}, expected one of {', '.join(MASKED_STRATEGIES)} with `masked`: "
                "others look at single updates",
            ),
            (
                rules.clients_per_round == masked.cohort and rules.max_clients is None and least <= masked.min_cohort,
                f"`clients_per_round` is {rules.clients_per_round}, expected `cohort` ({masked.cohort}) with `masked`, "
                "and no `max_clients`",
            ),
            (rules.late == "drop", f"`late` is {rules.late!r}, expected 'drop' with `masked`: a mask is of one round"),
            (self.ledger is None, "`ledger` is set, expected none with `masked`: its cohorts are of one server"),
            (
                masked.steps == int(strategy.one_step),
                f"`steps` is {masked.steps}, expected {int(strategy.one_step)} for {name} with `masked`: all phones "
                "train alike",
            ),
            (
                strategy.private or strategy.weighting == masked.weighting,
                f"`weighting` is {strategy.weighting!r}, expected 'equal' with `weight_cap` 1 and 'tokens' above it",
            ),
            (
                not (strategy.private and masked.distributed_noise),
                f"`distributed_noise` is {masked.distributed_noise:g}, expected 0 for {name}, which adds its own",
            ),
            (
                not strategy.private or strategy.clip_norm == masked.clip,
                f"`clip_norm` is {strategy.clip_norm:g}, expected `clip` ({masked.clip:g}) with `masked`: phones clip",
            ),
            (
                not strategy.private or (strategy.token_cap or 1) == masked.weight_cap,
                f"`token_cap` is {strategy.token_cap}, expected `weight_cap` ({masked.weight_cap}) with `masked`",
            ),
            (
                not strategy.private or not (strategy.per_layer or strategy.adaptive_clip),
                "`per_layer` or `adaptive_clip` is set, expected neither with `masked`: the server sees no norm",
            ),
        )

    def upload_limit(self, model_bytes: int) -> int:
        """The largest update for a model file of `model_bytes`."""
        if self.max_upload_bytes is not None:
            return self.max_upload_bytes
        return 2 * model_bytes + HEADER_CAP_BYTES
