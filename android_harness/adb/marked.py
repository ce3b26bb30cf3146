"""Scripts for a phone's shell that say where their output begins and ends, and their status.

adb's exit code tells nothing when a phone vanishes (adb 29 exits 0), and its stdout may begin with remarks of its own.
"""

import re
import secrets
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Marked:
    """A script with a line before and after it that nothing else prints.

    It runs in a subshell, so that its `exit` does not skip the last line; before that goes a line break, as its output
    may end without one.
    """

    script: str
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def begin(self) -> str:
        """The line before its output."""
        return f"phonograd-begin-{self.nonce}"

    @property
    def text(self) -> str:
        """What the phone's shell is to run: one argument of adb, which would join several with spaces."""
        end = f'status=$?; echo; echo "phonograd-end-{self.nonce} $status"'
        return f"echo {self.begin}\n(\n{self.script}\n)\n{end}"

    def status(self, line: str) -> int | None:
        """The script's status, if `line`, with its line break, is the one after its output."""
        match = re.fullmatch(rf"phonograd-end-{self.nonce} ([0-9]{{1,3}})\n", line)
        return None if match is None else int(match[1])

    def split(self, printed: str) -> tuple[str, int | None]:
        """Its output, exactly, out of all that adb printed; and its status, None if the last line is missing."""
        output = printed.partition(f"{self.begin}\n")[2]
        end = re.search(rf"\nphonograd-end-{self.nonce} ([0-9]{{1,3}})\n", output)
        return (output, None) if end is None else (output[: end.start()], int(end[1]))
