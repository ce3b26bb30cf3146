"""Masked rounds: what phones send in each stage, until they are answered with what the next one needs."""

import math
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from phonograd.device_runtime.base.documents import Count, Record, Sha256
from phonograd.server_agg.http.operations import RETRY_AFTER, Answer, Body, operation
from phonograd.server_agg.http.requests import RecordResponse, checked_name, phone_of, record_in
from phonograd.server_agg.http.thread_pools import ThreadPools
from phonograd.server_agg.http.wire import wire_of
from phonograd.server_agg.masked.stages import RequestKind
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.storage.tables import TrafficKind

MAX_MESSAGE_BYTES = 1 << 20  # a share of each of 4,096 phones
Name = Annotated[str, Meta(max_length=64)]
Key = Sha256  # 32 bytes in hex
Signature = Annotated[str, Meta(pattern="^[0-9a-f]{128}$", max_length=128)]
MaybeSignature = Annotated[str, Meta(pattern="^([0-9a-f]{128})?$", max_length=128)]
Sealed = Annotated[str, Meta(pattern="^[0-9a-f]{162}$", max_length=162)]


class MaskedRequest(Record, frozen=True, kw_only=True):
    """Fields of all messages of a masked round: its number, and the phone's name."""

    round: Count
    phone: Name


class PhoneKeys(Record, frozen=True, kw_only=True):
    """A phone's keys for a round, signed. self, draw: the hashes of its self mask and its draw. FORMAT.md has them."""

    phone: Name
    identity: Key
    certificate: MaybeSignature
    sealing: Key
    masking: Key
    self_: Key = msgspec.field(name="self")
    draw: Key
    signature: Signature


class KeysRequest(PhoneKeys, frozen=True, kw_only=True):
    """A phone's keys for round `round`."""

    round: Count


class DrawsRequest(MaskedRequest, frozen=True, kw_only=True):
    """A phone's draw; all draws together decide who is whose neighbour."""

    draw: Key


class SharesRequest(MaskedRequest, frozen=True, kw_only=True):
    """The sealed shares of its secrets, by holder."""

    shares: Annotated[dict[Name, Sealed], Meta(max_length=255)]


class MembersRequest(MaskedRequest, frozen=True, kw_only=True):
    """A phone's signature of who the members are, which binds its update to them."""

    signature: Signature


class ListRequest(MaskedRequest, frozen=True, kw_only=True):
    """A phone has sent its update, or could not."""


class AgreementRequest(MaskedRequest, frozen=True, kw_only=True):
    """A phone's signature of the list of members that are alive."""

    signature: Signature


class AnswerRequest(MaskedRequest, frozen=True, kw_only=True):
    """A phone's self mask, and one share of each member whose shares it holds."""

    self_: Key = msgspec.field(name="self")
    shares: Annotated[dict[Name, Key], Meta(max_length=4096)]


class CohortAnswer(Record, frozen=True):
    """The messages of the cohort's phones."""

    cohort: list[PhoneKeys]


class DrawsAnswer(Record, frozen=True):
    """The draws, by phone."""

    draws: dict[str, str]


class MembersAnswer(Record, frozen=True):
    """The members that have sent shares, and the shares sealed for the phone that asks, by sender."""

    members: list[str]
    shares: dict[str, str]


class ListAnswer(Record, frozen=True):
    """The members whose update was accepted, and the members' signatures of who they are, by phone."""

    alive: list[str]
    signatures: dict[str, str]


class SignaturesAnswer(Record, frozen=True):
    """The signatures of that list, by phone."""

    signatures: dict[str, str]


class Taken(Record, frozen=True):
    """The message was taken."""


WAIT = Answer("The stage goes on: send the same again after Retry-After.", headers=(RETRY_AFTER,))
REFUSES = (400, 403, 409, 410, 413, 422, 503)


def _taking(
    kind: RequestKind, body: type[Record], answer: type[Record], counted: TrafficKind, summary: str
) -> Callable[["MaskedRoutes", Request], Awaitable[Response]]:
    """The handler of a kind of messages. counted: what their bytes are counted as."""

    async def handler(routes: "MaskedRoutes", request: Request) -> Response:
        return await routes.take(request, body, kind, counted)

    handler.__name__, handler.__doc__ = f"masked_{kind}", summary
    answers = {200: Answer("What the next stage needs.", answer), 202: WAIT}
    if answer is Taken:
        answers = {200: Answer("The message was taken.", answer)}
    return operation(f"POST /v1/masked/{kind}", "phone", answers, refuses=REFUSES, body=Body(body))(handler)


class MaskedRoutes:
    """The handlers over an open coordinator."""

    def __init__(self, coordinator: Coordinator, pools: ThreadPools):
        self._coordinator = coordinator
        self._pools = pools

    masked_keys = _taking(
        "keys", KeysRequest, CohortAnswer, "keys", "Come to a masked round's cohort, with an update that is ready."
    )
    masked_draws = _taking("draws", DrawsRequest, DrawsAnswer, "keys", "Tell the draw.")
    masked_shares = _taking(
        "shares", SharesRequest, MembersAnswer, "shares", "Leave shares of the secrets with others, before the update."
    )
    masked_members = _taking("members", MembersRequest, Taken, "shares", "Sign who the members are, before the update.")
    masked_list = _taking("list", ListRequest, ListAnswer, "unmasking", "Ask whose masked updates were accepted.")
    masked_agreement = _taking("agreement", AgreementRequest, SignaturesAnswer, "unmasking", "Sign that list.")
    masked_answer = _taking("answer", AnswerRequest, Taken, "unmasking", "Give what takes the masks out of the sum.")

    async def take(self, request: Request, record: type[Record], kind: RequestKind, counted: TrafficKind) -> Response:
        """Take a message, which is one of these records."""
        wire_of(request.scope).kind = counted
        message: dict[str, Any] = msgspec.to_builtins(await record_in(request, record, MAX_MESSAGE_BYTES))
        number, phone = message.pop("round"), checked_name(message["phone"])
        if phone_of(request) not in (None, phone):
            raise RequestError(403, f"phone: {phone_of(request)}, who asks, expected, found {phone}")
        wire_of(request.scope).phone = phone
        if kind != "keys":
            del message["phone"]
        answer = await self._pools.settling.run(self._coordinator.masked_message, kind, phone, number, message)
        if answer is None:
            wait = math.ceil(self._coordinator.round.poll_seconds)
            return Response(status_code=202, headers={"Retry-After": str(wait)})
        return RecordResponse(answer)
