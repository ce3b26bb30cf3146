"""Scripts for a phone's shell that mark where their output begins and ends, and print their status.

adb's exit code is useless when a phone disconnects (adb 29 exits 0), and its stdout may begin with its own notices.
"""

import re
import secrets
from dataclasses import dataclass, field


@dataclass(frozen=True)
class MarkedScript:
    """A script between two marker lines that nothing else prints.

    It runs in a subshell, so that its `exit` does not skip the last marker. A line break precedes that marker, as the
    output may end without one.
    """

    script: str
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def begin(self) -> str:
        """The marker before its output."""
        return f"phonograd-begin-{self.nonce}"

    @property
    def text(self) -> str:
        """The text for the phone's shell, as one argument of adb, which joins several with spaces."""
        end = f'status=$?; echo; echo "phonograd-end-{self.nonce} $status"'
        return f"echo {self.begin}\n(\n{self.script}\n)\n{end}"

    def status(self, line: str) -> int | None:
        """The script's status if `line`, with its line break, is the marker after its output, else None."""
        match = re.fullmatch(rf"phonograd-end-{self.nonce} ([0-9]{{1,3}})\n", line)
        return None if match is None else int(match[1])

    def split(self, printed: str) -> tuple[str, int | None]:
        """Return the exact output and the status from all that adb printed; None if the last marker is missing."""
        output = printed.partition(f"{self.begin}\n")[2]
        end = re.search(rf"\nphonograd-end-{self.nonce} ([0-9]{{1,3}})\n", output)
        return (output, None) if end is None else (output[: end.start()], int(end[1]))
