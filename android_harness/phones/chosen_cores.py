"""Which cores of a phone the threads run on: what `--cores` means, as phonograd-phone reads it."""

import re

from android_harness.phones.facts import PhoneFacts

# What `--cores` may be; a mask has a core in it, and at most as many digits as phonograd-phone reads.
CORES = re.compile(r"big|little|all|(0x)?(?=0*[1-9a-fA-F])[0-9a-fA-F]{1,256}")


def chosen_cores(facts: PhoneFacts, cores: str) -> tuple[int, ...]:
    """Numbers of the cores that `--cores` takes, in order; empty where the phone does not say what it has.

    Where all cores are of one kind, big and little are all of them.
    """
    known = tuple(core.number for core in facts.cores)
    if cores == "all" or (cores in ("big", "little") and len(facts.clusters) == 1):
        return known
    if cores in ("big", "little"):
        kinds = (cluster for cluster in facts.clusters if (cluster.kind == "little") == (cores == "little"))
        return tuple(sorted(number for cluster in kinds for number in cluster.cores))
    mask = int(cores, 16)
    return tuple(number for number in known if mask >> number & 1)
