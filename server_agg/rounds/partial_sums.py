"""A round over several servers: each sums the updates that it accepted, and the one that closes merges these sums.

A process that hears that its round is closing stores its sum, and then says so in its row of `processes`. The closer
waits for those that live. What a dead one had, or one whose sum is not of all its updates, it folds again from the
stored updates. Sums are of integers, so the model is the same, whoever folded what.
"""

import hashlib
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.base.files import regular_file, storage_errors
from phonograd.server_agg.aggregation.fold import SumLimitError
from phonograd.server_agg.aggregation.strategy import ClientUpdate, FoldedAggregation
from phonograd.server_agg.rounds.aggregator import RoundAggregator
from phonograd.server_agg.rounds.log_events import log_event
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.databases import upsert
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Process, Update

# A process renews its row every second: one that has not for this long is dead.
ALIVE_SECONDS = 5.0
# How long the sum of a process that lives is waited for.
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.05
# Objects of a sum in the store, and how many are on their way at once.
CHUNK_BYTES = 8 << 20
STREAMS = 4

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def beat(ledger: Ledger) -> None:
    """Tell the other servers that this one lives."""
    _tell(ledger, seen_at=ledger.clock())


def share(aggregator: RoundAggregator, folder: StateFolder, ledger: Ledger) -> None:
    """Store this process' sum of the round for the server that closes it, unless it has none. Raises StorageError."""
    number, process = aggregator.row.number, ledger.process
    if aggregator.shared or all(row.process != process for row in aggregator.rows()):
        return
    if aggregator.covered != {process}:  # merged by a closing that failed
        aggregator.invalidate()
    if not aggregator.settings.is_own and isinstance(mine := aggregator.aggregation, FoldedAggregation):
        store, place, digest = folder.shared_store, _place(number, str(process)), hashlib.sha256()

        def write(numbered: tuple[int, bytes]) -> None:
            store.write(numbered[1], f"{place}/{numbered[0]}")

        for _ in _some_at_once(write, enumerate(_chunks(mine.fold.pack(), digest.update))):
            pass
        _tell(ledger, seen_at=ledger.clock(), round=number, sha256=digest.hexdigest())
    aggregator.shared = True
    aggregator.invalidate()  # the closer has it; if that one dies, it is folded again


def merge(aggregator: RoundAggregator, folder: StateFolder, ledger: Ledger) -> None:
    """Make the aggregation that of all updates of a closing round; for the server that holds the closing lock.

    Raises StorageError, after which it can be called again, and SumLimitError.
    """
    if aggregator.settings.is_own:
        _add_the_others(aggregator)
        return
    if not isinstance(aggregator.aggregation, FoldedAggregation):
        return  # it reads the stored updates
    rows = defaultdict[str | None, list[Update]](list)
    for row in aggregator.rows():
        rows[row.process].append(row)
    if aggregator.aggregation.fold.updates != sum(len(rows[process]) for process in aggregator.covered):
        aggregator.invalidate()  # an update was accepted, but the answer to that was lost
    until = time.monotonic() + PATIENCE_SECONDS
    while left := [process for process in rows if process not in aggregator.covered]:
        with ledger.reading() as session:
            known = queries.processes(session, [process for process in left if process])
        stored = {one.id: one.sha256 for one in known.values() if one.round == aggregator.row.number}
        alive = {one.id for one in known.values() if one.seen_at >= ledger.clock() - ALIVE_SECONDS}
        late = time.monotonic() > until
        ready = [process for process in left if process in stored or process not in alive or late]
        for process in ready:
            _cover(aggregator, folder, process, stored.get(process or ""), rows[process])
        if not ready:
            time.sleep(POLL_SECONDS)


def _add_the_others(aggregator: RoundAggregator) -> None:
    """Add all stored updates again, for a custom strategy: nobody knows how its sums merge."""
    aggregator.invalidate()
    with aggregator.covering(None) as total:
        for row in aggregator.rows():
            if row.process not in aggregator.covered:
                aggregator.add_again(total, row)


def _cover(
    aggregator: RoundAggregator, folder: StateFolder, process: str | None, sha256: str | None, rows: Sequence[Update]
) -> None:
    """Add another process' sum, or if it is of no use, its stored updates. sha256: of the sum, if it is stored."""
    number, draft = aggregator.row.number, folder.new_draft()
    try:
        why = "its server is gone" if sha256 is None else _why_lost(folder, _place(number, str(process)), sha256, draft)
        with aggregator.covering(process) as total:
            assert isinstance(total, FoldedAggregation)
            if why := why or _why_not_merged(total, draft, [aggregator.client_update(row) for row in rows]):
                log_event("sum_lost", why, round=number, updates=len(rows))
                for row in rows:
                    aggregator.add_again(total, row)
    finally:
        draft.unlink(missing_ok=True)


def _why_lost(folder: StateFolder, place: str, sha256: str, draft: Path) -> str:
    """Fetch a sum; "" if it is there and whole."""
    names, digest = sorted(folder.store.names(place), key=int), hashlib.sha256()
    if not names:
        return f"{place} is missing in the store"
    with storage_errors(draft), draft.open("wb") as file:
        for chunk in _some_at_once(folder.shared_store.read, (f"{place}/{name}" for name in names)):
            digest.update(chunk)
            file.write(chunk)
    return "" if digest.hexdigest() == sha256 else f"{place} is damaged in the store"


def _why_not_merged(total: FoldedAggregation, path: Path, updates: Sequence[ClientUpdate]) -> str:
    """Merge a sum; "" if it is of these updates."""
    try:
        with regular_file(path) as file:
            total.merge(file, updates)
    except SumLimitError:
        raise
    except WeightsError as error:
        return str(error)
    return ""


def _tell(ledger: Ledger, **facts: object) -> None:
    with ledger.writing() as session:
        upsert(session, Process, {"id": ledger.process}, facts)


def _place(number: int, process: str) -> str:
    return f"parts/{number}-{process}"


def _chunks(pieces: Iterable[bytes], seen: Callable[[bytes], object]) -> Iterator[bytes]:
    """Pieces, gathered to CHUNK_BYTES; each chunk is `seen`, in order."""
    gathered = bytearray()
    for piece in pieces:
        gathered += piece
        if len(gathered) >= CHUNK_BYTES:
            seen(chunk := bytes(gathered))
            yield chunk
            gathered.clear()
    seen(chunk := bytes(gathered))
    yield chunk


def _some_at_once(call: Callable[[Argument], Result], arguments: Iterable[Argument]) -> Iterator[Result]:
    with ThreadPoolExecutor(STREAMS) as pool:
        running = deque[Future[Result]]()
        for argument in arguments:
            running.append(pool.submit(call, argument))
            if len(running) == STREAMS:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
