"""The native engine, compiled where it has to be: `phonograd build-phone`, and other commands on their first use."""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import click

from phonograd.commands.options import opt, own_options
from phonograd.commands.paths import OUTPUT
from phonograd.console import Console, Progress, figures, output_options
from phonograd.device_runtime.engine.backend import BackendOptions, Precision, PrecisionChoice


@contextlib.contextmanager
def building(console: Console, what: str) -> Iterator[Progress]:
    """A progress bar for a build; if something has to be compiled, a line on stderr before it, off a terminal too."""
    with console.progress(f"building {what}", "files") as show:

        def show_build(done: int, total: int, note: str) -> None:
            if done == 0:
                console.say(f"building {what}, once: up to {total - 1} files to compile, which can take minutes")
            show(done, total, note)

        yield show_build


def build_on_first_use(console: Console) -> None:
    """Have the native engine's library ready. Raises what `find_library` raises."""
    from phonograd.device_runtime.engine.c_abi import find_library

    with building(console, "the native engine") as show:
        find_library(show)


def chosen_precision(console: Console, asked: PrecisionChoice, threads: int) -> Precision:
    """The precision of products: what `auto` stands for on this CPU, and why, is said; so is that bf16 is slower."""
    from phonograd.device_runtime.engine.precision import faster_precision

    if asked not in ("auto", "bf16"):
        return asked  # type: ignore[return-value]  # mypy narrows by == alone
    found = faster_precision(BackendOptions(threads=threads))
    if asked == "auto":
        console.say(f"precision auto: {found}")
        return found.precision
    if found.bf16 and found.precision != asked:
        console.say(f"phonograd: warning: precision bf16: {found}")
    return asked


@click.command("build-phone")
@own_options
@output_options
def build_phone(
    console: Console,
    out: Annotated[Path, opt("Where to write the binary.", OUTPUT)] = Path("phonograd-phone"),
    library: Annotated[
        Path | None,
        opt(
            "Also build the C ABI's shared library for arm64 Linux (glibc 2.17 or later; not Android), and write it "
            "here.",
            OUTPUT,
        ),
    ] = None,
    force: Annotated[bool, "Compile it even if the wheel or the cache has it."] = False,
) -> None:
    """Write the checked static binary for arm64 Android phones; a wheel includes it, a source checkout builds it."""
    from phonograd.device_runtime.base.files import require_writable
    from phonograd.device_runtime.native_build import build_arm64_library, deliver_phone_binary
    from phonograd.device_runtime.native_build.checks import check_arm64_library

    for place in filter(None, (out, library)):
        require_writable(place)
    with building(console, "the phone binary") as show:
        delivered = deliver_phone_binary(out, force, show)
    document: dict[str, object] = {**dataclasses.asdict(delivered.binary), "origin": delivered.origin}
    tables = [("Phone binary", document.copy())]
    if library is not None:
        with building(console, "the library for arm64 Linux") as show:
            build_arm64_library(library, force, show)
        facts = dataclasses.asdict(check_arm64_library(library))
        document["library"] = facts
        tables.append(("Library for arm64 Linux", facts | {"exports": len(facts["exports"])}))
    console.result(document, *((title, figures(rows, "fact")) for title, rows in tables))
