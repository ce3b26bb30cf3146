"""The native engine before it is used: in a source checkout it is compiled once, and people see that."""

import contextlib
from collections.abc import Iterator

from phonograd.console import Console, Progress


@contextlib.contextmanager
def building(console: Console, what: str) -> Iterator[Progress]:
    """A progress bar for a build; if something has to be compiled, a line on stderr before it, off a terminal too."""
    with console.progress(f"building {what}") as show:

        def told(done: int, total: int, note: str) -> None:
            if done == 0:
                console.say(f"building {what}, once: up to {total - 1} files to compile, which can take minutes")
            show(done, total, note)

        yield told


def build_on_first_use(console: Console) -> None:
    """Have the native engine's library ready. Raises what `find_library` raises."""
    from phonograd.device_runtime.engine.library import find_library

    with building(console, "the native engine") as show:
        find_library(show)
