"""PyTorch, both as a user would write the training step and tuned for speed.

Variants: `eager`, the plain way; `lean`, with fused SGD, clipping by a smaller learning rate (which saves a pass over
the gradients), and a sparse embedding gradient unless the embedding is tied; `compiled`, `lean` with torch.compile;
`bf16`, `lean` under autocast; `exact`, `eager` with the gradients' norm in float64, because torch's float32 norm is off
by 1e-4 at the paper's size.
"""

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from phonograd.bench.environment import this_environment, version_of
from phonograd.bench.peers.sample import sample_of
from phonograd.bench.worker import Ids, Job, UnavailableError
from phonograd.device_runtime.engine.backend import IGNORED
from phonograd.device_runtime.formats.frozen import frozen_in
from phonograd.device_runtime.formats.manifest import WEIGHTS, open_artifacts
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, load_tensors
from phonograd.export.torch_model import LanguageModel, RecurrentState

TINY = 1e-6  # torch.nn.utils.clip_grad_norm_ divides by the norm plus this


class TorchContestant:
    """The language model of the artifacts, trained with the manifest's settings.

    Raises UnavailableError for LwF, frozen tensors, variant bf16 on a CPU without it, and variant compiled where
    torch.compile does not work, as without a C++ compiler.
    """

    def __init__(self, job: Job):
        torch.set_num_threads(job.threads)
        artifacts = open_artifacts(Path(job.artifacts), verify=False)
        self._training = artifacts.manifest.training
        self._variant = job.variant
        if self._training.loss != "ce":
            raise UnavailableError(f"the loss is {self._training.loss}; this peer trains with ce only")
        with TensorFile(artifacts.path(WEIGHTS)) as file:
            if frozen_in(file):
                raise UnavailableError("the artifacts freeze tensors; this peer trains them all")
        if job.variant == "bf16" and "avx512_bf16" not in this_environment().features:
            raise UnavailableError("this processor has no AVX512-BF16")
        if job.variant == "compiled":
            _require_compiler()
        self._sample = sample_of(job, artifacts)
        config = artifacts.manifest.model
        # On the meta device first, because unused initial weights would count in the peak memory.
        with torch.device("meta"):
            model = LanguageModel(config, self._training.dropout)
        self._model = model.to_empty(device="cpu").train()
        self._model.tie()
        self._model.load(load_tensors(artifacts.path(WEIGHTS)))
        self._model.embedding.sparse = job.variant in ("lean", "compiled", "bf16") and not config.tied
        self._state = self._model.zero_state(self._training.minibatch)
        embedding = self._model.embedding.weight
        dense = [p for p in self._model.parameters() if not (self._model.embedding.sparse and p is embedding)]
        self._optimizer = torch.optim.SGD(
            dense, self._training.learning_rate, fused=None if job.variant in ("eager", "exact") else True
        )
        self._loss = torch.compile(self._loss_of) if job.variant == "compiled" else self._loss_of
        words = config.vocabulary if self._sample is None else len(self._sample)
        gradient = f"{'sparse' if self._model.embedding.sparse else 'dense'} embedding gradient"
        update = "clip_grad_norm_, SGD" if job.variant in ("eager", "exact") else "clipping by the rate, fused SGD"
        self.about: Mapping[str, Any] = {
            "versions": version_of("torch"),
            "output_layer": {"words": words},
            "settings": [gradient, update, *(["torch.compile"] if job.variant == "compiled" else [])],
        }

    def step(self, tokens: Ids, targets: Ids) -> float:
        """See Contestant."""
        self._model.zero_grad()
        if self._sample is not None:
            targets = self._sample.places(targets)
        precise = contextlib.nullcontext()
        with torch.autocast("cpu", torch.bfloat16) if self._variant == "bf16" else precise:
            loss, self._state = self._loss(torch.from_numpy(tokens), torch.from_numpy(targets), self._state)
        loss.backward()  # type: ignore[no-untyped-call]
        if self._variant in ("eager", "exact"):
            self._plain_update()
        else:
            self._lean_update()
        return loss.item()

    def weights(self) -> dict[str, Array]:
        """The current tensors, for `bench parity`."""
        return self._model.weights()

    def _loss_of(
        self, tokens: torch.Tensor, targets: torch.Tensor, state: RecurrentState
    ) -> tuple[torch.Tensor, RecurrentState]:
        logits, after = self._scores(tokens, state)
        summed = self._training.loss_reduction == "sum_over_time"
        loss = nn.functional.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum" if summed else "mean"
        )
        return loss / self._training.minibatch if summed else loss, tuple(part.detach().float() for part in after)

    def _scores(self, tokens: torch.Tensor, state: RecurrentState) -> tuple[torch.Tensor, RecurrentState]:
        """Logits of all words, or of the candidates: the model with only their rows in its output layer."""
        if self._sample is None:
            return self._model(tokens, state)  # type: ignore[no-any-return]
        candidates, shifts = (torch.from_numpy(part) for part in (self._sample.candidates, self._sample.shifts))
        rows = {f"decoder.{name}": part[candidates] for name, part in self._model.decoder.named_parameters()}
        logits, after = torch.func.functional_call(self._model, rows, (tokens, state), tie_weights=False)
        return logits + shifts, after

    def _plain_update(self) -> None:
        clip_norm = self._training.clip_norm
        if clip_norm is not None and self._variant == "exact":
            gradients = [p.grad for p in self._model.parameters() if p.grad is not None]
            norm = math.sqrt(sum(gradient.double().square().sum().item() for gradient in gradients))
            torch._foreach_mul_(gradients, min(1.0, clip_norm / (norm + TINY)))
        elif clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), clip_norm)
        self._optimizer.step()

    def _lean_update(self) -> None:
        gradients = [p.grad for p in self._optimizer.param_groups[0]["params"]]
        embedding = self._model.embedding.weight
        rows = embedding.grad.coalesce() if self._model.embedding.sparse and embedding.grad is not None else None
        rate = self._training.learning_rate
        if self._training.clip_norm is not None:
            norms = torch._foreach_norm(gradients if rows is None else [*gradients, rows.values()])
            norm = torch.linalg.vector_norm(torch.stack(norms)).item()
            rate *= min(1.0, self._training.clip_norm / (norm + TINY))
        self._optimizer.param_groups[0]["lr"] = rate
        self._optimizer.step()
        if rows is not None:
            with torch.no_grad():
                embedding.index_add_(0, rows.indices()[0], rows.values(), alpha=-rate)


def _require_compiler() -> None:
    try:
        torch.compile(torch.sin)(torch.ones(2))
    except RuntimeError as error:  # of several classes
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnavailableError(f"torch.compile does not work here, so torch runs eagerly only: {reason}") from error


load = TorchContestant
