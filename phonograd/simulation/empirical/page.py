"""Pairs of adjacent user sets as one HTML page, with paper P's Figure 4: the tail of c, and how well it fits."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from phonograd.pages.plots import COLOURS, svg
from phonograd.pages.plots import write_page as write
from phonograd.server_agg.aggregation.privacy.accountant import NEIGHBOURS_OF_PAIRS
from phonograd.simulation.empirical.pairs import Pair
from phonograd.simulation.empirical.tail import DELTAS

BINS = 30


def write_page(path: Path, pairs: Sequence[Pair], rows: Sequence[Mapping[str, object]]) -> None:
    """Write the page: plots of the tail with the largest epsilon, and `rows`, one a tail. Raises StorageError."""
    worst = max(pairs, key=lambda pair: pair.tail.epsilon(min(DELTAS)))
    plots = [svg(partial(plot, pair=worst)) for plot in (tail_plot, exponential_plot, quantile_plot)]
    passing = sum(pair.tail.passes for pair in pairs)
    note = f"{passing} of {len(pairs)} tails pass Lilliefors' test. The plots are of {worst.user} and {worst.other}. "
    note += f"Of epsilon: {NEIGHBOURS_OF_PAIRS}."
    write(path, "Empirical privacy", plots, [("Pairs of adjacent user sets", note, rows)])


def tail_plot(axes: Any, pair: Pair) -> None:
    """P(c > x) of the texts, and the fitted tail, on logarithmic axes (paper P, Figure 4, left)."""
    tail, ordered = pair.tail, np.sort(pair.log_ratios)[::-1]
    half = ordered[: max(tail.used, len(ordered) // 2)]
    axes.plot(np.exp(half), np.arange(1, len(half) + 1) / len(ordered), color=COLOURS[0], label="texts")
    fitted = np.array([ordered[tail.used - 1], ordered[0]])
    axes.plot(
        np.exp(fitted),
        tail.C * np.exp(-tail.alpha * fitted),
        color=COLOURS[1],
        ls="--",
        label=f"{tail.C:.2f} x^-{tail.alpha:.1f}",
    )
    axes.set(title="Tail of the likelihood ratio", xlabel="x", ylabel="P(c > x)", xscale="log", yscale="log")


def exponential_plot(axes: Any, pair: Pair) -> None:
    """A histogram of r_i = log(c_(i) / c_(k)), and the exponential density that was fitted (Figure 4, right)."""
    r = _r(pair)
    axes.hist(r, bins=BINS, density=True, color=COLOURS[0], alpha=0.5, label=f"{len(r)} largest ratios")
    x = np.linspace(0, r.max(), 200)
    axes.plot(x, pair.tail.alpha * np.exp(-pair.tail.alpha * x), color=COLOURS[1], label="exponential")
    axes.set(title="Logarithms of the largest ratios", xlabel="r")


def quantile_plot(axes: Any, pair: Pair) -> None:
    """Quantiles of r_i against those of the exponential distribution."""
    r = _r(pair)
    expected = -np.log1p(-(np.arange(len(r)) + 0.5) / len(r)) / pair.tail.alpha
    axes.plot(expected, np.sort(r), ".", color=COLOURS[0], label="r")
    axes.plot([0, expected[-1]], [0, expected[-1]], color=COLOURS[1], ls="--", label="exponential")
    axes.set(title=f"Quantiles; Lilliefors {pair.tail.statistic:.2f}", xlabel="expected r", ylabel="r")


def _r(pair: Pair) -> npt.NDArray[np.float64]:
    used = np.sort(pair.log_ratios)[-pair.tail.used :]
    r: npt.NDArray[np.float64] = used[1:] - used[0]
    return r
