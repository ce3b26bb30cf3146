"""Training by a plain loop over windows, for a backend that runs the artifacts but is not ours: ONNX Runtime."""

import time
from collections.abc import Callable

from phonograd.device_runtime.base.system import peak_rss_bytes
from phonograd.device_runtime.engine.backend import Backend
from phonograd.device_runtime.formats.manifest import Manifest
from phonograd.device_runtime.text.rehearsal import TrainingText
from phonograd.device_runtime.training.report import EpochReport, OutputLayer, require_converging, training_windows


def train_plainly(
    backend: Backend,
    manifest: Manifest,
    text: TrainingText,
    learning_rate: float,
    epochs: int = 1,
    candidates: int | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> EpochReport:
    """Train on a text, each epoch from zero states, one step a window.

    candidates: the number of words in the backend's output sample, None without one. progress: called with (steps done,
    steps in total, loss in nats a token). Raises TextError if the text does not fill one window of B·T tokens,
    TrainingError if a loss is not finite or training diverges.
    """
    training = manifest.training
    layer = OutputLayer("full", manifest.model.vocabulary) if candidates is None else OutputLayer("sampled", candidates)
    layout = training_windows(text.stream, training)
    losses, step_seconds = list[float](), list[float]()
    began = time.perf_counter()
    for _ in range(epochs):
        backend.reset()
        for window in layout:
            step_began = time.perf_counter()
            loss = backend.step(window, learning_rate)
            step_seconds.append(time.perf_counter() - step_began)
            if training.loss_reduction == "sum_over_time":
                loss *= training.minibatch / window.predictions
            losses.append(loss)
            require_converging(loss, len(losses), layer, learning_rate)
            if progress is not None:
                progress(len(losses), epochs * len(layout), loss)
    return EpochReport(
        epochs=epochs,
        steps=len(losses),
        tokens=len(text.stream),
        user_tokens=text.user_tokens,
        general_tokens=text.general_tokens,
        user_share=text.user_share,
        user_unknown_share=text.user_unknown_share,
        general_unknown_share=text.general_unknown_share,
        user_invalid_share=text.user_invalid_share,
        duty=1.0,
        learning_rate=learning_rate,
        clip_norm=training.clip_norm,
        loss_reduction=training.loss_reduction,
        output_layer=layer,
        losses=tuple(losses),
        step_seconds=tuple(step_seconds),
        seconds=time.perf_counter() - began,
        rest_seconds=0.0,
        peak_rss_bytes=peak_rss_bytes(),
    )
