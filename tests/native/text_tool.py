"""Drives text_tool.cpp: text handling, metrics and update files of the native engine, a request a line."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import PhonogradError

SRC = Path(__file__).parents[2] / "device_runtime/native/src"

Word = bytes | str | float


class NativeError(Exception):
    """What the tool answers a request that failed with."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class TextTool:
    """The running tool: one process for all requests."""

    def __init__(self, program: Path):
        self._process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, what: str, *words: Word) -> list[str]:
        """The words of the answer; NativeError if it is an error. Bytes travel in hex."""
        shown = [(word.hex() or "-") if isinstance(word, bytes) else str(word) for word in words]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join([what, *shown]).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().decode().split()
        if answer[:1] == ["error"]:
            raise NativeError(int(answer[1]), _unhex(answer[2]).decode())
        assert answer[:1] == ["ok"], f"the tool died of {what}"
        return answer[1:]

    def numbers(self, what: str, *words: Word) -> list[int]:
        return [int(word) for word in self.ask(what, *words)]

    def bytes(self, what: str, *words: Word) -> list[bytes]:
        return [_unhex(word) for word in self.ask(what, *words)]

    def fails_as(self, error: PhonogradError, what: str, *words: Word) -> None:
        """Hold a failure equal to Python's: the same code and the same words."""
        with pytest.raises(NativeError) as found:
            self.ask(what, *words)
        assert (found.value.status, str(found.value)) == (error.exit_code, str(error))

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        assert self._process.wait() == 0


def _unhex(word: str) -> bytes:
    return b"" if word == "-" else bytes.fromhex(word)


def running(build_tool: Callable[[str, Sequence[Path]], Path]) -> Iterator[TextTool]:
    """The tool, built and started; closed when the generator is."""
    folders = ("base", "formats", "kernels", "text", "update")
    sources = [path for folder in folders for path in sorted((SRC / folder).glob("*.cpp"))]
    tool = TextTool(build_tool("text_tool", [Path(__file__).with_suffix(".cpp"), *sources]))
    yield tool
    tool.close()
