"""The cases every engine must agree on with PyTorch: model, loss, and how they are trained."""

from collections.abc import Mapping
from dataclasses import dataclass

from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig

STEPS = 10
LEARNING_RATE = 0.75


@dataclass(frozen=True)
class Case:
    """One model trained one way, for STEPS windows."""

    model: LanguageModelConfig
    training: TrainingConfig


def _training(**changes: object) -> TrainingConfig:
    return TrainingConfig(minibatch=3, bptt=5, learning_rate=LEARNING_RATE, **changes)  # type: ignore[arg-type]


_LSTM = LanguageModelConfig("lstm", vocabulary=40, embedding=8, hidden=8, layers=2)
_GRU = LanguageModelConfig("gru", vocabulary=40, embedding=6, hidden=8, layers=2)

CASES: Mapping[str, Case] = {
    "lstm": Case(_LSTM, _training(clip_norm=None)),
    "lstm-clipped": Case(_LSTM, _training(clip_norm=0.5)),
    "lstm-mean": Case(_LSTM, _training(clip_norm=0.25, loss_reduction="mean")),
    "lstm-lwf": Case(_LSTM, _training(loss="lwf", user_share=0.3)),
    "lstm-lwf-mean": Case(_LSTM, _training(loss="lwf", user_share=0.5, loss_reduction="mean")),
    "gru": Case(_GRU, _training()),
    "gru-tied": Case(LanguageModelConfig("gru", 40, 8, 8, 1, tied=True), _training()),
    "lstm-tied-projected": Case(LanguageModelConfig("lstm", 40, 6, 8, 1, tied=True, output_bias=False), _training()),
    "cifg": Case(LanguageModelConfig("cifg", 40, 6, 8, 2), _training(clip_norm=0.5)),
    "cifg-tied": Case(LanguageModelConfig("cifg", 40, 6, 8, 1, tied=True, output_bias=False), _training()),
    "cifg-tied-lwf": Case(LanguageModelConfig("cifg", 40, 8, 8, 2, tied=True), _training(loss="lwf")),
    "gru-tied-lwf": Case(LanguageModelConfig("gru", 40, 8, 8, 2, tied=True), _training(loss="lwf")),
}


def spread_of(model: LanguageModelConfig) -> float:
    """What seeded weights are multiplied by so that all learn within few steps; a CIFG is fed back by R times P."""
    return 12.0 if model.cell == "cifg" else 6.0
