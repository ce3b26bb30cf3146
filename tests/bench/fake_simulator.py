"""Stands in for Flower's simulation: it trains nothing and knows the loss, unless told otherwise in the environment."""

import os
import sys

import numpy as np

from phonograd.device_runtime.base.errors import UnsupportedError


def run(job, tell):
    sys.stdout.write("noise of a library\n")
    streams = np.load(job.streams)
    assert sorted(streams) == [str(place) for place in range(job.phones)]
    tell()
    if os.environ["FAKE_SIMULATOR"] == "no such CPU":
        raise UnsupportedError("precision bf16: this CPU has no bf16")
    for _ in range(job.rounds):
        sum(range(300_000))  # some CPU time
        tell()
    return [float(os.environ["FAKE_SIMULATOR"])] * job.rounds, {"fake": "1"}
