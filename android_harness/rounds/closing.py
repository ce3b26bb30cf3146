"""After the uploads: waiting for the round to close, and what the server says it cost."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from phonograd.android_harness.rounds.result import ServerLedger
from phonograd.device_runtime.base.errors import PhonogradError, ServerRefusedError, ServerUnreachableError
from phonograd.device_runtime.client.server_client import Server, UploadReceipt, ask, current_round, report

POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Ending:
    """Whether a round has closed (None: the server could not be asked), and the model that came of it, if known."""

    closed: bool | None
    model: str | None


def await_end(
    server: Server, number: int, receipts: Iterable[UploadReceipt], wait_seconds: float, stop: Callable[[], int]
) -> Ending:
    """How round `number` stands, at the latest `wait_seconds` from now, or when `stop` gives a signal's number.

    A receipt that saw it close says it all.
    """
    for receipt in receipts:
        if receipt.round == number and receipt.round_closed:
            return Ending(True, receipt.model_sha256)
    until = time.monotonic() + wait_seconds
    while True:
        ending = _ask(server, number)
        if ending.closed or stop() or time.monotonic() >= until:
            return ending
        time.sleep(min(POLL_SECONDS, max(0.0, until - time.monotonic())))


def _ask(server: Server, number: int) -> Ending:
    try:
        opened = current_round(server)
    except (ServerUnreachableError, ServerRefusedError):
        return Ending(None, None)
    if opened.round == number:
        return Ending(False, None)
    # A later round's model is not this one's result.
    return Ending(True, opened.base_sha256 if opened.round == number + 1 else None)


def read_ledger(server: Server, number: int) -> tuple[ServerLedger | None, str | None]:
    """The server's account of round `number`, or why there is none: it takes an administrator's token, if any."""
    try:
        rounds = report(server)["rounds"]
        phones = ask(server, "GET", f"/v1/report/rounds/{number}")["phones"]
        (found,) = [entry for entry in rounds if entry["round"] == number]
    except PhonogradError as error:
        return None, str(error)
    except (KeyError, TypeError, ValueError) as error:
        return None, f"{server}: its report lacks a field or holds a wrong one ({error!r})"
    return ServerLedger(found, tuple(phones)), None
