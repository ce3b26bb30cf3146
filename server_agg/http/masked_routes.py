"""Masked rounds: what phones send in each stage, until they are answered with what the next one needs."""

import math
from collections.abc import Mapping
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
    """What all messages of a masked round have: its number, and the phone's name."""

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
    """Its draw, from which and others' it follows who is whose neighbour."""

    draw: Key


class SharesRequest(MaskedRequest, frozen=True, kw_only=True):
    """The sealed shares of its secrets, by holder."""

    shares: Annotated[dict[Name, Sealed], Meta(max_length=255)]


class ListRequest(MaskedRequest, frozen=True, kw_only=True):
    """It has sent its update, or could not."""


class AgreementRequest(MaskedRequest, frozen=True, kw_only=True):
    """Its signature of the list of those that are alive."""

    signature: Signature


class AnswerRequest(MaskedRequest, frozen=True, kw_only=True):
    """Its own self mask, and of each member that it holds shares of, one of them."""

    self_: Key = msgspec.field(name="self")
    shares: Annotated[dict[Name, Key], Meta(max_length=4096)]


class CohortAnswer(Record, frozen=True):
    """The messages of the cohort's phones."""

    cohort: list[PhoneKeys]


class DrawsAnswer(Record, frozen=True):
    """The draws, by phone."""

    draws: dict[str, str]


class MembersAnswer(Record, frozen=True):
    """Those that have sent shares, and the shares sealed for the phone that asks, by sender."""

    members: list[str]
    shares: dict[str, str]


class ListAnswer(Record, frozen=True):
    """The members whose update was accepted."""

    alive: list[str]


class SignaturesAnswer(Record, frozen=True):
    """The signatures of that list, by phone."""

    signatures: dict[str, str]


class Taken(Record, frozen=True):
    """The phone has done its part."""


WAIT = Answer("The stage goes on: send the same again after Retry-After.", headers=(RETRY_AFTER,))
REFUSES = (400, 403, 409, 410, 413, 422, 503)


def _answers(kind: type[Record]) -> Mapping[int, Answer]:
    return {200: Answer("What the next stage needs.", kind), 202: WAIT}


class MaskedRoutes:
    """The handlers over an open coordinator."""

    def __init__(self, coordinator: Coordinator, pools: ThreadPools):
        self._coordinator = coordinator
        self._pools = pools

    @operation("POST /v1/masked/keys", "phone", _answers(CohortAnswer), refuses=REFUSES, body=Body(KeysRequest))
    async def masked_keys(self, request: Request) -> Response:
        """Come to a masked round's cohort, with an update that is ready.

        Once the cohort is fixed, the keys of all its phones.
        """
        return await self._taken(request, KeysRequest, "keys", "keys")

    @operation("POST /v1/masked/draws", "phone", _answers(DrawsAnswer), refuses=REFUSES, body=Body(DrawsRequest))
    async def masked_draws(self, request: Request) -> Response:
        """Tell the draw. Once all have, or the stage's time is over, everybody's."""
        return await self._taken(request, DrawsRequest, "draws", "keys")

    @operation("POST /v1/masked/shares", "phone", _answers(MembersAnswer), refuses=REFUSES, body=Body(SharesRequest))
    async def masked_shares(self, request: Request) -> Response:
        """Leave shares of the secrets with others.

        Once the members are fixed, who they are and the shares for this phone; the masked update is then awaited.
        """
        return await self._taken(request, SharesRequest, "shares", "shares")

    @operation("POST /v1/masked/list", "phone", _answers(ListAnswer), refuses=REFUSES, body=Body(ListRequest))
    async def masked_list(self, request: Request) -> Response:
        """Ask whose masked updates were accepted."""
        return await self._taken(request, ListRequest, "list", "unmasking")

    @operation(
        "POST /v1/masked/agreement", "phone", _answers(SignaturesAnswer), refuses=REFUSES, body=Body(AgreementRequest)
    )
    async def masked_agreement(self, request: Request) -> Response:
        """Sign that list; once enough have, their signatures."""
        return await self._taken(request, AgreementRequest, "agreement", "unmasking")

    @operation(
        "POST /v1/masked/answer",
        "phone",
        {200: Answer("It has done its part.", Taken)},
        refuses=REFUSES,
        body=Body(AnswerRequest),
    )
    async def masked_answer(self, request: Request) -> Response:
        """Give what takes the masks out of the sum."""
        return await self._taken(request, AnswerRequest, "answer", "unmasking")

    async def _taken(self, request: Request, record: type[Record], kind: RequestKind, counted: TrafficKind) -> Response:
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
            wait = math.ceil(self._coordinator.poll_seconds)
            return Response(status_code=202, headers={"Retry-After": str(wait)})
        return RecordResponse(answer)
