"""What servers have done, and undoing it: asked of a server, or at its state folder or shared ledger without one.

`server` is a URL, a Connection with an administrator's rights (`connect`, `RunningServer.admin`), as a Path the state
folder of one on this machine, or the ServerStorage of several. All can be read at any time; a state folder is changed
while no server uses it, a shared ledger while no server closes a round.
"""

from pathlib import Path
from typing import Any, TypeAlias

from phonograd.device_runtime.client import server_client
from phonograd.device_runtime.client.owner_file import operator_name
from phonograd.device_runtime.client.server_client import Server, ask
from phonograd.server_agg.report.document import read_lineage, read_phones, read_report
from phonograd.server_agg.rounds import offline
from phonograd.server_agg.settings.storage import ServerStorage

Place: TypeAlias = Server | Path | ServerStorage


def report(server: Place) -> dict[str, Any]:
    """What every round cost, and totals, in bytes on the wire; `phonograd docs server` has the figures.

    server: a URL, a Connection, as a Path a state folder, or a ServerStorage, whose store is not needed. Raises
    ServerRefusedError, ServerUnreachableError, StorageError where there is no ledger.
    """
    return read_report(server) if isinstance(server, Path | ServerStorage) else server_client.report(server)


def round_report(server: Place, round_number: int) -> list[dict[str, Any]]:
    """What each phone cost in one round. Raises as `report` does, and for a round that is not there."""
    if isinstance(server, Path | ServerStorage):
        return read_phones(server, round_number)
    phones: list[dict[str, Any]] = ask(server, "GET", f"/v1/report/rounds/{round_number}")["phones"]
    return phones


def models(server: Place) -> list[dict[str, Any]]:
    """Every model by the round that ended with it (0: the exported one), and its parent.

    Raises as `report` does, and UsageError for a shared ledger without its store.
    """
    if isinstance(server, Path | ServerStorage):
        return read_lineage(server)
    listed: list[dict[str, Any]] = ask(server, "GET", "/v1/models")["models"]
    return listed


def rollback(server: Place, round_number: int) -> dict[str, Any]:
    """Go back to the model that round `round_number` ended with (0: the exported one): the round that is open now.

    The open round ends without a result and its updates are discarded. Raises as `models` does, and for a round that is
    not there or whose model is no longer kept; StorageError for the folder of a server that runs, and for a shared
    ledger while a server closes a round.
    """
    if isinstance(server, Path | ServerStorage):
        return dict(offline.roll_back(server, round_number, operator_name()))
    return ask(server, "POST", f"/v1/rollback?round={round_number}")


def discard(server: Place, round_number: int) -> dict[str, Any]:
    """Delete the updates of a round that failed, which are kept until then: how many. Raises as `rollback` does."""
    if isinstance(server, Path | ServerStorage):
        return {"round": round_number, "discarded": offline.discard(server, round_number, operator_name())}
    return ask(server, "POST", f"/v1/discard?round={round_number}")
