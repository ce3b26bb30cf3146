"""`python -m phonograd`, and where the command `phonograd` begins."""

import io
import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line and leave with its exit code.

    Importing takes a while, and so may leaving: an interrupt then ends the process with 130 and without a traceback, as
    one does while a command runs. SIGTERM ends a command as an interrupt does, with 143: what it started must not stay.
    """
    terminated: list[int] = []

    def terminate(number: int, _: FrameType | None) -> None:
        terminated.append(number)
        raise KeyboardInterrupt

    default = signal.getsignal(signal.SIGINT)
    if default is signal.default_int_handler:  # not where a shell started us with interrupts ignored
        signal.signal(signal.SIGINT, _leave)
    from phonograd.cli import phonograd
    from phonograd.console import run

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a pipe on Windows has few of the characters that tables use
    signal.signal(signal.SIGINT, default)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminate)
    code = run(phonograd)
    if terminated and code == 128 + signal.SIGINT:
        code = 128 + signal.SIGTERM
    if default is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    sys.exit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    del frame
    os.write(2, b"phonograd: interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()
