"""How good a model is: on general text, and on the texts of users who never train."""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.text.evaluation import Evaluation
from phonograd.simulation.phone import EvaluationJob
from phonograd.simulation.records import Quality, Scores, Spread, UserScores
from phonograd.simulation.users import Messages
from phonograd.simulation.workers import Workers


def measure(workers: Workers, weights: Path, general: Messages, users: Sequence[Messages]) -> Quality:
    """Evaluate a model with all workers. general: messages, or none. Raises TrainingError if it diverged."""
    texts = [general, *users] if general else users  # the longest first, so that workers end together
    found = workers.evaluate([EvaluationJob(weights, text) for text in texts])
    of_general = found.pop(0) if general else None
    of_users = found
    for evaluation in [*of_users, *([of_general] if of_general else [])]:
        if not math.isfinite(evaluation.perplexity + evaluation.perplexity_with_unknown):
            raise TrainingError("the model's perplexity is not finite: training diverged; lower the learning rate")
    return Quality(_scores(of_general) if of_general else None, _user_scores(of_users) if of_users else None)


def _scores(found: Evaluation) -> Scores:
    return Scores(found.perplexity, found.perplexity_with_unknown, found.top1, found.kss)


def _user_scores(found: Sequence[Evaluation]) -> UserScores:
    kss = [evaluation.kss for evaluation in found if evaluation.kss is not None]
    return UserScores(
        len(found),
        _spread([evaluation.perplexity for evaluation in found]),
        _spread([evaluation.perplexity_with_unknown for evaluation in found]),
        _spread([evaluation.top1 for evaluation in found]),
        _spread(kss) if kss else None,
    )


def _spread(values: Sequence[float]) -> Spread:
    low, high = np.percentile(values, [10, 90])
    return Spread(statistics.fmean(values), float(low), float(high))  # fmean's result does not depend on the order
