"""Artifacts and a text for a short round."""

from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from tests.support.artifacts import exported

TRAINING = TrainingConfig(minibatch=4, bptt=5, clip_norm=None)
TEXT = b"w1 w2 w150\nw7 w9 w40 w41\n" * 6


def artifacts() -> Artifacts:
    return exported(LanguageModelConfig("lstm", vocabulary=200, embedding=24, hidden=24, layers=1), TRAINING)
