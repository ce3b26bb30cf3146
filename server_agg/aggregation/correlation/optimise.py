"""The BLT whose running sum has the least largest error at equal privacy, over a run (arXiv 2408.08868, section 4)."""

import math

import numpy as np

from phonograd.device_runtime.base.errors import MissingExtraError, how_to_install
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.server_agg.aggregation.correlation.blt import Blt, from_decays, scales_of
from phonograd.server_agg.aggregation.correlation.sensitivity import sensitivity

# Of the logarithms of steps between values of -log(1 - decay): so that no two decays run into each other or into 1.
_LEAST_STEP = -6.0
_STEPS = 400


def optimise_blt(rounds: int, separation: int, participations: int, buffers: int) -> Blt:
    """The BLT of least sensitivity x largest error of the running sum, which is the last round's.

    rounds, separation, participations: as of `sensitivity`. The same numbers give the same BLT on one machine; another
    version of SciPy may end in other digits, so a run stores its BLT. Raises MissingExtraError without SciPy.
    """
    try:
        from scipy.optimize import minimize  # noqa: PLC0415  # only private rounds need it
    except ImportError as error:
        raise MissingExtraError(f"dp-ftrl needs SciPy; {how_to_install('dp')}") from error
    lags = np.arange(rounds - 1)[:, None]

    def loss(steps: Array) -> float:
        theta, inverse = _decays(steps)
        column = np.concatenate(([1.0], np.power(theta, lags) @ scales_of(theta, inverse)))
        column_of_inverse = np.concatenate(([1.0], np.power(inverse, lags) @ scales_of(inverse, theta)))
        error = np.linalg.norm(column_of_inverse.cumsum())
        return math.log(sensitivity(column, separation, participations)) + math.log(error)

    most = math.log(rounds + 1.0)
    start = np.full(2 * buffers, math.log(most / (2 * buffers)))
    found = minimize(
        loss,
        start,
        method="L-BFGS-B",
        bounds=[(_LEAST_STEP, math.log(most))] * len(start),
        options={"maxiter": _STEPS, "ftol": 1e-10, "gtol": 1e-6},
    )
    theta, inverse = _decays(found.x)
    return from_decays([*map(float, theta)], [*map(float, inverse)])


def _decays(steps: Array) -> tuple[Array, Array]:
    """The decays of C and of C^-1, alternating and falling between 1 and 0, from any real numbers."""
    decays = -np.expm1(-np.exp(steps[::-1]).cumsum()[::-1])
    return decays[0::2], decays[1::2]
