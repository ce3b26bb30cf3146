"""The report of what rounds cost, as JSON and as CSV."""

import contextlib

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from phonograd.device_runtime.base.documents import Count, Record, document_of
from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.http.operations import Answer, Natural, Parameter, operation
from phonograd.server_agg.http.requests import RecordResponse
from phonograd.server_agg.http.thread_pools import ThreadPools
from phonograd.server_agg.report.document import phones_of, report_of
from phonograd.server_agg.report.records import PhoneCost, Report
from phonograd.server_agg.report.text import report_csv
from phonograd.server_agg.rounds.coordinator import Coordinator

CSV = "text/csv; charset=utf-8"


class PhonesOfRound(Record, frozen=True):
    """The cost of each phone in a round."""

    round: Count
    phones: tuple[PhoneCost, ...]


class ReportRoutes:
    """The handlers over an open coordinator."""

    def __init__(self, coordinator: Coordinator, pools: ThreadPools):
        self._coordinator = coordinator
        self._pools = pools

    @operation("GET /v1/report", "admin", {200: Answer("The report.", Report)})
    async def report(self, _: Request) -> Response:
        """What each round cost, in bytes by kind and direction."""
        return RecordResponse(await self._report())

    @operation("GET /v1/report.csv", "admin", {200: Answer("A line a round.", str, (CSV,))})
    async def report_csv(self, _: Request) -> Response:
        """The report as CSV: a line for each round."""
        return PlainTextResponse(report_csv(document_of(await self._report())), media_type="text/csv")

    @operation(
        "GET /v1/report/rounds/{number:int}",
        "admin",
        {200: Answer("The phones.", PhonesOfRound)},
        refuses=(404,),
        takes=(Parameter("path", "number", Natural),),
    )
    async def phones_of_round(self, request: Request) -> Response:
        """What each phone cost in a round."""
        number = int(request.path_params["number"])
        await self._flush()
        phones = await run_in_threadpool(phones_of, self._coordinator.ledger, number)
        return RecordResponse(PhonesOfRound(number, tuple(phones)))

    async def _report(self) -> Report:
        await self._flush()
        return await run_in_threadpool(report_of, self._coordinator.ledger)

    async def _flush(self) -> None:
        with contextlib.suppress(StorageError):  # on a full disk the report is of all that was written before
            await self._pools.writing.run(self._coordinator.ledger.flush)
