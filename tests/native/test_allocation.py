"""Memory: a training step allocates nothing, and training with an output sample maps few pages of the weights."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.native_build import build_program
from phonograd.device_runtime.native_build.targets import engine_sources
from tests.support.artifacts import exported
from tests.support.phone_command import Place, outcome_of

MODELS = (
    (
        LanguageModelConfig("lstm", 150, 12, 20, 2),
        TrainingConfig(minibatch=3, bptt=5, learning_rate=0.1, clip_norm=0.5, dropout=0.2),
    ),
    (
        LanguageModelConfig("cifg", 150, 12, 20, 2),
        TrainingConfig(minibatch=3, bptt=5, learning_rate=0.1, clip_norm=0.5),
    ),
    (
        LanguageModelConfig("gru", 150, 20, 20, 1, tied=True),
        TrainingConfig(minibatch=3, bptt=5, learning_rate=0.1, loss="lwf"),
    ),
)


def test_a_step_allocates_nothing() -> None:
    tools = [Path(__file__).with_name(f"{name}.cpp") for name in ("allocation_tool", "failing_calls")]
    program = build_program("allocation_tool", [*tools, *engine_sources()])
    line = [program, *(exported(model, training).folder for model, training in MODELS)]
    counted = {**os.environ, "PHONOGRAD_FAIL": f"malloc:{1 << 40}:0"}  # none of them fails
    found = json.loads(subprocess.run(line, env=counted, capture_output=True, text=True, check=True).stdout)
    assert len(found) == len(MODELS)
    for engine in found:
        assert engine["before"] > 100  # the counter counts
        assert engine["losses"] > 0
        assert engine["later"] == 0


WIDE = LanguageModelConfig("lstm", vocabulary=80_000, embedding=128, hidden=128, layers=1)


def tokens_of_all_pages(folder: Path) -> Path:
    (folder / "tokens").write_bytes((np.arange(150) * 531).astype("<i4").tobytes())
    return folder / "tokens"


@pytest.mark.long
def test_rows_of_other_words_never_become_the_processs_own(place: Place, tmp_path: Path) -> None:
    """Clean pages of the weights' file count too: a peak below the weights is that of rows that were never mapped."""
    folder = exported(WIDE, TrainingConfig(minibatch=3, bptt=5)).folder
    weights = (folder / "weights.safetensors").stat().st_size
    line = place.line("train", folder, "--tokens", tokens_of_all_pages(tmp_path), "--update", tmp_path / "update")
    stateful = ("--state", tmp_path / "state", "--save-every", 1)
    for codec in ("rows-f32", "delta-int8", "top-rows"):
        options = ("--output-sample", 200, "--codec", codec, *stateful)
        report = outcome_of([*line, *map(str, options)]).only("report")
        assert report["peak_rss_bytes"] < weights / 2
    assert outcome_of(line).only("report")["peak_rss_bytes"] > weights


@pytest.mark.long
def test_a_teachers_embedding_is_mapped_for_one_step_at_a_time(place: Place, tmp_path: Path) -> None:
    """LwF adds its output layer's weights, half the model, and not those of its embedding, the other half.

    The model and half of it are 1.85 of its weights; 2.2 with the rows of all steps, which one fault maps 64 KiB of.
    """
    folder = exported(WIDE, TrainingConfig(minibatch=3, bptt=5, loss="lwf")).folder
    line = place.line("train", folder, "--tokens", tokens_of_all_pages(tmp_path))
    report = outcome_of(line).only("report")
    assert report["peak_rss_bytes"] < 2.04 * (folder / "weights.safetensors").stat().st_size
