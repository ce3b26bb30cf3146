import json
from pathlib import Path

import numpy as np
import pytest

from phonograd import PersonalWords
from phonograd.bench.predict import MODEL, PredictorScorer
from phonograd.bench.results import load_results, render
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.engine.predictor import Predictor
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.evaluation import evaluate, keystroke_savings
from tests.support.artifacts import exported, words

ARTIFACTS = exported(LanguageModelConfig("lstm", vocabulary=80, embedding=12, hidden=16, layers=1), spread=14.0)
MESSAGES = [b"w1 w2 nonsense w3", b"w4 <unk> w5", b"w6"]


def test_savings_are_those_of_the_engine() -> None:
    """Savings hold in windows of any length, though a predictor begins with <eos> by itself."""
    backend = NativeBackend(ARTIFACTS, None, BackendOptions())
    expected = evaluate(backend, words(80), MESSAGES, 1, 5, kss=True)
    backend.close()
    with Predictor(ARTIFACTS, None, BackendOptions()) as predictor:
        for bptt in (1, 5):
            found = evaluate(PredictorScorer(predictor, words(80)), words(80), MESSAGES, 1, bptt, kss=True)
            assert (found.tokens, found.kss, found.top1) == (expected.tokens, expected.kss, expected.top1)
            savings = keystroke_savings(predictor, words(80), MESSAGES, learn=False)
            assert savings == (expected.kss, expected.kss_without_marks)
            assert found.perplexity_with_unknown == pytest.approx(expected.perplexity_with_unknown, rel=1e-5)


def test_what_is_learned_meanwhile_is_followed_once() -> None:
    with PersonalWords() as own, Predictor(ARTIFACTS, None, BackendOptions()) as predictor:
        predictor.use(own)
        keystroke_savings(predictor, words(80), [b"w1 w2<unk> w3", b"w4"], learn=True)
        found = predictor.logits()
        predictor.reset()
        predictor.learn("w1 w2<unk> w3\nw4\n")
        np.testing.assert_array_equal(predictor.logits(), found)


@pytest.mark.long
def test_the_ways_and_their_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "typed.txt").write_bytes(b"\n".join(MESSAGES))
    line = ["bench", "predict", "--artifacts", str(ARTIFACTS.folder), "--words", "4", "--context", "3"]
    line += ["--threads", "1", "--text", str(tmp_path / "typed.txt")]
    (tmp_path / "results").mkdir()
    assert run(phonograd, [*line, "--save", str(tmp_path / "results" / "predict.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["ways"]] == [MODEL, "predictor, float32", "predictor, int8"]
    for one in found["ways"]:
        assert len(one["word_seconds"]) == 4
        assert one["median_seconds"] == pytest.approx(np.median(one["word_seconds"]))
        assert min(one["letter_seconds"], one["open_seconds"], one["weight_bytes"], one["kss"]) > 0
        assert one["perplexity_with_unknown"] != one["perplexity"]  # of 11 tokens two are unknown
    assert found["ways"][0]["ratio"] == 1
    assert found["ways"][2]["weight_bytes"] < found["ways"][1]["weight_bytes"]
    page = render(load_results(tmp_path / "results"))
    assert "## A prediction: LSTM 1x16, 80 words" in page
    assert "11 tokens of typed.txt" in page
    assert "| predictor, int8 | " in page
    assert f" | {found['ways'][0]['perplexity_with_unknown']:.2f} |\n| predictor, float32 |" in page
