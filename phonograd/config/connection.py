"""Keys of every command that may talk to a server. A token is no key: it is a secret."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from phonograd.config.layout import GIVEN, table
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import NotNegative, Settings
from phonograd.device_runtime.client.connection import MIN_PIECE_BYTES
from phonograd.device_runtime.client.waiting import WAIT_SECONDS

SERVER = "server"
WAIT = "connection.wait_seconds"


class Reach(Settings, frozen=True):
    """How to reach a server, and where its models are kept."""

    server: Annotated[str | None, about("For example http://127.0.0.1:8080")] = None
    ca_cert: Annotated[Path | None, about("PEM file of a certificate authority to trust in place of the system's.")] = (
        None
    )
    token_over_http: Annotated[bool, about("Send the token unencrypted to another machine.")] = False
    models_from: Annotated[
        tuple[str, ...], about("Where else the server may send for a model.  [default: with https, https anywhere]")
    ] = ()
    piece_size: Annotated[
        int | None,
        Meta(ge=MIN_PIECE_BYTES),
        about("Bytes of an update to send at once.  [default: all; after a refusal (413), ever smaller pieces]"),
    ] = None
    wait_seconds: Annotated[
        NotNegative, about("Seconds to wait for a server on this machine that refuses connections: it may be starting.")
    ] = WAIT_SECONDS
    model_cache: Annotated[
        Path | None,
        about(
            "Folder of downloaded models, for each server and phone.  [default: PHONOGRAD_MODEL_CACHE in the "
            "environment, or ~/.cache/phonograd/models]"
        ),
    ] = None


SERVER_TABLE = table("", Reach, SERVER)
CONNECTION_TABLE = table(
    "connection",
    Reach,
    *("ca_cert", "token_over_http", "models_from", "piece_size", "wait_seconds", "model_cache"),
    chosen_by=(SERVER, (GIVEN,)),
)
