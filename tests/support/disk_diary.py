"""What a program asks of the disk, in order: a test then sees what is durable before what."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Functions of `os` and the argument that is written down.
WATCHED = (("fsync", 0), ("link", 1), ("replace", 1), ("unlink", 0))


class DiskDiary:
    """Lines such as `fsync updates`, `link updates/abc`, with paths below `root`, once what they say is done."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path):
        self.lines: list[str] = []
        self._root = root
        for name, argument in WATCHED:
            patch.setattr(os, name, self._around(name, getattr(os, name), argument))

    def note(self, line: str) -> None:
        """Write down what happens elsewhere."""
        self.lines.append(line)

    def order_of(self, *lines: str) -> bool:
        """Whether these happened one after the other (the first time each). AssertionError for what never did."""
        never = [line for line in lines if line not in self.lines]
        assert not never, f"never came: {never}, but {self.lines}"
        places = [self.lines.index(line) for line in lines]
        return places == sorted(places)

    def _around(self, name: str, function: Callable[..., Any], argument: int) -> Callable[..., Any]:
        def noting(*arguments: Any, **named: Any) -> Any:
            what = arguments[argument]
            path = Path(f"/proc/self/fd/{what}").readlink() if isinstance(what, int) else Path(what)
            result = function(*arguments, **named)
            if path.is_relative_to(self._root):
                self.lines.append(f"{name} {path.relative_to(self._root)}")
            return result

        return noting
