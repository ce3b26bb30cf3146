import math

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.text.evaluation import evaluate
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary

#                         0         1         2      3       4       5      6
VOCABULARY = Vocabulary((b"<unk>", b"<eos>", b"the", b"them", b"they", b"to", b"a"))


class FixedScores:
    """A model that gives every position the same probabilities."""

    def __init__(self, probabilities: list[float]):
        self._scores = np.log(np.array(probabilities)).astype(np.float32)
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def logits(self, tokens: Ids) -> Floats:
        return np.tile(self._scores, (tokens.size, 1))


MODEL = [0.05, 0.05, 0.4, 0.1, 0.05, 0.3, 0.05]


def test_top1_is_of_words_that_a_keyboard_may_suggest() -> None:
    """<unk> or <eos> is the most probable: the word after it is the first suggestion; of equals, the first."""
    for best in ([0.4, 0.1], [0.1, 0.4], [0.3, 0.2]):
        result = evaluate(
            FixedScores([*best, 0.19, 0.06, 0.03, 0.19, 0.03]), VOCABULARY, [b"the to zzz <unk> the"], 1, 4
        )
        assert (result.top1, result.top1_with_unknown) == (2 / 5, 0), best


def test_standard_errors_by_hand() -> None:
    """Messages of 3 and 2 words, 2 and 0 of them hits: about 2/5, rests of 0.8 and -0.8. Of a single message: 0."""
    text = [b"the to the", b"zzz a"]
    result = evaluate(FixedScores(MODEL), VOCABULARY, text, 1, 2)
    assert result.top1_error == pytest.approx(math.sqrt(2 * (0.8**2 + 0.8**2)) / 5)
    single = evaluate(FixedScores(MODEL), VOCABULARY, text[:1], 1, 2, kss=True)
    assert (single.perplexity_error, single.top1_error, single.kss_error) == (0, 0, 0)


def test_kss_by_hand() -> None:
    """Ranks with no prefix: the, to, them; they comes after "the" only where they, them, the are among three.

    the: suggested at once, 0 of 3. to: 0 of 2. them: third, 0 of 4. they: ties with "a" behind three, so one character
    "t" is typed: the, to, them are before it; "th": the, them before it, third: 2 of 4. a: 4 greater words; with "a"
    it is alone, but one character is all of it: 1 of 1. zzz is unknown: 3 of 3.
    """
    result = evaluate(FixedScores(MODEL), VOCABULARY, [b"the to them they a zzz"], 1, 4, kss=True)
    typed, total = 0 + 0 + 0 + 2 + 1 + 3, 3 + 2 + 4 + 4 + 1 + 3
    assert result.kss == pytest.approx((total - typed) / total)


def test_layout_does_not_change_the_measure_of_a_model_without_memory() -> None:
    text = [b"the to them zzz", b"a they"] * 60
    results = [evaluate(FixedScores(MODEL), VOCABULARY, text, b, t, kss=True) for b, t in ((1, 1), (3, 7), (50, 20))]
    for result in results[1:]:
        assert result.perplexity == pytest.approx(results[0].perplexity)
        assert result.perplexity_error == pytest.approx(results[0].perplexity_error)
        exact = ("tokens", "words", "characters", "top1", "top1_error", "kss", "kss_error")
        assert [getattr(result, name) for name in exact] == [getattr(results[0], name) for name in exact]


def test_a_broken_model_is_an_error_not_a_number() -> None:
    class Broken(FixedScores):
        def logits(self, tokens: Ids) -> Floats:
            return super().logits(tokens) * np.float32(math.nan)

    with pytest.raises(TrainingError, match="scores are not finite"):
        evaluate(Broken(MODEL), VOCABULARY, [b"the"], 1, 2)


def test_a_perplexity_past_all_numbers_is_infinite() -> None:
    class Sure(FixedScores):
        def logits(self, tokens: Ids) -> Floats:
            return np.tile(np.array([0, 0, 0, 1e30, 0, 0, 0], np.float32), (tokens.size, 1))

    assert evaluate(Sure(MODEL), VOCABULARY, [b"the"], 1, 2).perplexity == math.inf


def test_what_a_scorer_or_a_listener_raises_ends_the_evaluation() -> None:
    class Failing(FixedScores):
        def logits(self, tokens: Ids) -> Floats:
            raise LookupError("scores")

    def fail_at_progress(done: int, total: int) -> None:
        raise LookupError(done, total)

    with pytest.raises(LookupError, match="scores"):
        evaluate(Failing(MODEL), VOCABULARY, [b"the"], 1, 2)
    with pytest.raises(LookupError, match=r"2, 5"):
        evaluate(FixedScores(MODEL), VOCABULARY, [b"the to a they"], 1, 2, progress=fail_at_progress)
