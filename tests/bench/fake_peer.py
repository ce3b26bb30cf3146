"""A contestant for tests: its variant says what it does."""

import sys

from phonograd.bench.worker import UnavailableError


class FakePeer:
    def __init__(self, variant):
        self.about = {"versions": {"fake": "1"}}
        self.loss, self.steps = float(variant or 1), 0

    def step(self, tokens, targets):
        sys.stdout.write("noise of a library\n")
        self.steps += 1
        if self.loss < 0 and self.steps > 1:
            sys.exit("fell over")
        # The same for all that saw the same windows.
        return self.loss * float((tokens * targets).sum())


class PhasedPeer(FakePeer):
    def phases(self):
        return {"recurrent forward": 0.5}


def load(job):
    if job.variant == "absent":
        raise UnavailableError("no such chip")
    if job.variant == "broken":
        raise ValueError("cannot read it")
    if job.variant == "phased":
        return PhasedPeer("1")
    return FakePeer(job.variant)
