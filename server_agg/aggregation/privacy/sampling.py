"""Poisson sampling: who is asked to take part in a round."""

import math
import secrets
from collections.abc import Iterable

_BITS = 53


def sample(names: Iterable[str], probability: float) -> list[str]:
    """Each name with `probability`, independent of all others and of earlier rounds, sorted.

    From the operating system's cryptographic source: who can predict the sample has no amplification by sampling.
    The server draws it: the accountant's epsilon holds only if nobody else takes part. Raises ValueError unless
    0 < probability <= 1.
    """
    if not 0 < probability <= 1:
        raise ValueError(f"sampling is {probability}, expected more than 0, at most 1")
    threshold = math.ceil(probability * (1 << _BITS))
    return sorted(name for name in names if secrets.randbits(_BITS) < threshold)
