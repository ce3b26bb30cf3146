import numpy as np
import pytest

from device_runtime.errors import ArtifactsError, TextError, TrainingError
from device_runtime.manifest import TrainingConfig
from device_runtime.rehearsal import TrainingText
from device_runtime.trainer import train_epoch
from device_runtime.windows import Window

CONFIG = TrainingConfig(minibatch=3, bptt=4)


class CountingBackend:
    """Answers each step with the loss of `nats` a token, as the graph would report it."""

    def __init__(self, nats: list[float], config: TrainingConfig):
        self._nats, self._config = iter(nats), config
        self.rates: list[float] = []
        self.trained = 0
        self.resets = 0

    def reset(self) -> None:
        self.resets += 1

    def step(self, window: Window, learning_rate: float) -> float:
        self.rates.append(learning_rate)
        self.trained += window.predictions
        nats = next(self._nats)
        summed = self._config.loss_reduction == "sum_over_time"
        return nats * window.predictions / self._config.minibatch if summed else nats


def text(tokens: int) -> TrainingText:
    return TrainingText(np.arange(tokens) % 7, tokens // 2, tokens - tokens // 2)


@pytest.mark.parametrize("reduction", ["sum_over_time", "mean"])
def test_an_epoch_trains_every_token_and_reports_nats_a_token(reduction: str) -> None:
    config = TrainingConfig(minibatch=3, bptt=4, loss_reduction=reduction)  # type: ignore[arg-type]
    backend = CountingBackend([5.0, 4.0, 3.0], config)
    seen: list[tuple[int, int]] = []
    report = train_epoch(backend, config, text(31), progress=lambda done, total, _: seen.append((done, total)))  # type: ignore[arg-type]
    assert (backend.trained, report.tokens, report.steps, backend.resets) == (31, 31, 3, 1)
    assert report.losses == pytest.approx((5.0, 4.0, 3.0))
    assert backend.rates == [0.75] * 3
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert report.user_share == pytest.approx(15 / 31)


def test_a_given_learning_rate_replaces_the_artifacts() -> None:
    backend = CountingBackend([5.0], CONFIG)
    assert train_epoch(backend, CONFIG, text(12), learning_rate=0.1).learning_rate == 0.1  # type: ignore[arg-type]
    assert backend.rates == [0.1]


def test_text_shorter_than_one_window_is_refused() -> None:
    with pytest.raises(TextError, match=r"12 tokens expected \(one window: minibatch 3 x BPTT 4\), found 11"):
        train_epoch(CountingBackend([], CONFIG), CONFIG, text(11))  # type: ignore[arg-type]


def test_a_loss_that_is_not_finite_stops_the_epoch() -> None:
    with pytest.raises(TrainingError, match="step 2: loss is nan; lower the learning rate"):
        train_epoch(CountingBackend([5.0, float("nan")], CONFIG), CONFIG, text(40))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"minibatch": 0}, "minibatch is 0"),
        ({"bptt": 0}, "bptt is 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"clip_norm": -1.0}, "clip_norm is -1.0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"user_share": 0.0}, "user_share is 0.0"),
        ({"loss": "l2"}, "loss is 'l2', expected one of ce, lwf"),
        ({"loss_reduction": "sum"}, "expected one of sum_over_time, mean"),
    ],
)
def test_impossible_settings_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ArtifactsError, match=message):
        TrainingConfig(**change)  # type: ignore[arg-type]
