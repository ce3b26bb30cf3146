"""A contestant for tests: its variant says what it does, or is what its losses and weights are multiplied by; "after N"
doubles losses after N steps.
"""

import sys
from pathlib import Path

import numpy as np

from phonograd.bench.worker import UnavailableError
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.device_runtime.formats.tensor_file import load_tensors


class FakePeer:
    def __init__(self, job):
        self.about = {"versions": {"fake": "1"}}
        self.artifacts, self.variant, self.steps = Path(job.artifacts), job.variant, 0
        self.after = int(job.variant.split()[1]) if job.variant.startswith("after") else None
        self.scale = float(1 if job.variant in ("", "phased", "overflows") or self.after else job.variant)

    def step(self, tokens, targets):
        sys.stdout.write("noise of a library\n")
        self.steps += 1
        if self.scale < 0 and self.steps > 1:
            sys.exit("fell over")
        # The same for all that saw the same windows.
        late = self.after is not None and self.steps > self.after
        return (1 + late) * self.scale * float((tokens * targets).sum())

    def weights(self):
        added = np.float32(np.inf if self.variant == "overflows" else 1)
        first = load_tensors(self.artifacts / WEIGHTS)
        return {name: np.float32(self.scale) * (array + added) for name, array in first.items()}


class PhasedPeer(FakePeer):
    def phases(self):
        return {"recurrent forward": 0.5}


def load(job):
    if job.variant == "absent":
        raise UnavailableError("no such chip")
    if job.variant == "broken":
        raise ValueError("cannot read it")
    return (PhasedPeer if job.variant == "phased" else FakePeer)(job)
