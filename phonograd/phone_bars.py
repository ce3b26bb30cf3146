"""Progress of several phones at once: a bar each, on stderr."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping

from android_harness.timing.phone_work import PhoneProgress
from phonograd.console import Console

Show = Callable[[PhoneProgress], None]
# Stages that are counted in bytes, others in steps.
IN_BYTES = ("pushing", "pulling", "uploading")


@contextlib.contextmanager
def phone_bars(console: Console, names: Mapping[str, str]) -> Iterator[Show]:
    """A bar for each phone of `names` (what to call it, by serial). Silent when quiet or not on a terminal.

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
        tasks = {serial: shown.add_task(name, total=1, stage="waiting", heat="") for serial, name in names.items()}
        lock = threading.Lock()

        def show(now: PhoneProgress) -> None:
            heat = "" if now.temperature_c is None else f"{now.temperature_c:.0f} °C"
            # A count of steps tells more than a bar's length; bytes do not.
            counted = now.total > 1 and now.stage not in IN_BYTES
            stage = f"{now.stage}, step {now.done} of {now.total}" if counted else now.stage
            with lock:
                shown.update(tasks[now.serial], completed=now.done, total=max(now.total, 1), stage=stage, heat=heat)

        yield show
