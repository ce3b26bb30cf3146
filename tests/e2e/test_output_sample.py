"""`phonograd train --output-sample`: what it trains, reports, keeps to itself, and goes on with."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import phonograd
from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors
from phonograd.device_runtime.text.vocabulary import Vocabulary
from tests.support.command_line import Run, Workplace

OWN = (b"the", b"cat", b"sat", b"on")


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A text of few words, so that others are left to draw."""
    path = tmp_path / "few.txt"
    path.write_bytes(b"the cat sat on the cat\n" * 60)
    return path


def train(phono: Run, workplace: Workplace, user: Path, *options: object) -> Any:
    return phono("train", workplace.artifacts, "--user", user, "--json", *options).document


def moved_words(workplace: Workplace, weights: Path, tensor: str) -> set[bytes]:
    """The words whose row of a tensor was trained."""
    before, after = load_tensors(workplace.artifacts / "weights.safetensors")[tensor], load_tensors(weights)[tensor]
    rows = np.flatnonzero((before != after).reshape(len(before), -1).any(axis=1))
    words = Vocabulary.load(workplace.artifacts / "vocab.txt").words
    return {words[row] for row in rows}


@pytest.mark.parametrize("backend", ["native", "ort"])
def test_the_candidates_alone_are_trained_and_the_report_says_how_many(
    phono: Run, workplace: Workplace, user: Path, tmp_path: Path, backend: str
) -> None:
    line = ("--backend", backend, "--seed", 1, "--out", tmp_path / "w")
    assert train(phono, workplace, user, *line)["output_layer"] == {"kind": "full", "words": 17}
    assert len(moved_words(workplace, tmp_path / "w", "decoder.weight")) == 17
    for number in (1, 1000):
        document = train(phono, workplace, user, *line, "--output-sample", number, "--sample-seed", 3)
        moved = moved_words(workplace, tmp_path / "w", "decoder.weight")
        assert document["output_layer"] == {"kind": "sampled", "words": len(moved)}
        assert moved >= {b"<unk>", b"<eos>", *OWN}
        assert len(moved) < 10 if number == 1 else len(moved) == 17
        assert moved_words(workplace, tmp_path / "w", "decoder.bias") == moved
        assert moved_words(workplace, tmp_path / "w", "embedding.weight") == {b"<eos>", *OWN}


def test_backends_draw_the_same_words_by_a_seed(phono: Run, workplace: Workplace, user: Path, tmp_path: Path) -> None:
    line = ("--seed", 1, "--output-sample", 5, "--sample-seed", (1 << 64) - 1, "--out", tmp_path / "w")
    first = train(phono, workplace, user, *line)
    drawn = moved_words(workplace, tmp_path / "w", "decoder.weight")
    assert 6 < first["output_layer"]["words"] == len(drawn) < 17
    assert train(phono, workplace, user, *line, "--backend", "ort")["losses"] == pytest.approx(
        first["losses"], rel=1e-4
    )
    assert moved_words(workplace, tmp_path / "w", "decoder.weight") == drawn


def test_the_seed_of_the_draw_is_another_every_time_and_told_to_nobody(
    phono: Run, workplace: Workplace, user: Path, tmp_path: Path
) -> None:
    drawn = set()
    for _ in range(12):
        line = ("--seed", 1, "--output-sample", 5, "--update", tmp_path / "u", "--out", tmp_path / "w")
        outcome = phono("train", workplace.artifacts, "--user", user, *line, "--json")
        assert "sample_seed" not in outcome.out + outcome.err
        with TensorFile(tmp_path / "u") as update:
            assert set(update.metadata) == {"format", "version", "base_sha256", "round", "tokens", "codec", "seed"}
            assert update.metadata["seed"] == "1"
        drawn.add(frozenset(moved_words(workplace, tmp_path / "w", "decoder.weight")))
    assert len(drawn) > 1  # of 11 others; the same ones twelve times come less than once in 10^9


def test_an_epoch_that_was_stopped_goes_on_with_its_draw(workplace: Workplace, user: Path, tmp_path: Path) -> None:
    state = phonograd.ResumableState(tmp_path / "state")
    done: list[int] = []

    @contextlib.contextmanager
    def stop() -> Iterator[Callable[[], int]]:
        yield lambda: signal.SIGTERM if len(done) == 1 else 0

    def start(**options: Any) -> phonograd.Trained:
        return phonograd.train(workplace.artifacts, user, seed=7, output_sample=5, **options)

    with pytest.raises(phonograd.StoppedError):
        start(state=state, stop=stop, progress=lambda step, *_: done.append(step))
    with TensorFile(tmp_path / "state/state.safetensors") as saved:
        seed = int(saved.metadata["sample_seed"])
    for odd in ({"sample_seed": seed ^ 1}, {"output_sample": 6}):
        with pytest.raises(phonograd.StateError):
            phonograd.train(workplace.artifacts, user, seed=7, state=state, **{"output_sample": 5, **odd})  # type: ignore[arg-type]
    resumed = start(state=state, out=tmp_path / "resumed")
    assert resumed.report.resumed_at == 1
    assert resumed.weights == start(sample_seed=seed, out=tmp_path / "whole").weights


def test_options_that_do_not_go_together(phono: Run, workplace: Workplace, user: Path) -> None:
    outcome = phono("train", workplace.artifacts, "--user", user, "--sample-seed", 3)
    assert (outcome.code, "--sample-seed: expected with --output-sample" in outcome.err) == (2, True)
    assert phono("train", workplace.artifacts, "--user", user, "--output-sample", 0).code == 2
    with pytest.raises(phonograd.UsageError, match="`output_sample` 0: expected a number above 0"):
        phonograd.train(workplace.artifacts, user, output_sample=0)
    with pytest.raises(phonograd.UsageError, match="`sample_seed` needs `output_sample`"):
        phonograd.train(workplace.artifacts, user, sample_seed=3)
