"""Types of the parameters that name files and folders: what a command writes is never what it reads."""

from pathlib import Path
from typing import Any

import click

from phonograd.device_runtime.formats.outputs import require_apart


class _Input(click.Path):
    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path: Any = super().convert(value, param, ctx)
        read, written = _paths(ctx)
        for output, folder in written.items():
            require_apart(output, [path], folder=folder)
        read.append(path)
        return path


class _Output(click.Path):
    def __init__(self, folder: bool) -> None:
        super().__init__(path_type=Path)
        self._folder = folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path: Any = super().convert(value, param, ctx)
        read, written = _paths(ctx)
        require_apart(path, read, written, self._folder)
        written[path] = self._folder
        return path


def _paths(context: click.Context | None) -> tuple[list[Path], dict[Path, bool]]:
    """What the command line names so far: paths to read, and to write, of which True is a folder."""
    paths: tuple[list[Path], dict[Path, bool]] = ([], {})
    return paths if context is None else context.meta.setdefault(__name__, paths)


INPUT = _Input()
OUTPUT = _Output(folder=False)
OUT_FOLDER = _Output(folder=True)
