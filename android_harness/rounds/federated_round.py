"""A federated round on real phones: what the server has open, all phones at once, and what came of it."""

import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from phonograd.android_harness.phone_artifacts import phone_artifacts
from phonograd.android_harness.phones.facts import Phone
from phonograd.android_harness.rounds.base_model import fetch_base
from phonograd.android_harness.rounds.closing import Ending, await_end, read_ledger
from phonograd.android_harness.rounds.naming import phone_names
from phonograd.android_harness.rounds.phone_round import OpenSession, PhoneTask, Progress, RoundJob
from phonograd.android_harness.rounds.result import RoundReport
from phonograd.android_harness.rounds.settings import RoundSettings
from phonograd.android_harness.rounds.tokens import connection_of
from phonograd.android_harness.session import PROGRAM
from phonograd.device_runtime.base.errors import ServerRefusedError, TextError, UsageError
from phonograd.device_runtime.client.server_client import Connection, current_round
from phonograd.device_runtime.formats.manifest import Artifacts

Stopping = Callable[[], AbstractContextManager[Callable[[], int]]]
# How long phones have to end what they do after an interrupt; a session's own waits are shorter.
GRACE_SECONDS = 45.0
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class Aggregation:
    """The server, and who speaks to it: `tokens` by phone's name; None: all phones as `connection` says."""

    connection: Connection
    tokens: Mapping[str, str] | None = None

    def of(self, name: str) -> Connection:
        """How a phone reaches the server. Raises UsageError for one without a token."""
        return connection_of(self.connection, self.tokens, name)


def run_round(
    aggregation: Aggregation,
    artifacts: Artifacts,
    program: Path,
    cache: Path,
    phones: Sequence[Phone],
    names: Mapping[str, str],
    settings: RoundSettings,
    open_session: OpenSession,
    progress: Progress = lambda *_: None,
    stopping: Stopping = lambda: nullcontext(lambda: 0),
) -> RoundReport:
    """One round: fetch its model, train each phone on its own text, upload the updates, wait for the end.

    phones that are not ready are drop-outs; names: chosen ones by serial; program: the binary that phones run; cache:
    folder of fetched models. stopping: a context, entered when phones begin, that gives a function for the number of a
    signal that asks to end, 0 while there is none. What goes wrong with one phone is in its outcome. Raises UsageError,
    TextError, WeightsError, ServerRefusedError, ServerUnreachableError, StorageError before any phone is touched.
    """
    _check_texts(settings)
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    named = phone_names([phone.serial for phone in phones], names)
    speakers = {phone.serial: aggregation.of(named[phone.serial]) for phone in phones if phone.ready}
    # Who asks for what concerns all phones: who was named for it, else the first phone.
    asker = next(iter(speakers.values()), aggregation.connection)
    asker = aggregation.connection if aggregation.connection.token else asker
    opened = current_round(asker)
    if settings.training.codec not in opened.codecs:
        expected = ", ".join(opened.codecs)
        raise UsageError(f"codec {settings.training.codec}: one that {asker} takes expected: {expected}")
    # In the first phone's name, as its update will be sent, unless the token is another's.
    first = next(iter(speakers), None)
    try:
        fetcher, name = (asker, None) if first is None else (speakers[first], named[first])
        base = fetch_base(fetcher, artifacts, opened, cache, name)
    except ServerRefusedError as error:
        if error.status != 403:
            raise
        base = fetch_base(asker, artifacts, opened, cache)
    with tempfile.TemporaryDirectory(prefix="phonograd-") as scratch, stopping() as stop_signal:
        files = {PROGRAM: program, **phone_artifacts(artifacts, Path(scratch), base.path)}
        stop = threading.Event()
        job = RoundJob(files, opened, settings, open_session, stop, progress)
        connections = {phone.serial: speakers.get(phone.serial, asker) for phone in phones}
        tasks = [PhoneTask(job, phone, named[phone.serial], connections[phone.serial]) for phone in phones]
        _run_all(tasks, stop, stop_signal)
        outcomes = tuple(task.outcome() for task in tasks)
        receipts = [outcome.receipt for outcome in outcomes if outcome.receipt is not None]
        ending = Ending(None, None)
        if receipts and not stop_signal():
            ending = await_end(asker, opened.round, receipts, settings.wait_seconds, stop_signal)
        interrupted = stop_signal()
    with suppress(OSError):  # what the server does not have stays
        (settings.updates / f"round-{opened.round}").rmdir()
        settings.updates.rmdir()
    ledger, missing = read_ledger(asker, opened.round) if receipts else (None, "no update was accepted")
    return RoundReport(
        created=created,
        server=str(aggregation.connection),
        round=opened.round,
        clients_per_round=opened.clients_per_round,
        model_before=base.sha256,
        model_bytes=base.nbytes,
        downloaded_bytes=base.downloaded_bytes,
        closed=ending.closed,
        model_after=ending.model,
        settings=settings.document(),
        phones=outcomes,
        update_bytes=sum(receipt.bytes for receipt in receipts),
        ledger=ledger,
        ledger_missing=missing,
        interrupted=interrupted,
    )


def _check_texts(settings: RoundSettings) -> None:
    rehearsal = settings.training.rehearsal
    if rehearsal is not None and not rehearsal.is_file():
        raise TextError(f"{rehearsal}: a file of general text expected, not found")
    if settings.texts is not None and not settings.texts.is_dir():
        raise TextError(f"{settings.texts}: a folder with a text for each phone expected, not found")


def _run_all(tasks: Sequence[PhoneTask], stop: threading.Event, stop_signal: Callable[[], int]) -> None:
    """Run all tasks at once, to their end or, after a signal, until they had time to come to one."""
    # Daemons: a thread that waits on a server that says nothing must not keep the process from ending.
    threads = [threading.Thread(target=task.run, name=task.name, daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    until = float("inf")
    while any(thread.is_alive() for thread in threads) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        if stop_signal() and not stop.is_set():
            stop.set()
            until = time.monotonic() + GRACE_SECONDS
