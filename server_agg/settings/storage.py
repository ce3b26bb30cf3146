"""Where servers keep their ledger and their files, for commands that work without a server."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ServerStorage:
    """Places where the servers of one service keep what they know, as `phonograd serve` was told.

    ledger: the state folder of the one server, or the URL of the database of PostgreSQL's that several share.
    store: the URL of the object store that has their models and updates; None: the state folder.
    """

    ledger: Path | str
    store: str | None = None


def storage_at(place: Path | ServerStorage) -> ServerStorage:
    """`place`, or the storage of a server that keeps all in this state folder."""
    return ServerStorage(place) if isinstance(place, Path) else place
