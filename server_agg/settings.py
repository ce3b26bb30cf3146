"""The server's settings: the one place that declares their defaults."""

from dataclasses import dataclass, field

from device_runtime.tensor_file import HEADER_CAP_BYTES
from server_agg.security.settings import SecuritySettings
from server_agg.strategies import Strategy, strategy_named


@dataclass(frozen=True)
class ServerSettings:
    """How the server listens, and what makes a round.

    host, port: where to listen; port 0 takes a free one.
    clients_per_round: accepted updates that close a round (paper P: 10).
    strategy, weighting: how updates are averaged, see strategies.py.
    max_tokens: the most tokens an update may claim; they are its weight, and nobody can check them.
    max_upload_bytes: largest body of an upload; None: twice the full model and 1 MiB for the header.
    idle_seconds: how long an upload may send nothing before it is given up.
    models_kept: averaged models kept on disk, the newest; the ledger remembers all of them.
    security: tokens, limits and TLS, see security/settings.py.

    Raises ValueError for a setting out of range.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    clients_per_round: int = 10
    strategy: str = "fedavg"
    weighting: str = "tokens"
    max_tokens: int = 10_000_000
    max_upload_bytes: int | None = None
    idle_seconds: float = 60.0
    models_kept: int = 10
    security: SecuritySettings = field(default_factory=SecuritySettings)

    def __post_init__(self) -> None:
        checks = (
            (0 <= self.port <= 65535, f"port is {self.port}, expected 0 to 65535"),
            (self.clients_per_round >= 1, f"clients_per_round is {self.clients_per_round}, expected at least 1"),
            (self.max_tokens >= 1, f"max_tokens is {self.max_tokens}, expected at least 1"),
            (
                self.max_upload_bytes is None or self.max_upload_bytes >= 1,
                f"max_upload_bytes is {self.max_upload_bytes}, expected at least 1",
            ),
            (self.idle_seconds > 0, f"idle_seconds is {self.idle_seconds}, expected more than 0"),
            (self.models_kept >= 1, f"models_kept is {self.models_kept}, expected at least 1"),
        )
        for good, message in checks:
            if not good:
                raise ValueError(message)
        self.make_strategy()

    def make_strategy(self) -> Strategy:
        """The strategy these settings name. Raises ValueError for an unknown one."""
        return strategy_named(self.strategy, self.weighting, self.max_tokens)

    def upload_limit(self, model_bytes: int) -> int:
        """The largest body of an upload for a model file of `model_bytes`."""
        if self.max_upload_bytes is not None:
            return self.max_upload_bytes
        return 2 * model_bytes + HEADER_CAP_BYTES
