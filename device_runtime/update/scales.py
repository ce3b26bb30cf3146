"""Scales that a phone sent, held to what they can be."""

import numpy as np

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.device_runtime.update.codec import Parts


def check_scales(update: Parts, part: str, scales: Array) -> None:
    """Raise UpdateError unless all are finite and at least 0."""
    good = np.isfinite(scales) & (scales >= 0)
    if not good.all():
        bad = scales[int(np.argmin(good))]
        raise UpdateError(f"{update.path}: {part}: finite scales of at least 0 expected, found {bad}")
