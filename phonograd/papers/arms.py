"""Arms: what the settings of a row say, which its name and the claims about it must agree with."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.papers.experiment import Claim
from phonograd.server_agg.aggregation.privacy.mechanism import GaussianMean
from phonograd.server_agg.aggregation.settings import FTRL, StrategySettings

# Quantities in a name: `σ 0.003`, `λ = 1`, `a server step of 1.2`; `60 KB`, `5 cycles`; `rehearsal 1/2`.
_BEFORE = re.compile(r"\b(σ|S|β|z|C|E|B|N|λ =|rate|step of) ([0-9]+(?:\.[0-9]+)?)")
_BEHIND = re.compile(r"(?<![0-9,])([0-9,]+) (KB|cycle|round)s?\b")
_SHARE = re.compile(r"\b(rehearsal|LwF) ([1-9])/([1-9])\b")
NO_BOUND = 1000.0  # no phone's delta is as long: such a clip_norm clips nothing
_DIGITS = 5e-3  # of a rounded quantity


@dataclass(frozen=True)
class Arm:
    """What is said of a row by its settings. quantities: by symbol; clip_norm: the bound on an update's norm, if any;
    private: whether noise is added.
    """

    quantities: Mapping[str, float]
    clip_norm: float | None = None
    private: bool = False


def arm_of(strategy: StrategySettings, phones: int, quantities: Mapping[str, float]) -> Arm:
    """The arm of a simulation in which `phones` are enrolled. σ is the noise of the averaged model as the server adds
    it; β that of paper J, of the sum over a round's phones (its eq. 5), or fedatt's.
    """
    found = {"step of": strategy.server_lr, "β": strategy.attention_noise, **quantities}
    if not strategy.private:
        return Arm(found)
    bound = None if strategy.clip_norm >= NO_BOUND else strategy.clip_norm
    found |= {"S": strategy.clip_norm}
    if strategy.strategy != FTRL:
        sigma = GaussianMean(strategy, phones, strategy.noise_multiplier).noise_std
        found |= {"σ": sigma, "β": sigma * strategy.sampling * phones}
    return Arm(found, bound, strategy.noise_multiplier > 0)


def quantities_in(text: str) -> list[tuple[str, float]]:
    """What a name or a claim says of settings, by symbol."""
    found = [(symbol, float(value)) for symbol, value in _BEFORE.findall(text)]
    found += [(symbol, float(value.replace(",", ""))) for value, symbol in _BEHIND.findall(text)]
    return found + [("λ =", int(part) / int(whole)) for _, part, whole in _SHARE.findall(text)]


def require_true(arms: Mapping[str, Arm], claims: Sequence[Claim]) -> None:
    """Raise ArtifactsError for a name with a quantity that the row's settings don't give, and for a claim that says one
    which none of its rows has, or sets a row with noise beside one that is clipped otherwise.
    """
    for row, arm in arms.items():
        for symbol, value in quantities_in(row):
            found = arm.quantities.get(symbol)
            if found is None or not math.isclose(found, value, rel_tol=_DIGITS):
                raise ArtifactsError(f"row {row!r}: its settings give {symbol} {found}, its name says {value:g}")
    for claim in claims:
        named = {quantity for row in claim.rows for quantity in quantities_in(row)}
        if wrong := [
            f"{symbol} {value:g}" for symbol, value in quantities_in(claim.says) if (symbol, value) not in named
        ]:
            raise ArtifactsError(f"claim {claim.says!r}: a row with {wrong[0]} in its name expected")
        known = {row: arms[row].clip_norm or "none" for row in claim.rows if row in arms}
        if any(arms[row].private for row in known) and len(set(known.values())) > 1:
            raise ArtifactsError(
                f"claim {claim.says!r}: rows with one clipping bound expected, since one has noise; found "
                + ", ".join(f"{bound} for {row}" for row, bound in known.items())
            )
