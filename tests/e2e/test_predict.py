"""`phonograd predict`: the predictor's suggestions, as a table and as JSON, and what it refuses."""

import os
from pathlib import Path

import numpy as np

import phonograd
from phonograd.device_runtime.text.vocabulary import Vocabulary
from tests.support.command_line import Run, Workplace


def test_it_shows_what_the_predictor_suggests(phono: Run, workplace: Workplace) -> None:
    texts = ("the cat", "", "then it\nthe")
    document = phono("predict", workplace.artifacts, *texts, "--prefix", "T", "--top", 2, "--json").document
    assert [(one["text"], one["prefix"], len(one["words"])) for one in document] == [(text, "T", 2) for text in texts]
    for one in document:
        with phonograd.open_predictor(workplace.artifacts) as predictor:
            predictor.feed(one["text"])
            expected = predictor.suggest("T", 2)
        assert [(word["word"], word["probability"]) for word in one["words"]] == [
            (best.word, best.probability) for best in expected
        ]
    assert document[0]["words"] != document[1]["words"], "each text begins without a state and is read"


def test_the_table_has_a_line_for_each_word(phono: Run, workplace: Workplace) -> None:
    shown = phono("predict", workplace.artifacts, "the cat", "--top", 99)
    assert shown.code == 0, shown.err
    words = [word.decode() for word in Vocabulary.load(workplace.artifacts / "vocab.txt").words[2:]]
    assert all((word in shown.out) == word[0].isalnum() for word in words if word not in ("a", ".", ","))
    none = phono("predict", workplace.artifacts, "the cat", "--prefix", "xyz")
    assert (none.code, "the cat" in none.out) == (0, True)


def test_shift_slips_and_blocked_words(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("The\n\n")
    line = ("predict", workplace.artifacts, "then", "--prefix", "teh", "--top", 1, "--json")
    words = [
        [word["word"] for word in phono(*line, *more).document[0]["words"]]
        for more in ((), ("--slips",), ("--slips", "--shift", "all"), ("--slips", "--block", blocked))
    ]
    assert words[:3] == [[], ["the"], ["THE"]]
    assert words[3] != ["the"]
    blocked.write_text("the cat\n")
    refused = phono(*line, "--block", blocked)
    line_1 = f"{blocked}: blocked words: one word a line expected, found 'the cat' on line 1"
    assert (refused.code, line_1 in refused.err) == (2, True)
    blocked.write_bytes(b"\xff\xfe")
    refused = phono(*line, "--block", blocked)
    assert (refused.code, f"{blocked}: words in UTF-8, one a line, expected" in refused.err) == (3, True)


def test_a_vocabulary_is_counted_and_checked(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    text, out = tmp_path / "text", tmp_path / "vocab.txt"
    text.write_text("the cat sees The Cat\nhere the Cat sleeps, and the Cat eats\n")
    assert phono("vocab", "build", text, "--words", workplace.vocabulary, "--out", out).code == 0
    assert b"\ncat\t4\n" in out.read_bytes()  # three of four are Cat: too few for a form
    shown = phono("vocab", "check", out, text, "--json").document
    assert [sorted(row) for row in shown["texts"]] == [["known", "precision", "recall", "text"]]
    assert 0 < shown["texts"][0]["known"] < 1
    twice = phono("vocab", "build", text, "--words", out, "--size", 7, "--out", tmp_path / "again")
    assert (twice.code, "--size: --words has all words" in twice.err) == (2, True)
    text.write_text("L'homme d'ici, qu'elle\n")
    built = phono("vocab", "build", text, "--size", 9, "--out", out)
    assert "unused" not in phono("vocab", "check", out, text).err + built.err


def test_other_weights_are_those_that_predict(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    trained, int8 = tmp_path / "trained.safetensors", tmp_path / "int8.safetensors"
    assert phono("train", workplace.artifacts, "--user", workplace.user, "--out", trained).code == 0
    phonograd.quantize(workplace.artifacts, int8, weights=trained)
    line = ("predict", workplace.artifacts, "the", "--json")
    before, after, rounded = (
        phono(*line, *options).document[0]["words"][0]["probability"]
        for options in ((), ("--weights", trained), ("--weights", int8))
    )
    assert abs(after - rounded) < 0.01 < abs(after - before)


def test_eval_measures_prediction_weights_as_they_predict(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    text, int8 = tmp_path / "text", tmp_path / "int8.safetensors"
    text.write_text("The cat sat\nthe zebra ran on\n")
    trained = tmp_path / "trained.safetensors"
    assert (
        phono(
            "train",
            workplace.artifacts,
            "--user",
            workplace.user,
            "--set",
            "training.learning_rate=5",
            "--out",
            trained,
        ).code
        == 0
    )
    phonograd.quantize(workplace.artifacts, int8, weights=trained)
    words = [word.decode() for word in Vocabulary.load(workplace.artifacts / "vocab.txt").words]
    losses = []
    with phonograd.open_predictor(workplace.artifacts, weights=int8) as predictor:
        for token in ["the", "cat", "sat", "\n", "the", "zebra", "ran", "on", "\n"]:
            scores = predictor.logits().astype(float)
            word = "<eos>" if token == "\n" else token if token in words else "<unk>"
            losses.append(np.logaddexp.reduce(scores) - scores[words.index(word)])
            predictor.feed(token)
    line = ("eval", workplace.artifacts, "--text", text, "--json", "--weights")
    (row,) = phono(*line, int8).document
    np.testing.assert_allclose(row["perplexity_with_unknown"], np.exp(np.mean(losses)), rtol=1e-6)
    assert (row["tokens"], row["unknown_tokens"]) == (9, 1)
    assert row["perplexity"] != phono(*line, trained).document[0]["perplexity"]
    refused = phono("train", workplace.artifacts, "--user", text, "--weights", int8, "--out", tmp_path / "o")
    assert (refused.code, "found a file of phonograd-prediction; give its model" in refused.err) == (6, True)


def test_bad_input_is_refused_by_name(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    assert phono("predict", workplace.artifacts).code == 2
    assert phono("predict", workplace.artifacts, "a", "--top", 0).code == 2
    missing = phono("predict", tmp_path / "nowhere", "a")
    assert (missing.code, "nowhere" in missing.err) == (5, True)
    other = phono("predict", workplace.artifacts, "a", "--weights", workplace.vocabulary)
    assert (other.code, "safetensors file expected, found text" in other.err) == (6, True)
    for options in ((os.fsdecode(b"\xff"),), ("a", "--prefix", os.fsdecode(b"\xff"))):
        refused = phono("predict", workplace.artifacts, *options)
        assert (refused.code, "not UTF-8" in refused.err) == (3, True)
