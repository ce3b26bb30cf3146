"""Training with an output sample: what it trains, reports and keeps to itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

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


def test_the_seed_of_the_draw_is_another_every_time_and_told_to_nobody(
    phono: Run, workplace: Workplace, user: Path, tmp_path: Path
) -> None:
    drawn = set()
    for _ in range(6):
        line = ("--seed", 1, "--set", "training.output_sample=5", "--update", tmp_path / "u", "--out", tmp_path / "w")
        outcome = phono("train", workplace.artifacts, "--user", user, *line, "--json")
        assert "sample_seed" not in outcome.out + outcome.err
        with TensorFile(tmp_path / "u") as update:
            assert set(update.metadata) == {"format", "version", "base_sha256", "round", "tokens", "codec", "seed"}
            assert update.metadata["seed"] == "1"
        drawn.add(frozenset(moved_words(workplace, tmp_path / "w", "decoder.weight")))
    assert len(drawn) > 1  # of 11 others; the same ones six times come less than once in 10^5


def test_candidates_alone_are_trained_and_the_report_says_how_many(
    phono: Run, workplace: Workplace, user: Path, tmp_path: Path
) -> None:
    line = ("--seed", 1, "--out", tmp_path / "w")
    assert train(phono, workplace, user, *line)["output_layer"] == {"kind": "full", "words": 17}
    sample = ("--set", "training.output_sample=5", "--sample-seed", (1 << 64) - 1)
    document = train(phono, workplace, user, *line, *sample)
    moved = moved_words(workplace, tmp_path / "w", "decoder.weight")
    assert document["output_layer"] == {"kind": "sampled", "words": len(moved)}
    assert moved >= {b"<unk>", b"<eos>", *OWN}
    assert 6 < len(moved) < 17
    assert moved_words(workplace, tmp_path / "w", "decoder.bias") == moved
    assert moved_words(workplace, tmp_path / "w", "embedding.weight") == {b"<eos>", *OWN}
