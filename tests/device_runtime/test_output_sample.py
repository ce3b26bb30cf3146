"""The output sample's rule: what is drawn, how it is weighted, and that what it estimates has the right mean."""

import math

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.engine.backend import OutputSample
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample
from tests.reference.random_words import logarithm
from tests.support.artifacts import words

OWN = np.array([7, 3, 7, 250, 1, 3])
COUNTS = words(300).frequencies()
COUNTS[2] = 10**12  # so common that its chance is 1
PINNED_CANDIDATES = [0, 1, 3, 4, 5, 7, 8, 9, 10]
PINNED_SHIFTS = "000000000000000000000000c58cd53e00000000b665773f000000000000000031544c3f"


def test_the_rule_is_pinned_to_the_bit() -> None:
    counts = np.array([9, 4, 0, 100, 7, 7, 0, 2, 1, 25, 3, 0])
    sample = draw_output_sample(np.array([5, 1, 5, 8]), counts, SampleDraw(4, 2024))
    assert sample.candidates.tolist() == PINNED_CANDIDATES
    assert sample.shifts.tobytes().hex() == PINNED_SHIFTS
    assert sample.shifts.dtype == np.float32


def test_about_n_others_are_drawn_and_the_more_common_more_often() -> None:
    samples = [draw_output_sample(OWN, COUNTS, SampleDraw(20, seed)).candidates for seed in range(400)]
    drawn = np.bincount(np.concatenate(samples), minlength=300)
    others = drawn.sum() - drawn[[0, 1, 3, 7, 250]].sum()
    assert abs(others / 400 - 20) < 1.5  # five standard errors: a sample's size has variance 20 at most
    assert drawn[2] == 400
    assert drawn[10:50].sum() > 2 * (drawn[260:300].sum())  # sqrt(280 / 30) times, the rule says


def test_the_partition_sums_mean_over_the_seeds_is_that_of_the_whole_vocabulary() -> None:
    scores = np.exp(np.random.default_rng(5).normal(size=300))
    chances = np.ones(300)
    totals, without_shifts = [], []
    for seed in range(1000):
        sample = draw_output_sample(OWN, COUNTS, SampleDraw(40, seed))
        raised = np.exp(sample.shifts.astype(np.float64))
        chances[sample.candidates] = 1 / raised
        totals.append(float((scores[sample.candidates] * raised).sum()))
        without_shifts.append(float(scores[sample.candidates].sum()))
    assert (chances < 1).sum() > 200
    error = math.sqrt(float((scores**2 * (1 - chances) / chances).sum()) / 1000)  # draws are independent
    assert error < 0.02 * scores.sum()
    assert abs(np.mean(totals) - scores.sum()) < 5 * error
    assert scores.sum() - np.mean(without_shifts) > 10 * error  # what the shifts are for


def test_the_references_logarithms_are_right_to_float64s_last_digits() -> None:
    numbers = np.concatenate([np.geomspace(1e-12, 1, 4001), [0.5, math.sqrt(0.5), np.nextafter(1, 0), 1 / 3]])
    np.testing.assert_allclose([logarithm(one) for one in numbers.tolist()], np.log(numbers), rtol=1e-15, atol=1e-16)
    assert logarithm(1.0) == 0


def test_ids_become_places_and_a_word_outside_is_named() -> None:
    sample = OutputSample(np.array([0, 1, 5, 9]), np.zeros(4, np.float32))
    np.testing.assert_array_equal(sample.places(np.array([[9, 1], [-1, 5]])), [[3, 1], [-1, 2]])
    for word in (4, 10, -2):
        with pytest.raises(TrainingError, match=rf"word {word} expected among its 4 candidates, not found"):
            sample.places(np.array([[1, word]]))
