"""A training step allocates nothing: memory is planned when the engine is made."""

import json
import subprocess
from pathlib import Path

from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.native_build import engine_sources
from tests.native.conftest import BuildTool
from tests.support.artifacts import exported

MODELS = (
    (
        LanguageModelConfig("lstm", 150, 12, 20, 2),
        TrainingConfig(minibatch=3, bptt=5, learning_rate=0.1, clip_norm=0.5, dropout=0.2),
    ),
    (
        LanguageModelConfig("gru", 150, 20, 20, 1, tied=True),
        TrainingConfig(minibatch=3, bptt=5, learning_rate=0.1, loss="lwf"),
    ),
)


def test_a_step_allocates_nothing(build_tool: BuildTool) -> None:
    program = build_tool("allocation_tool", [Path(__file__).with_name("allocation_tool.cpp"), *engine_sources()])
    line = [program, *(exported(model, training).folder for model, training in MODELS)]
    found = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
    assert len(found) == len(MODELS)
    for engine in found:
        assert engine["before"] > 100  # the counter counts
        assert engine["losses"] > 0
        assert engine["later"] == 0
