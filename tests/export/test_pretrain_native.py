import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.device_runtime.training.round import Round, RoundSettings
from phonograd.export import pretrain_native
from phonograd.export.torch_layout import seeded_weights
from tests.support.pretraining import CORPUS, MODEL, NATIVE, KilledError, Recorder, run

Rounds = list[RoundSettings]


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    """The settings of each part that was trained."""
    seen: Rounds = []

    def note_settings(settings: RoundSettings) -> Round:
        seen.append(settings)
        return Round(settings)

    monkeypatch.setattr(pretrain_native, "Round", note_settings)
    return seen


def tokens(settings: RoundSettings) -> list[int]:
    assert settings.stream is not None
    return [int(token) for token in settings.stream]


def test_parts_cover_the_text_in_another_order_each_epoch(tmp_path: Path, rounds: Rounds) -> None:
    config = replace(NATIVE, part_steps=1, epochs=6, minibatch=2, bptt=13)  # 5 parts of 26 tokens
    run(tmp_path / "out", config)
    text = [int(token) for token in CORPUS.training]
    parts = [text[start : start + 26] for start in range(0, 130, 26)]
    orders = []
    for epoch in range(6):
        order = [parts.index(tokens(settings)) for settings in rounds[epoch * 5 : epoch * 5 + 5]]
        assert sorted(order) == [0, 1, 2, 3, 4]
        orders.append(tuple(order))
    assert len(set(orders)) > 3
    for name in ("seed", "sample_seed"):  # dropout and the output sample differ between parts
        assert len({getattr(settings, name) for settings in rounds}) == 30


def test_the_rest_of_the_text_is_a_shorter_part(tmp_path: Path, rounds: Rounds) -> None:
    run(tmp_path / "out", replace(NATIVE, epochs=1))
    assert [tokens(settings) for settings in rounds] == [list(CORPUS.training[:80]), list(CORPUS.training[80:140])]


@pytest.mark.parametrize(("sample", "least", "most"), [(1, 4, 8), (None, 10, 10)])
def test_a_sample_of_the_words_or_all_of_them(tmp_path: Path, sample: int | None, least: int, most: int) -> None:
    # A part of three words and <eos>: with a sample, the output layer's rows of most other words stay.
    config = replace(NATIVE, output_sample=sample, part_steps=1, minibatch=1, bptt=3, max_steps=1)
    run(tmp_path / "out", config)
    changed = load_tensors(tmp_path / "out")["decoder.weight"] != seeded_weights(MODEL, 3)["decoder.weight"]
    assert least <= changed.any(1).sum() <= most


def test_evaluations_within_an_epoch(tmp_path: Path) -> None:
    config = replace(NATIVE, part_steps=1, epochs=2, evaluate_every=2)
    assert [point.steps for point in run(tmp_path / "out", config).curve] == [2, 4, 6, 7, 9, 11, 13, 14]
    config = replace(config, evaluate_every=4)
    assert [point.steps for point in run(tmp_path / "out", config).curve] == [4, 7, 11, 14]


@pytest.mark.parametrize(("moment", "calls"), [("advance", 3), ("add", 1), ("_save", 2)])
def test_a_kill_between_the_weights_and_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, calls: int
) -> None:
    def kill(*_: Any) -> None:
        raise KilledError

    def until(calls: int, done: Callable[..., None]) -> Callable[..., None]:
        left = iter(range(calls))
        return lambda *arguments: kill() if next(left, None) is None else done(*arguments)

    expected = run(tmp_path / "whole", NATIVE)
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        of = pretrain_native.PretrainState
        patch.setattr(of, moment, until(calls, getattr(of, moment)))
        run(tmp_path / "out", NATIVE, tmp_path / "state")
    result = run(tmp_path / "out", NATIVE, tmp_path / "state")
    assert dataclasses.replace(result, weights=expected.weights) == expected
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_resumed_run_needs_neither_torch_nor_onnx(tmp_path: Path) -> None:
    run(tmp_path / "whole", NATIVE)
    with pytest.raises(KilledError):
        run(tmp_path / "out", NATIVE, tmp_path / "state", Recorder(kill_after=8))
    program = f"""
import sys
sys.modules |= dict.fromkeys(("torch", "onnx", "onnxruntime"))
from pathlib import Path
from tests.support.pretraining import NATIVE, run
run(Path({str(tmp_path / "out")!r}), NATIVE, Path({str(tmp_path / "state")!r}))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
