"""The open round, and what administrators do with rounds."""

import hashlib
import math
from functools import lru_cache
from typing import Annotated, Any

from msgspec import UNSET, UnsetType, structs
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from phonograd.device_runtime.base.documents import Count, Record, about
from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.client.protocol import PHONE_HEADER
from phonograd.server_agg.http.downloads import matches
from phonograd.server_agg.http.operations import JSON, RETRY_AFTER, Answer, Header, Parameter, operation
from phonograd.server_agg.http.requests import RecordResponse, in_query, note_phone, whole_number
from phonograd.server_agg.http.thread_pools import ThreadPools
from phonograd.server_agg.refusals import RestingPhoneError, RoundClosingError
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.responses import OpenRound
from phonograd.server_agg.storage.audit import AuditLog

WHO = Parameter("header", PHONE_HEADER, str, "Who asks: for the ledger, and to tell whether it has a place.")
SAID = (RETRY_AFTER, Header("ETag", str, "Hash of all that the answer says to this phone."), Header("Cache-Control"))
ROUND = in_query("round", "The round's number.", required=True)


class RoundForPhone(OpenRound, frozen=True, kw_only=True):
    """The open round or the closing one, and whether the phone that asks has a place in it."""

    accepted: Annotated[  # type: ignore[assignment]  # the one field that phones may not see
        Count | None, about("Accepted updates; null in a private round, but for administrators.")
    ]
    model_url: Annotated[str, about("Where the base model is.")]
    participate: Annotated[bool | UnsetType, about("Whether the phone that asks has a place.")] = UNSET
    reason: Annotated[str | UnsetType | None, about("Why it has none.")] = UNSET


class Discarded(Record, frozen=True):
    """Number of a round's updates that were deleted."""

    round: Count
    discarded: Count


class RoundRoutes:
    """The handlers over an open coordinator."""

    def __init__(self, coordinator: Coordinator, audit: AuditLog, pools: ThreadPools):
        self._coordinator = coordinator
        self._audit = audit
        self._pools = pools

    @operation(
        "GET /v1/round",
        "phone",
        {
            200: Answer("With the phone's place, if the phone names itself.", RoundForPhone, headers=SAID),
            304: Answer("The phone has this answer.", headers=SAID),
        },
        takes=(WHO, Parameter("header", "If-None-Match", str, "ETag of an answer that the phone has.")),
    )
    async def round(self, request: Request) -> Response:
        """The open round.

        For a phone that names itself, whether it has a place in it; Retry-After says when to ask again if it has none,
        or while the round is closing. How many took part in a private one is for administrators alone.
        """
        phone = note_phone(request, "round")
        refused = None
        if not self._coordinator.round.surely_admits(phone):
            refused = await run_in_threadpool(self._why_refused, phone)
        current = self._coordinator.current
        principal = request.scope["state"].get("principal")
        told: dict[str, Any] = {"model_url": f"/v1/models/{current.base_sha256}"}
        if current.private and (principal is None or principal.role != "admin"):
            told["accepted"] = None
        waits, seconds = current.closing is not None, self._coordinator.round.retry_seconds
        if phone:
            told |= {"participate": refused is None, "reason": None if refused is None else str(refused)}
            waits = waits or refused is not None
            if isinstance(refused, RestingPhoneError):
                seconds = refused.retry_seconds
        wait = str(math.ceil(seconds)) if waits else ""
        body, etag = _answer_body(RoundForPhone(**{**structs.asdict(current), **told}), wait)
        headers = {"ETag": etag, "Cache-Control": "private, no-cache"} | ({"Retry-After": wait} if waits else {})
        if matches(request.headers.get("If-None-Match"), etag):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=JSON)

    def _why_refused(self, phone: str) -> UpdateError | RoundClosingError | None:
        self._coordinator.round.refresh()
        return self._coordinator.participation(phone) if phone else None

    @operation(
        "POST /v1/rollback",
        "admin",
        {200: Answer("The round that is open now.", OpenRound)},
        refuses=(400, 404, 409, 503),
        takes=(ROUND,),
    )
    async def rollback(self, request: Request) -> Response:
        """Go back to the model that a round ended with; 0: the exported one."""
        number = whole_number(request, ROUND)
        opened = await self._pools.settling.run(self._coordinator.rollback, number)
        await self._pools.writing.run(self._audit.record_done, request.state.actor, "rollback", f"to round {number}")
        return RecordResponse(opened)

    @operation("POST /v1/discard", "admin", {200: Answer("How many.", Discarded)}, refuses=(400, 404), takes=(ROUND,))
    async def discard(self, request: Request) -> Response:
        """Delete the updates that are kept of a round that failed."""
        number = whole_number(request, ROUND)
        discarded = await self._pools.settling.run(self._coordinator.discard, number)
        await self._pools.writing.run(
            self._audit.record_done, request.state.actor, "discard", f"round {number}", f"{discarded} updates"
        )
        return RecordResponse(Discarded(number, discarded))


@lru_cache(maxsize=256)  # most phones are told the same
def _answer_body(told: RoundForPhone, retry_after: str) -> tuple[bytes, str]:
    body = bytes(RecordResponse(told).body)
    return body, f'"{hashlib.sha256(body + retry_after.encode()).hexdigest()[:32]}"'
