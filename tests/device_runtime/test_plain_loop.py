import numpy as np
import pytest

from phonograd.device_runtime.base.errors import TextError, TrainingError
from phonograd.device_runtime.engine.backend import Window
from phonograd.device_runtime.formats.manifest import Manifest, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.rehearsal import TrainingText
from phonograd.device_runtime.training.plain_loop import train_plainly
from phonograd.device_runtime.training.report import EpochReport, OutputLayer

CONFIG = TrainingConfig(minibatch=3, bptt=4)


def manifest(training: TrainingConfig = CONFIG) -> Manifest:
    """The manifest of a model of 7 words: a uniform guess costs ln 7 = 1.95 nats."""
    return Manifest(LanguageModelConfig("lstm", 7, 2, 2, 1), training, (), (), {}, {})


class CountingBackend:
    """Answers each step with the loss of `nats` a token, as the graph would report it."""

    def __init__(self, nats: list[float], config: TrainingConfig):
        self._nats, self._config = iter(nats), config
        self.rates: list[float] = []
        self.trained = 0
        self.began_at: list[int] = []
        self.first_tokens: list[int] = []

    def reset(self) -> None:
        self.began_at.append(len(self.rates))

    def step(self, window: Window, learning_rate: float) -> float:
        self.rates.append(learning_rate)
        self.first_tokens.append(int(window.tokens[0, 0]))
        self.trained += window.predictions
        nats = next(self._nats)
        summed = self._config.loss_reduction == "sum_over_time"
        return nats * window.predictions / self._config.minibatch if summed else nats


def text(tokens: int) -> TrainingText:
    return TrainingText(tokens // 2, tokens - tokens // 2, stream=np.arange(tokens) % 7)


def train_epoch(backend: CountingBackend, manifest: Manifest, text: TrainingText, **options: object) -> EpochReport:
    return train_plainly(backend, manifest, text, **{"learning_rate": 0.75, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("reduction", ["sum_over_time", "mean"])
def test_an_epoch_trains_every_token_and_reports_nats_a_token(reduction: str) -> None:
    config = TrainingConfig(minibatch=3, bptt=4, loss_reduction=reduction)  # type: ignore[arg-type]
    backend = CountingBackend([5.0, 4.0, 3.0], config)
    seen: list[tuple[int, int]] = []
    report = train_epoch(
        backend, manifest(config), text(31), progress=lambda done, total, _: seen.append((done, total))
    )  # type: ignore[arg-type]
    assert (backend.trained, report.tokens, report.steps) == (31, 31, 3)
    assert report.losses == pytest.approx((5.0, 4.0, 3.0))
    assert backend.rates == [0.75] * 3
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert report.user_share == pytest.approx(15 / 31)


def test_the_learning_rate() -> None:
    backend = CountingBackend([5.0], CONFIG)
    assert train_epoch(backend, manifest(), text(12), learning_rate=0.1).learning_rate == 0.1
    assert backend.rates == [0.1]


def test_text_shorter_than_one_window_is_refused() -> None:
    with pytest.raises(TextError, match=r"12 tokens expected \(one window: minibatch 3 x BPTT 4\), found 11"):
        train_epoch(CountingBackend([], CONFIG), manifest(), text(11))


@pytest.mark.parametrize("reduction", ["sum_over_time", "mean"])
@pytest.mark.parametrize(("loss", "said"), [(float("nan"), "nan"), (19.5, "19.5"), (float("inf"), "inf")])
def test_a_loss_of_ten_times_the_uniform_guess_is_divergence(reduction: str, loss: float, said: str) -> None:
    """Ten times ln 7 is 19.46 nats a token, whatever the loss is summed over."""
    config = TrainingConfig(minibatch=3, bptt=4, loss_reduction=reduction)  # type: ignore[arg-type]
    with pytest.raises(TrainingError, match=rf"step 2: loss is {said} nats a token, expected 19.4591 at most"):
        train_epoch(CountingBackend([5.0, loss], config), manifest(config), text(40))
    worst = CountingBackend([5.0, 19.4, 19.4, 19.4], config)
    assert train_epoch(worst, manifest(config), text(40)).steps == 4


def test_a_sampled_loss_is_judged_by_its_candidates_and_named() -> None:
    """Ten times ln 4 is 13.86 nats a token, below what the full softmax over 7 words may have."""
    full = train_epoch(CountingBackend([14.0], CONFIG), manifest(), text(12))
    assert full.output_layer == OutputLayer("full", 7)
    with pytest.raises(TrainingError, match="step 1: loss is 14 nats a token, expected 13.8629 at most"):
        train_epoch(CountingBackend([14.0], CONFIG), manifest(), text(12), candidates=4)
    sampled = train_epoch(CountingBackend([13.8], CONFIG), manifest(), text(12), candidates=4)
    assert sampled.output_layer == OutputLayer("sampled", 4)


def test_each_epoch_begins_with_the_text_and_zero_states() -> None:
    backend = CountingBackend([5.0] * 9, CONFIG)
    report = train_epoch(backend, manifest(), text(31), epochs=3)
    assert (report.epochs, report.steps, len(report.losses), report.tokens) == (3, 9, 9, 31)
    assert backend.began_at == [0, 3, 6]
    assert backend.first_tokens[:3] == backend.first_tokens[3:6] == backend.first_tokens[6:]
