"""The server's settings: the one place that declares their defaults."""

from dataclasses import dataclass, field

from phonograd.device_runtime.formats.tensor_file import HEADER_CAP_BYTES
from phonograd.server_agg.aggregation.strategies import StrategySettings, strategy_of
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.security import SecuritySettings


@dataclass(frozen=True)
class ServerSettings:
    """How the server listens, what makes a round, and what it takes in and keeps.

    host, port: where to listen; port 0 takes a free one.
    rules: what makes a round; strategy: how its updates become the next model.
    max_upload_bytes: largest update; None: twice the full model and 1 MiB for the header.
    idle_seconds: how long an upload may send nothing before the connection is given up.
    expire_seconds: how long an unfinished upload is kept for the phone to go on with.
    retry_seconds: what a phone is told to wait that has no place in the round.
    models_kept: models kept on disk beside the exported one, the newest; None: all. The ledger remembers all of them.
    security: tokens, limits and TLS, see settings/security.py.

    Raises ValueError for a setting out of range.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    rules: RoundRules = field(default_factory=RoundRules)
    strategy: StrategySettings = field(default_factory=StrategySettings)
    max_upload_bytes: int | None = None
    idle_seconds: float = 60.0
    expire_seconds: float = 24 * 3600.0
    retry_seconds: float = 60.0
    models_kept: int | None = 5
    security: SecuritySettings = field(default_factory=SecuritySettings)

    def __post_init__(self) -> None:
        checks = (
            (0 <= self.port <= 65535, f"port is {self.port}, expected 0 to 65535"),
            (
                self.max_upload_bytes is None or self.max_upload_bytes >= 1,
                f"max_upload_bytes is {self.max_upload_bytes}, expected at least 1",
            ),
            (self.idle_seconds > 0, f"idle_seconds is {self.idle_seconds}, expected more than 0"),
            (self.expire_seconds > 0, f"expire_seconds is {self.expire_seconds}, expected more than 0"),
            (self.retry_seconds > 0, f"retry_seconds is {self.retry_seconds}, expected more than 0"),
            (
                self.models_kept is None or self.models_kept >= 1,
                f"models_kept is {self.models_kept}, expected at least 1",
            ),
        )
        for good, message in (*checks, *self._checks_of_both()):
            if not good:
                raise ValueError(message)

    def _checks_of_both(self) -> tuple[tuple[bool, str], ...]:
        """What rules and strategy must be together."""
        strategy, phones, name = strategy_of(self.strategy), self.rules.clients_per_round, self.strategy.strategy
        low, high = strategy.min_updates, strategy.max_updates
        return (
            (
                low <= phones <= high,
                f"clients_per_round is {phones}, expected {low} to {high} for {name}",
            ),
            (
                not self.strategy.private or self.rules.deadline_seconds is not None,
                f"deadline_seconds is None, expected a deadline for {name}: it draws its phones, "
                "and some will not come",
            ),
            (
                not self.strategy.private or self.rules.max_clients is None,
                f"max_clients is {self.rules.max_clients}, expected none for {name}: every phone it draws has a place, "
                "or epsilon would not hold",
            ),
            (
                not self.strategy.private or self.security.auth != "none",
                f"auth is 'none', expected tokens for {name}: anyone could speak for a phone that was drawn",
            ),
        )

    def upload_limit(self, model_bytes: int) -> int:
        """The largest update for a model file of `model_bytes`."""
        if self.max_upload_bytes is not None:
            return self.max_upload_bytes
        return 2 * model_bytes + HEADER_CAP_BYTES
