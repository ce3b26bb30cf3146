"""After the uploads: wait for the round to close, and read its bytes from the server's ledger."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from phonograd.android_harness.rounds.result import ServerLedger
from phonograd.device_runtime.base.errors import PhonogradError, ServerRefusedError, ServerUnreachableError
from phonograd.device_runtime.client.server_client import RetryPolicy, Server, UploadReceipt, ask, current_round, report

POLL_SECONDS = 1.0


@dataclass(frozen=True)
class RoundEnd:
    """Whether a round has closed (None: the server did not answer), and the hash of its new model if known."""

    closed: bool | None
    model: str | None


def wait_for_end(
    server: Server, number: int, receipts: Iterable[UploadReceipt], wait_seconds: float, stop: Callable[[], int]
) -> RoundEnd:
    """Wait until round `number` has closed, `wait_seconds` have passed, or `stop` returns a signal's number.

    While the round is closing, it waits longer, by up to RetryPolicy.closing_seconds, unless wait_seconds is 0. No wait
    is needed if a receipt says that the round has closed.
    """
    for receipt in receipts:
        if receipt.round == number and receipt.round_closed:
            return RoundEnd(True, receipt.model_sha256)
    usual = time.monotonic() + wait_seconds
    longer = usual + RetryPolicy.closing_seconds if wait_seconds else usual
    while True:
        try:
            opened = current_round(server)
        except (ServerUnreachableError, ServerRefusedError):
            opened = None
        ending = RoundEnd(None, None)
        if opened is not None:
            # A later round's model is not this one's result.
            ending = RoundEnd(opened.round != number, opened.base_sha256 if opened.round == number + 1 else None)
        until = usual if opened is None or opened.closing_seconds is None else longer
        if ending.closed or stop() or time.monotonic() >= until:
            return ending
        time.sleep(min(POLL_SECONDS, max(0.0, until - time.monotonic())))


def read_ledger(server: Server, number: int) -> tuple[ServerLedger | None, str | None]:
    """The server's ledger of round `number`, or why it is missing; servers with tokens ask for an administrator's."""
    try:
        rounds = report(server)["rounds"]
        phones = ask(server, "GET", f"/v1/report/rounds/{number}")["phones"]
        (ended,) = [entry for entry in rounds if entry["round"] == number]
    except PhonogradError as error:
        return None, str(error)
    except (KeyError, TypeError, ValueError) as error:
        return None, f"{server}: its report lacks a field or holds a wrong one ({error!r})"
    return ServerLedger(ended, tuple(phones)), None
