"""A membership test: whether a user's text became more likely than those of users who did not take part.

The score is a likelihood ratio, log P(text | model) - log P(text | earlier model), in nats a token (Carlini et al. 2022
compare with models that never saw the user; who reads published models has the earlier one).
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from phonograd.device_runtime.text.sampling import Doubles
from phonograd.simulation.phone import EvaluationJob
from phonograd.simulation.records import Estimate, Membership
from phonograd.simulation.users import Messages
from phonograd.simulation.workers import Workers

FALSE_POSITIVES = 0.01
RESAMPLES = 1000


def auc_of(members: Doubles, others: Doubles) -> float:
    """The chance that a member's score is above another user's; equal scores count half (Mann and Whitney's U)."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, members, "left") + np.searchsorted(ordered, members, "right")
    return float(below.mean() / 2 / len(others))


def tpr_of(members: Doubles, others: Doubles) -> float:
    """The share of members above a threshold that at most FALSE_POSITIVES of the others are above."""
    allowed = math.floor(FALSE_POSITIVES * len(others))
    threshold = np.sort(others)[len(others) - 1 - allowed]
    return float(np.mean(members > threshold))


def estimate(measure: Callable[[Doubles, Doubles], float], members: Doubles, others: Doubles, seed: int) -> Estimate:
    """A measure, and its 2.5th and 97.5th percentile over users drawn with replacement."""
    random = np.random.default_rng(seed)
    drawn = [
        measure(random.choice(members, len(members)), random.choice(others, len(others))) for _ in range(RESAMPLES)
    ]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return Estimate(measure(members, others), float(low), float(high))


def measure(
    workers: Workers, members: Sequence[Messages], others: Sequence[Messages], first: Path, last: Path, seed: int
) -> Membership:
    """Test the texts of users who took part, and of others. Raises TrainingError if a model's scores are not finite."""
    of_texts = scores(workers, [*members, *others], first, last)
    took_part, did_not = of_texts[: len(members)], of_texts[len(members) :]
    return Membership(
        len(members),
        len(others),
        estimate(auc_of, took_part, did_not, seed),
        estimate(tpr_of, took_part, did_not, seed),
        float(took_part.mean()),
        float(did_not.mean()),
    )


def scores(workers: Workers, texts: Sequence[Messages], first: Path, last: Path) -> Doubles:
    """How many nats a token likelier the last model makes each text than the first."""
    before, after = (_losses(workers, weights, texts) for weights in (first, last))
    return before - after


def _losses(workers: Workers, weights: Path, texts: Sequence[Messages]) -> Doubles:
    evaluations = workers.evaluate([EvaluationJob(weights, text) for text in texts])
    return np.array([math.log(evaluation.perplexity_with_unknown) for evaluation in evaluations])
