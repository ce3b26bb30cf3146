"""Texts are drawn by the model's chances, and their likelihood is the model's."""

import numpy as np
import pytest

from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.text import sampling
from phonograd.device_runtime.text.sampling import draw_texts, log_likelihoods
from phonograd.device_runtime.text.vocabulary import EOS, Ids
from tests.support.artifacts import exported

V = 20


class Chain:
    """Scores of the next word by the last one alone: rows of a table [V, V]. calls: shapes of tokens, () a reset."""

    def __init__(self, table: Floats):
        self.table = table
        self.calls: list[tuple[int, ...]] = []

    def reset(self) -> None:
        self.calls.append(())

    def logits(self, tokens: Ids) -> Floats:
        self.calls.append(tokens.shape)
        return self.table[tokens.reshape(-1)].copy()


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several batches, blocks and segments, the last of each smaller than the others."""
    monkeypatch.setattr(sampling, "SCORES_BYTES", 4 * V * 300)
    monkeypatch.setattr(sampling, "BLOCK_BYTES", 4 * V * 7)
    monkeypatch.setattr(sampling, "SEGMENT", 8)


def table(seed: int) -> Floats:
    return np.random.default_rng(seed).normal(0, 2, (V, V)).astype(np.float32)


def chances(scores: Floats) -> np.ndarray:
    exponentials = np.exp(scores.astype(np.float64))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def test_words_are_drawn_by_their_chances() -> None:
    scores, count = table(1), 10_000
    drawn = draw_texts(Chain(scores), V, count, 2, seed=3).ids
    expected = chances(scores)
    first = np.bincount(drawn[0], minlength=V) / count
    assert (np.abs(first - expected[EOS]) < 5 * np.sqrt(expected[EOS] / count)).all()
    after = drawn[1][drawn[0] == first.argmax()]
    second = np.bincount(after, minlength=V) / len(after)
    assert (np.abs(second - expected[first.argmax()]) < 5 * np.sqrt(expected[first.argmax()] / len(after))).all()


def test_likelihoods_are_the_models() -> None:
    scores, other = table(1), table(2)
    drawn = draw_texts(Chain(scores), V, 1000, 3, seed=3)
    path = np.vstack((np.full((1, 1000), EOS), drawn.ids))
    for model, found in ((scores, drawn.log_likelihoods), (other, log_likelihoods(Chain(other), V, drawn.ids))):
        assert np.allclose(found, np.log(chances(model)[path[:-1], path[1:]]).sum(axis=0), rtol=1e-5)


def test_a_text_depends_on_seed_and_place_alone() -> None:
    many = draw_texts(Chain(table(1)), V, 1000, 3, seed=3)
    few = draw_texts(Chain(table(1)), V, 10, 3, seed=3)
    assert np.array_equal(many.ids[:, :10], few.ids)
    assert np.array_equal(many.log_likelihoods[:10], few.log_likelihoods)
    assert not np.array_equal(few.ids, draw_texts(Chain(table(1)), V, 10, 3, seed=4).ids)
    assert not np.array_equal(many.ids[:, :300], many.ids[:, 300:600])  # two batches


def test_every_batch_starts_from_zero_states() -> None:
    model = Chain(table(1))
    draw_texts(model, V, 700, 2, seed=3)
    assert model.calls == [(), (1, 300), (1, 300), (), (1, 300), (1, 300), (), (1, 100), (1, 100)]


def test_the_engine_gives_a_text_the_same_likelihood_drawn_or_read() -> None:
    model = LanguageModelConfig("lstm", vocabulary=V, embedding=8, hidden=8, layers=1)
    artifacts = exported(model, TrainingConfig(minibatch=2, bptt=5), spread=8)
    engine = NativeBackend(artifacts, None, BackendOptions())
    drawn = draw_texts(engine, V, 700, 6, seed=3)
    assert np.allclose(log_likelihoods(engine, V, drawn.ids), drawn.log_likelihoods, atol=1e-4)
    engine.close()


def test_scores_that_end_in_a_certain_word() -> None:
    """Sums of float32 chances round; what is drawn must still be possible."""
    scores = np.full((V, V), -200, np.float32)
    scores[:, 5] = scores[:, 8] = 0
    drawn = draw_texts(Chain(scores), V, 2000, 1, seed=3)
    assert set(drawn.ids[0]) == {5, 8}
    assert np.allclose(drawn.log_likelihoods, np.log(0.5))
