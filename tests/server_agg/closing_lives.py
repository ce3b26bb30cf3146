"""Servers that close a private round and are killed meanwhile: `python -m tests.server_agg.closing_lives ARTIFACTS`.

Every line on stdin is one life, `STATE NOW SECONDS`: a process that opens the state folder at the time NOW, when the
round's deadline is over, and closes the round; it is killed after SECONDS, unless they are 0. On stdout comes whether
it was, and how long it lived. Lives are forks of this process, which has imported all that they need.
"""

import os
import select
import signal
import sys
import time
from pathlib import Path

from phonograd.device_runtime.formats.manifest import open_artifacts
from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, privacy_spent
from phonograd.server_agg.rounds.coordinator import Coordinator
from tests.server_agg.test_ftrl_serving import FTRL
from tests.server_agg.workshop import Clock, settings_with


def live(artifacts: Path, state: Path, now: float) -> None:
    coordinator = Coordinator(open_artifacts(artifacts), state, settings_with(**FTRL), Clock(now))
    coordinator.tick()
    coordinator.close()


def main() -> None:
    privacy_spent([PrivateRounds(1.0, FTRL["noise_multiplier"])], FTRL["delta"])  # it is remembered
    for line in sys.stdin:
        state, now, seconds = line.split()
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            live(Path(sys.argv[1]), Path(state), float(now))
            os._exit(0)
        death = os.pidfd_open(child)
        ready, _, _ = select.select([death], [], [], float(seconds) or None)
        if not ready:
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(death)
        sys.stdout.write(f"{'killed' if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)} ")
        sys.stdout.write(f"{time.monotonic() - began}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
