"""The epsilon spent by all rounds together, computed by Google's dp-accounting.

Each round is a Poisson-sampled Gaussian mechanism; neighbouring datasets differ by one phone (paper M, section 2).
"""

import contextlib
import functools
import logging
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

from phonograd.device_runtime.base.errors import MissingExtraError, how_to_install

# PLD's time and memory grow with 1/z². With less noise than this epsilon is no guarantee, and RDP bounds it.
LEAST_PLD_NOISE = 0.25
# What two sets of users differ in whose models epsilon says to be hardly told apart: it stands beside every epsilon.
NEIGHBOURS = "add or remove one user's whole text"
NEIGHBOURS_OF_PAIRS = "replace one user's whole text by another's"  # of empirical epsilon


@dataclass(frozen=True)
class PrivateRounds:
    """`count` rounds with the same sampling q and noise multiplier z.

    rdp_only: nothing but their Renyi divergences is known to be a Gaussian's.
    """

    sampling: float
    noise_multiplier: float
    count: int = 1
    rdp_only: bool = False


@dataclass(frozen=True)
class PrivacySpent:
    """epsilon at `delta` after `rounds` rounds: `epsilon_rdp` by Renyi divergences (RDP), which most papers report;
    `epsilon`, the figure that counts, by privacy loss distributions (PLD) if that bound is smaller. It mostly is, but
    ends where delta is near 1e-15. Both are by RDP with noise below LEAST_PLD_NOISE, or rounds that are `rdp_only`.
    """

    epsilon: float
    epsilon_rdp: float
    delta: float
    rounds: int
    neighbours: str = NEIGHBOURS


def privacy_spent(rounds: Iterable[PrivateRounds], delta: float) -> PrivacySpent:
    """The epsilon of these rounds together. Raises MissingExtraError without dp-accounting."""
    kinds = _gather(rounds)
    count = sum(kind.count for kind in kinds)
    by_rdp = _epsilon("rdp", kinds, delta)
    return PrivacySpent(min(_epsilon("pld", kinds, delta), by_rdp), by_rdp, delta, count)


def epsilon_upper_bound(rounds: Iterable[PrivateRounds], delta: float) -> float:
    """epsilon by RDP alone: at least that of `privacy_spent`, and fast for any number of rounds."""
    return _epsilon("rdp", _gather(rounds), delta)


def zcdp_of(noise_multiplier: float) -> float:
    """rho of one Gaussian mechanism in zero-concentrated differential privacy; infinite without noise."""
    return 0.5 / noise_multiplier**2 if noise_multiplier else math.inf


def require_dp_accounting() -> None:
    """Raise MissingExtraError unless dp-accounting is installed."""
    _dp_accounting()


def _gather(rounds: Iterable[PrivateRounds]) -> tuple[PrivateRounds, ...]:
    counts: Counter[tuple[float, float, bool]] = Counter()
    for group in rounds:
        counts[group.sampling, group.noise_multiplier, group.rdp_only] += group.count
    return tuple(PrivateRounds(q, z, count, only) for (q, z, only), count in sorted(counts.items()) if count)


@functools.lru_cache(maxsize=64)  # a report asks for the same rounds repeatedly
def _epsilon(method: str, kinds: tuple[PrivateRounds, ...], delta: float) -> float:
    dp = _dp_accounting()
    if not kinds:
        return 0.0
    if any(kind.noise_multiplier == 0 for kind in kinds):
        return math.inf
    by_pld = method == "pld" and not any(kind.rdp_only or kind.noise_multiplier < LEAST_PLD_NOISE for kind in kinds)
    accountant = dp.pld.PLDAccountant() if by_pld else dp.rdp.RdpAccountant()
    with _without_warnings():
        for kind in kinds:
            noisy = dp.GaussianDpEvent(kind.noise_multiplier)
            event = noisy if kind.sampling == 1 else dp.PoissonSampledDpEvent(kind.sampling, noisy)
            accountant.compose(event, kind.count)
    return float(accountant.get_epsilon(delta))


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """dp-accounting warns about each Renyi order that does not converge (sampling near 1/2) and skips it.

    Skipping orders can only make epsilon larger.
    """
    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _dp_accounting() -> ModuleType:
    try:
        # Only private rounds need it, and it brings SciPy.
        import dp_accounting  # noqa: PLC0415
        import dp_accounting.pld  # noqa: PLC0415
        import dp_accounting.rdp  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(f"a private strategy needs dp-accounting; {how_to_install('dp')}") from error
    module: ModuleType = dp_accounting
    return module
