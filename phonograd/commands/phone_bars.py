"""Progress of several phones at once: a bar each, on stderr."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence

from phonograd.android_harness.phones.facts import Phone
from phonograd.android_harness.report.names import short_names
from phonograd.android_harness.timing.phone_task import PhoneProgress
from phonograd.console import Console

Show = Callable[[PhoneProgress], None]
# Stages that are counted in bytes, others in steps.
IN_BYTES = ("pushing", "pulling", "uploading")


@contextlib.contextmanager
def phone_bars(console: Console, phones: Sequence[Phone]) -> Iterator[Show]:
    """A bar for each of these phones, whose facts are known. Silent when quiet or not on a terminal.

    What it yields may be called from any thread.
    """
    if console.quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress as bars
    from rich.console import Console as Screen

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TextColumn("{task.fields[stage]}"),
        bars.TextColumn("{task.fields[heat]}"),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=Screen(stderr=True), transient=True) as shown:
        facts = [phone.facts for phone in phones if phone.facts is not None]
        tasks = {
            known.serial: shown.add_task(name, total=1, stage="waiting", heat="")
            for known, name in zip(facts, short_names(facts), strict=True)
        }
        lock = threading.Lock()

        def show(now: PhoneProgress) -> None:
            heat = "" if now.temperature_c is None else f"{now.temperature_c:.0f} °C"
            # A count of steps tells more than a bar's length; bytes do not.
            counted = now.total > 1 and now.stage not in IN_BYTES
            stage = f"{now.stage}, step {now.done} of {now.total}" if counted else now.stage
            with lock:
                shown.update(tasks[now.serial], completed=now.done, total=max(now.total, 1), stage=stage, heat=heat)

        yield show
