"""What is trained on the phones, and what is sent to them."""

import json
from pathlib import Path

import numpy as np
import pytest

from phonograd.android_harness.phone_artifacts import phone_artifacts
from phonograd.android_harness.timing.settings import TextSettings
from phonograd.android_harness.timing.workload import (
    WINDOWS,
    describe_model,
    describe_workload,
    prepare_text,
    zipf_tokens,
)
from phonograd.device_runtime.base.errors import TextError
from phonograd.device_runtime.formats.manifest import FILES, MANIFEST, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.windows import windows
from tests.android_harness.small_artifacts import MODEL, small_artifacts


@pytest.mark.parametrize(("minibatch", "bptt", "vocabulary"), [(1, 1, 2), (3, 7, 500)])
def test_a_synthetic_stream_fills_its_windows_exactly(minibatch: int, bptt: int, vocabulary: int) -> None:
    stream = zipf_tokens(vocabulary, WINDOWS * minibatch * bptt, seed=1)
    cut = list(windows(stream, minibatch, bptt))
    assert len(cut) == WINDOWS
    assert all(window.predictions == minibatch * bptt for window in cut)
    assert 0 <= stream.min() <= stream.max() < vocabulary


def test_ranks_follow_zipfs_law() -> None:
    """The most frequent word's count within 5 standard deviations of its mean: false once in a million seeds."""
    vocabulary, tokens = 1000, 200_000
    counts = np.sort(np.bincount(zipf_tokens(vocabulary, tokens, seed=3), minlength=vocabulary))[::-1]
    harmonic = (1 / np.arange(1, vocabulary + 1)).sum()
    for rank in (1, 2, 4):
        p = 1 / rank / harmonic
        assert abs(counts[rank - 1] - tokens * p) < 5 * (tokens * p * (1 - p)) ** 0.5


def test_the_synthetic_text_is_the_same_for_a_seed_and_another_for_another(tmp_path: Path) -> None:
    artifacts = small_artifacts(tmp_path / "artifacts", TrainingConfig(minibatch=3, bptt=4))

    def data(seed: int, name: str) -> bytes:
        (tmp_path / name).mkdir()
        text = prepare_text(TextSettings(seed=seed), artifacts, tmp_path / name)
        assert text.options == ("--tokens", "tokens.bin", "--seed", str(seed))
        assert text.tokens == WINDOWS * 12
        assert text.description == f"synthetic: 20 windows, 240 tokens drawn by Zipf's law (1/rank), seed {seed}"
        return text.files["tokens.bin"].read_bytes()

    assert data(1, "a") == data(1, "b") != data(2, "c")
    assert len(data(1, "d")) == 4 * WINDOWS * 12


def test_a_users_text_is_pushed_unchanged_and_removed(tmp_path: Path) -> None:
    artifacts = small_artifacts(tmp_path / "artifacts", TrainingConfig(minibatch=2, bptt=5))
    user, general = tmp_path / "u.txt", tmp_path / "g.txt"
    user.write_text("w01 w02 w03 w04\n" * 6)  # 30 tokens with <eos>
    general.write_text("w05 w06\n" * 100)
    text = prepare_text(TextSettings(user), artifacts, tmp_path)
    assert text.files == {"run/user.txt": user}
    assert text.options == ("--user", "run/user.txt", "--seed", "0")
    assert (text.tokens, text.description) == (30, "u.txt: 30 tokens of the user's")
    text = prepare_text(TextSettings(user, general, 0.25, seed=7), artifacts, tmp_path)
    assert text.files == {"run/user.txt": user, "run/rehearsal.txt": general}
    mixed = ("--rehearsal", "run/rehearsal.txt", "--user-share", "0.25")
    assert text.options == ("--user", "run/user.txt", "--seed", "7", *mixed)
    assert (text.tokens, text.description) == (120, "u.txt: 30 tokens of the user's and 90 of g.txt, seed 7")


def test_unusable_texts_fail_before_the_run(tmp_path: Path) -> None:
    artifacts = small_artifacts(tmp_path / "artifacts")
    user = tmp_path / "u.txt"
    with pytest.raises(TextError, match=r"u\.txt"):
        prepare_text(TextSettings(user), artifacts, tmp_path)
    user.write_text("w01 w02\n")
    with pytest.raises(TextError, match=r"u\.txt: 3 tokens, expected at least one window of 200; give more text"):
        prepare_text(TextSettings(user), artifacts, tmp_path)


def test_the_workload_names_what_was_trained(tmp_path: Path) -> None:
    artifacts = small_artifacts(tmp_path / "artifacts")
    workload = describe_workload(artifacts, prepare_text(TextSettings(), artifacts, tmp_path))
    assert workload.model == "2 LSTM layers of 16, embedding 16, 60 words, untied"
    assert (workload.minibatch, workload.bptt, workload.tokens) == (10, 20, 4000)
    assert workload.parameters == MODEL.parameters
    assert describe_model(LanguageModelConfig("gru", 10, 4, 8, 1, tied=True)) == (
        "1 GRU layer of 8, embedding 4, 10 words, tied"
    )


def test_the_second_copy_of_the_weights_is_not_sent(tmp_path: Path) -> None:
    artifacts = small_artifacts(tmp_path / "artifacts")
    files = phone_artifacts(artifacts, tmp_path)
    assert set(files) == {f"artifacts/{name}" for name in (MANIFEST, *FILES)}
    assert files["artifacts/checkpoint"].read_bytes() == b""
    sent = json.loads(files["artifacts/manifest.json"].read_text())
    own = json.loads((artifacts.folder / MANIFEST).read_text())
    assert sent["files"]["checkpoint"]["bytes"] == 0
    del sent["files"]["checkpoint"], own["files"]["checkpoint"]
    assert sent == own
    for name in set(FILES) - {"checkpoint"}:
        assert files[f"artifacts/{name}"] == artifacts.path(name)
    before = files["artifacts/manifest.json"].read_bytes()
    assert phone_artifacts(artifacts, tmp_path)["artifacts/manifest.json"].read_bytes() == before
