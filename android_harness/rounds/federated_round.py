"""A federated round: fetch the model, train on all phones in parallel, upload the updates, report."""

import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import datetime, timezone
from pathlib import Path

from phonograd.android_harness.phone_artifacts import phone_artifacts
from phonograd.android_harness.phones.facts import Phone
from phonograd.android_harness.rounds.base_model import fetch_base_model
from phonograd.android_harness.rounds.naming import phone_names
from phonograd.android_harness.rounds.phone_task import OpenSession, Progress, RoundJob, RoundTask
from phonograd.android_harness.rounds.result import RoundReport
from phonograd.android_harness.rounds.round_end import RoundEnd, read_ledger, wait_for_end
from phonograd.android_harness.rounds.settings import RoundSettings
from phonograd.android_harness.rounds.tokens import ServerAccess
from phonograd.android_harness.session import PROGRAM
from phonograd.device_runtime.base.errors import ServerRefusedError, TextError, UsageError
from phonograd.device_runtime.client.server_client import Waiting, open_round
from phonograd.device_runtime.formats.manifest import Artifacts

Stopping = Callable[[], AbstractContextManager[Callable[[], int]]]
# How long phones may take to stop after an interrupt; all waits of a session are shorter.
GRACE_SECONDS = 45.0
POLL_SECONDS = 0.1


def run_round(
    access: ServerAccess,
    artifacts: Artifacts,
    program: Path,
    cache: Path,
    phones: Sequence[Phone],
    names: Mapping[str, str],
    settings: RoundSettings,
    open_session: OpenSession,
    progress: Progress = lambda *_: None,
    stopping: Stopping = lambda: nullcontext(lambda: 0),
    waiting: Waiting | None = None,
) -> RoundReport:
    """Run a round: fetch its model, train each phone on its own text, upload the updates, wait for the round's end.

    If a round is closing, it first waits for the next one; waiting: see `open_round`. Phones that are not ready drop
    out. names: chosen names by serial; program: the binary for phones; cache: folder of downloaded models. stopping: a
    context, entered when phones start, whose function returns the number of a signal that asks to stop, or 0. A phone's
    error is part of its outcome. Raises UsageError, TextError, WeightsError, ServerRefusedError,
    ServerUnreachableError, StorageError before any phone is used.
    """
    _check_texts(settings)
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    named = phone_names([phone.serial for phone in phones], names)
    connections = {phone.serial: access.connection_of(named[phone.serial]) for phone in phones if phone.ready}
    # Requests for all phones use the token given by --token, else the first phone's.
    shared = next(iter(connections.values()), access.connection)
    shared = access.connection if access.connection.token else shared
    opened = open_round(shared, waiting=waiting)
    if settings.masking.masked_only:
        opened.require_masked()
    if opened.masked is None and settings.training.codec not in opened.codecs:
        expected = ", ".join(opened.codecs)
        raise UsageError(f"codec {settings.training.codec}: {shared} accepts {expected}; choose one of these")
    opened.require_steps(settings.training.steps)
    # Download in the first phone's name, unless its token is for another name.
    first = next(iter(connections), None)
    try:
        fetcher, name = (shared, None) if first is None else (connections[first], named[first])
        base = fetch_base_model(fetcher, artifacts, opened, cache, name)
    except ServerRefusedError as error:
        if error.status != 403:
            raise
        base = fetch_base_model(shared, artifacts, opened, cache)
    with tempfile.TemporaryDirectory(prefix="phonograd-") as scratch, stopping() as stop_signal:
        files = {PROGRAM: program, **phone_artifacts(artifacts, Path(scratch), base.path)}
        stop = threading.Event()
        job = RoundJob(files, opened, settings, open_session, stop, progress)
        connections = {phone.serial: connections.get(phone.serial, shared) for phone in phones}
        tasks = [RoundTask(job, phone, named[phone.serial], connections[phone.serial]) for phone in phones]
        _run_all(tasks, stop, stop_signal)
        outcomes = tuple(task.outcome() for task in tasks)
        receipts = [outcome.receipt for outcome in outcomes if outcome.receipt is not None]
        ending = RoundEnd(None, None)
        if receipts and not stop_signal():
            ending = wait_for_end(shared, opened.round, receipts, settings.wait_seconds, stop_signal)
        interrupted = stop_signal()
    with suppress(OSError):  # not empty while it holds updates that the server does not have
        (settings.updates / f"round-{opened.round}").rmdir()
        settings.updates.rmdir()
    ledger, missing = read_ledger(shared, opened.round) if receipts else (None, "no update was accepted")
    return RoundReport(
        created=created,
        server=str(access.connection),
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
        masked=opened.masked is not None,
    )


def _check_texts(settings: RoundSettings) -> None:
    rehearsal = settings.training.rehearsal
    if rehearsal is not None and not rehearsal.is_file():
        raise TextError(f"{rehearsal}: file of general text not found")
    if settings.texts is not None and not settings.texts.is_dir():
        raise TextError(f"{settings.texts}: folder with a text for each phone not found")


def _run_all(tasks: Sequence[RoundTask], stop: threading.Event, stop_signal: Callable[[], int]) -> None:
    """Run all tasks in parallel to their end; after a signal, for at most GRACE_SECONDS more."""
    # Daemons: a thread that waits for a silent server must not keep the process from exiting.
    threads = [threading.Thread(target=task.run, name=task.name, daemon=True) for task in tasks]
    for thread in threads:
        thread.start()
    until = float("inf")
    while any(thread.is_alive() for thread in threads) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)
        if stop_signal() and not stop.is_set():
            stop.set()
            until = time.monotonic() + GRACE_SECONDS
