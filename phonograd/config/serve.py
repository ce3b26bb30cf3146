"""The file of `phonograd serve`."""

from pathlib import Path
from typing import Annotated

from phonograd.config.layout import Layout, table
from phonograd.config.strategies import STRATEGY, STRATEGY_TABLES, publish_tables
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Settings
from phonograd.server_agg.aggregation.settings import STRATEGIES
from phonograd.server_agg.log_format import DEFAULT_FORMAT, LogFormat
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.settings.server import ServerSettings

MASKED = "rounds.masked"


class Serving(Settings, frozen=True):
    """What the command `serve` reads and writes."""

    artifacts: Annotated[Path, about("The artifacts folder that phones train from.")]
    state: Annotated[Path, about("Folder for rounds, models and the ledger; created if missing.")]
    log_format: Annotated[LogFormat, about("Format of the log lines on stderr; json: one object a line.")] = (
        DEFAULT_FORMAT
    )


class Masking(Settings, frozen=True):
    """Whether rounds are masked."""

    masked: Annotated[bool, about("The server sees sums alone; with the table [masked].")] = False


SERVE = Layout(
    "serve",
    (
        table("", Serving),
        table(
            "server",
            ServerSettings,
            *("host", "port", "ledger", "store", "downloads", "max_upload_bytes", "idle_seconds", "expire_seconds"),
            *("announce_seconds", "retry_seconds", "models_kept", "links_kept", "end_privacy", "accept_noise"),
        ),
        table(
            "rounds",
            RoundRules,
            *("clients_per_round", "min_clients", "max_clients", "deadline_seconds", "late", "deploy_every"),
        ),
        table("rounds", Masking),
        *publish_tables(RoundRules),
        *STRATEGY_TABLES,
        table(
            "masked",
            MaskedSettings,
            *("cohort", "min_cohort", "bits", "support", "clip", "weight_cap", "distributed_noise", "curious"),
            *("dropouts", "stage_seconds", "vendor"),
            about="Masked rounds. All phones weigh the same with weight_cap 1.",
            chosen_by=(MASKED, (True,)),
        ),
        table("security", SecuritySettings),
    ),
    flags={
        "artifacts": "",
        "state": "",
        "server.host": "",
        "server.port": "",
        "rounds.clients_per_round": "",
        "rounds.deadline_seconds": "",
        STRATEGY: "--strategy",
        MASKED: "",
        "security.tls_cert": "",
        "security.tls_key": "",
        "server.end_privacy": "",
        "server.accept_noise": "",
        "log_format": "",
    },
    own=STRATEGY,
    known=STRATEGIES,
)
