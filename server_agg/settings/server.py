"""All settings of a server, with their defaults."""

from typing import Annotated, Literal

from msgspec import Meta

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Count, FromZero, Positive, Settings
from phonograd.device_runtime.formats.tensor_file import HEADER_CAP_BYTES
from phonograd.server_agg.aggregation.settings import FTRL, SAMPLED_STRATEGIES, StrategySettings
from phonograd.server_agg.aggregation.strategies import strategy_of
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.transfer.settings import TransferSettings

# Those that need the sum of the updates alone.
MASKED_STRATEGIES = ("fedavg", "fedsgd", *SAMPLED_STRATEGIES)

# Who sends models and links: this program, nginx, the object store.
Downloads = Literal["direct", "accel", "redirect"]

ALL = Meta(extra={"none": "all"})  # what a file says for None


def deploying_checks(deploy_every: int, strategy: str, masked: bool) -> tuple[tuple[bool, str], ...]:
    """Conditions on rounds after which phones get no model."""
    found = f"`deploy_every` is {deploy_every}, expected 1"
    return (
        (deploy_every == 1 or not masked, f"{found} with `masked`: a phone makes one masked update of a model"),
        (
            deploy_every == 1 or strategy != FTRL,
            f"{found} for {FTRL}: its noise is made for models that follow each other, not for their mean",
        ),
    )


class ServerSettings(Settings, frozen=True):
    """Settings of a server: where it listens, its rounds, its limits. Raises ValueError for a setting out of range.

    masked: None: the server sees each update.
    """

    host: Annotated[str, about("Address to listen on; phones need tokens unless it is loopback.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535), about("0 picks a free port.")] = 8080
    rules: RoundRules = RoundRules()
    strategy: StrategySettings = StrategySettings()
    transfer: TransferSettings = TransferSettings()
    max_upload_bytes: Annotated[Count | None, about("Largest update.  [default: twice the model]")] = None
    idle_seconds: Annotated[Positive, about("A silent connection is closed after this time.")] = 60.0
    expire_seconds: Annotated[Positive, about("An unfinished upload is deleted after this time.")] = 24 * 3600.0
    announce_seconds: Annotated[
        Positive, about("An announced update that does not begin in this time loses its place in the round.")
    ] = 300.0
    retry_seconds: Annotated[Positive, about("How long a phone without a place in the round is asked to wait.")] = 60.0
    models_kept: Annotated[
        Count | None, ALL, about("Newest models to keep on disk in addition to the exported one.")
    ] = 5
    links_kept: Annotated[
        FromZero | None, ALL, about("Newest links to keep on disk, as far as they are smaller together than a model.")
    ] = 100
    ledger: Annotated[
        str | None,
        about(
            "PostgreSQL for several servers: postgresql://USER@HOST/DATABASE.  [default: SQLite in the state folder]"
        ),
    ] = None
    store: Annotated[
        str | None, about("Object store for models and updates: s3://BUCKET/FOLDER.  [default: the state folder]")
    ] = None
    downloads: Annotated[
        Downloads,
        about(
            "Who sends models: the server (direct), nginx before it (accel), the store (redirect): "
            "phonograd docs deployment."
        ),
    ] = "direct"
    masked: MaskedSettings | None = None
    end_privacy: Annotated[
        bool, about("Let a restart open rounds without the noise or the masks that the last round has.")
    ] = False
    accept_noise: Annotated[
        bool, about("Start with noise of which the model learns nothing (phonograd docs privacy).")
    ] = False
    security: SecuritySettings = SecuritySettings()

    def check_together(self) -> None:
        """Raise ValueError for rules, strategy, masks and security that do not go together."""
        for good, message in (*self._combined_checks(), *self._masked_checks()):
            if not good:
                raise ValueError(message)

    def _combined_checks(self) -> tuple[tuple[bool, str], ...]:
        """Conditions on rules, strategy and security together."""
        strategy, phones, name = strategy_of(self.strategy), self.rules.clients_per_round, self.strategy.strategy
        low, high = strategy.min_updates, strategy.max_updates
        return (
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
            *deploying_checks(self.rules.deploy_every, name, self.masked is not None),
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
