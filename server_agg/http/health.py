"""/healthz: whether the server can do its work, for whoever restarts it or sends phones elsewhere."""

from typing import Literal

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from phonograd.device_runtime.base.documents import Record
from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.http.operations import Answer, operation
from phonograd.server_agg.http.problems import ProblemResponse
from phonograd.server_agg.http.records import RecordResponse
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.storage import queries


class Health(Record, frozen=True):
    """The server can work."""

    status: Literal["ok"]


class HealthRoute:
    """The handler over an open coordinator."""

    def __init__(self, coordinator: Coordinator):
        self._coordinator = coordinator

    @operation("GET /healthz", "open", {200: Answer("It can.", Health)}, refuses=(503,))
    async def health(self, request: Request) -> Response:
        """Whether the server can work.

        The ledger is read, nothing is written.
        """
        del request
        wrong = await run_in_threadpool(self._wrong)
        headers = {"Cache-Control": "no-store"}
        if wrong is None:
            return RecordResponse(Health("ok"), headers=headers)
        return ProblemResponse(503, "Not healthy", wrong, headers)

    def _wrong(self) -> str | None:
        """What is wrong, in words that tell a stranger nothing of the machine; None if nothing is."""
        coordinator = self._coordinator
        try:
            with coordinator.ledger.reading() as session:
                if queries.open_round(session) is None:
                    return "no round is open; the server's log says why"
        except StorageError:
            return "the ledger does not answer; see the server's log"
        if coordinator.overdue:
            return "the round is due and cannot be closed; the server tries again, and its log says why"
        try:
            coordinator.folder.check_space(coordinator.current.model_bytes)
        except StorageError:
            return "the disk has no room for another model; free space"
        return None
