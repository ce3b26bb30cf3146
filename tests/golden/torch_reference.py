"""One step of each case by PyTorch's own automatic differentiation."""

import numpy as np
import torch
from torch.nn import functional as F

from phonograd.device_runtime.engine.backend import IGNORED, OutputSample, Window
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample
from phonograd.export.torch_model import LanguageModel
from tests.golden.cases import Case
from tests.support.artifacts import words

# Threads would only wait for each other: the products are tiny.
torch.set_num_threads(1)
OWN = 13  # words that the windows of `few_words` are made of: the first of the vocabulary


def windows_of(case: Case, steps: int, seed: int = 0) -> list[Window]:
    """Random windows, the last one partly padding."""
    random = np.random.default_rng(seed)
    shape = (case.training.bptt, case.training.minibatch)
    made = [Window(*(random.integers(0, case.model.vocabulary, shape) for _ in range(2))) for _ in range(steps)]
    made[-1].targets[2:, 1:] = IGNORED
    return made


def few_words(case: Case, steps: int) -> list[Window]:
    """Windows of the vocabulary's first OWN words."""
    return [
        Window(window.tokens % OWN, np.where(window.targets == IGNORED, IGNORED, window.targets % OWN))
        for window in windows_of(case, steps)
    ]


def sample_of(case: Case) -> OutputSample:
    """An output sample for windows of few words, with shifts that matter."""
    sample = draw_output_sample(np.arange(OWN), words(case.model.vocabulary).frequencies(), SampleDraw(12, 5))
    assert OWN + 5 < len(sample) < case.model.vocabulary - 5
    assert sample.shifts.max() > 0.5
    return sample


def relative_error(found: Array, expected: Array) -> float:
    """The Frobenius norm of the error by that of what was expected."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


class TorchTrainer:
    """Trains one case in float32 on the CPU, states carried from window to window.

    sample: the softmax runs over its words, here picked from the logits of all.
    """

    def __init__(self, case: Case, weights: dict[str, Array], sample: OutputSample | None = None):
        self._training = case.training
        self._sample = sample
        self.model, self._teacher = LanguageModel(case.model), LanguageModel(case.model)
        for model in (self.model, self._teacher):
            model.load(weights)
        self._state = self._teacher_state = self.model.zero_state(case.training.minibatch)

    def step(self, window: Window, learning_rate: float) -> float:
        """The loss before the update."""
        self.model.zero_grad()
        loss = self._add_gradient(window)
        self._update(learning_rate)
        return loss

    def full_batch(self, windows: list[Window], learning_rate: float) -> list[float]:
        """One step with the mean gradient of all windows; their losses before it."""
        self.model.zero_grad()
        losses = [self._add_gradient(window) for window in windows]
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                parameter.grad /= len(windows)
        self._update(learning_rate)
        return losses

    def _add_gradient(self, window: Window) -> float:
        tokens, targets = (torch.from_numpy(ids) for ids in (window.tokens, window.targets.reshape(-1)))
        logits, state = self.model(tokens, self._state)
        self._state = tuple(part.detach() for part in state)
        if self._sample is not None:
            targets = torch.from_numpy(self._sample.places(targets.numpy()))
        loss = self._loss(tokens, self._scores(logits), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def _update(self, learning_rate: float) -> None:
        if self._training.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._training.clip_norm)
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter -= learning_rate * parameter.grad

    def _scores(self, logits: torch.Tensor) -> torch.Tensor:
        """[T·B, V], or [T·B, C] of the sample."""
        flat = logits.reshape(-1, logits.shape[-1])
        if self._sample is None:
            return flat
        return flat[:, torch.from_numpy(self._sample.candidates)] + torch.from_numpy(self._sample.shifts)

    def _loss(self, tokens: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        hard = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
        counted = targets != IGNORED
        total = hard
        if self._training.loss == "lwf":
            with torch.no_grad():
                scores, self._teacher_state = self._teacher(tokens, self._teacher_state)
            teacher = F.softmax(self._scores(scores), dim=1)[counted]
            soft = -(teacher * F.log_softmax(logits, dim=1)[counted]).sum()
            total = self._training.user_share * hard + (1 - self._training.user_share) * soft
        summed = self._training.loss_reduction == "sum_over_time"
        return total / (self._training.minibatch if summed else counted.sum())
