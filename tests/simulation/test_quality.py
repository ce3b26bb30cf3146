"""A figure of many texts is that of one test made of all of them."""

import dataclasses
import math

import pytest

from phonograd.device_runtime.text.evaluation import Evaluation
from phonograd.simulation.quality import spread
from tests.papers.finished import evaluation


def test_perplexity_is_pooled_by_tokens_not_a_mean_of_perplexities() -> None:
    short, long = evaluation(1000.0, tokens=110), evaluation(10.0, tokens=1010)
    found = spread([short, long], "perplexity")
    assert found is not None
    assert found.pooled == pytest.approx(math.exp((100 * math.log(1000) + 1000 * math.log(10)) / 1100))
    assert found.mean == pytest.approx(100)  # geometric; the arithmetic one is 505
    assert (found.p10, found.p90) == pytest.approx((109, 901))


def test_shares_are_pooled_by_what_they_are_of() -> None:
    few = dataclasses.replace(evaluation(10.0), words=10, top1=1.0, characters=50, kss=0.1)
    many = dataclasses.replace(evaluation(10.0), words=90, top1=0.0, characters=150, kss=0.5)
    top1, kss = spread([few, many], "top1"), spread([few, many], "kss")
    assert top1 is not None and kss is not None
    assert (top1.pooled, top1.mean) == (pytest.approx(0.1), pytest.approx(0.5))
    assert kss.pooled == pytest.approx(0.4)


def test_the_standard_error_is_over_texts() -> None:
    texts = [dataclasses.replace(evaluation(10.0), words=50, top1=value) for value in (0.1, 0.2, 0.3, 0.4)]
    found = spread(texts, "top1")
    assert found is not None
    assert found.error == pytest.approx(math.sqrt(0.05 / 3 / 4))  # the values' standard deviation / sqrt(4)
    alone = spread(texts[:1], "top1")
    assert alone is not None
    assert alone.error == texts[0].top1_error  # one text: over its messages


@pytest.mark.parametrize("texts", [[], [dataclasses.replace(evaluation(10.0), kss=None)]])
def test_what_was_not_measured_has_no_spread(texts: list[Evaluation]) -> None:
    assert spread(texts, "kss") is None
