"""Noise that phones add together before they mask, so that no sum without it exists: sums of discrete Gaussians."""

import math


def effective_noise(honest: int, sigma: float, reach: float, dimensions: int) -> float:
    """The multiplier z of Gaussian noise by which the sum is as private, in zero-concentrated differential privacy.

    Kairouz, Liu, Steinke 2021, *The Distributed Discrete Gaussian Mechanism*, Theorem 1: the sum of `honest` draws from
    N_Z(0, sigma^2) in each of `dimensions`, when one phone moves it by at most `reach` in L2, satisfies
    1/2 epsilon^2-zCDP, so that z = 1 / epsilon. sigma, reach: in steps of the grid. 0 if nobody adds noise.
    """
    if honest < 1 or sigma == 0:
        return 0.0
    tau = 10 * math.fsum(math.exp(-2 * math.pi**2 * sigma**2 * k / (k + 1)) for k in range(1, honest))
    spread = reach / (math.sqrt(honest) * sigma)
    epsilon = min(math.sqrt(spread**2 + tau * dimensions / 2), spread + tau * math.sqrt(dimensions))
    return 1 / epsilon
