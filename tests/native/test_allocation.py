"""A training step allocates nothing: memory is planned when the engine is made."""

import json
import subprocess
from pathlib import Path

from device_runtime.manifest import TrainingConfig
from device_runtime.model_config import LanguageModelConfig
from device_runtime.native_build import engine_sources
from device_runtime.vocabulary import Vocabulary
from export.artifacts import export_artifacts
from export.torch_layout import seeded_weights
from tests.native.conftest import BuildTool


def test_a_step_allocates_nothing(tmp_path: Path, build_tool: BuildTool) -> None:
    words = Vocabulary((b"<unk>", b"<eos>", *(b"w%d" % n for n in range(148))))
    models = {
        "lstm": (
            LanguageModelConfig("lstm", 150, 12, 20, 2),
            TrainingConfig(minibatch=3, bptt=5, learning_rate=0.1, clip_norm=0.5, dropout=0.2),
        ),
        "gru": (
            LanguageModelConfig("gru", 150, 20, 20, 1, tied=True),
            TrainingConfig(minibatch=3, bptt=5, learning_rate=0.1, loss="lwf"),
        ),
    }
    for name, (model, training) in models.items():
        export_artifacts(tmp_path / name, model, training, seeded_weights(model, seed=1), words)
    program = build_tool("allocation_tool", [Path(__file__).with_name("allocation_tool.cpp"), *engine_sources()])
    line = [program, *(tmp_path / name for name in models)]
    found = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
    assert len(found) == len(models)
    for engine in found:
        assert engine["before"] > 100  # the counter counts
        assert engine["losses"] > 0
        assert engine["later"] == 0
