"""The native engine before it is used: in a source checkout it is compiled once, and people see that."""

from phonograd.console import Console


def build_on_first_use(console: Console) -> None:
    """Have the native engine's library ready. Raises what `find_library` raises."""
    from device_runtime.native_library import find_library

    with console.progress("building the native engine, once") as show:
        find_library(show)
