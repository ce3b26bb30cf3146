from pathlib import Path

import pytest

from device_runtime.manifest import TrainingConfig
from device_runtime.vocabulary import Vocabulary
from export.artifacts import export_artifacts
from export.presets import preset_named
from export.torch_layout import seeded_weights


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench") / "artifacts"
    model = preset_named("tiny").model
    words = Vocabulary((b"<unk>", b"<eos>", *(b"w%d" % n for n in range(98))))
    export_artifacts(folder, model, TrainingConfig(), seeded_weights(model, 0), words)
    return folder
