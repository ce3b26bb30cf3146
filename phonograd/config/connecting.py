"""How to reach a server, for the files of commands that talk to one."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Settings
from phonograd.device_runtime.client.connection import MIN_PIECE_BYTES


class ConnectionSettings(Settings, frozen=True):
    """How to reach a server. Who asks is told by a token, a secret that no file has."""

    ca_cert: Annotated[Path | None, about("PEM file of a certificate authority to trust.  [default: the system's]")] = (
        None
    )
    token_over_http: Annotated[bool, about("Send the token unencrypted to another machine.")] = False
    models_from: Annotated[
        tuple[str, ...],
        about("Where else the server may send for a model, URLs.  [default: with https, https anywhere]"),
    ] = ()
    piece_size: Annotated[
        int | None,
        Meta(ge=MIN_PIECE_BYTES),
        about(
            "Bytes of an update to send at once.  [default: all; where a proxy refuses that (413), ever smaller pieces]"
        ),
    ] = None
    model_cache: Annotated[
        Path | None,
        about(
            "Folder of downloaded models, for each server and phone.  [default: $PHONOGRAD_MODEL_CACHE, else "
            "~/.cache/phonograd/models]"
        ),
    ] = None
