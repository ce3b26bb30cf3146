"""ExecuTorch with XNNPACK: the joint forward and backward graph, then its own SGD.

Runs in an environment of its own.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from executorch.extension.pybindings import portable_lib
from executorch.extension.training import get_sgd_optimizer

from phonograd.bench.environment import version_of
from phonograd.bench.peers.lowered import lowered
from phonograd.bench.peers.untied_lstm import require_untied_lstm
from phonograd.bench.worker import Ids, Job
from phonograd.device_runtime.formats.manifest import open_artifacts

FORWARD = "forward"


class ExecutorchContestant:
    """The untied LSTM with ce; clipping is a smaller learning rate. Raises UnavailableError for other models."""

    def __init__(self, job: Job):
        artifacts = open_artifacts(Path(job.artifacts), verify=False)
        self._training, model = artifacts.manifest.training, artifacts.manifest.model
        require_untied_lstm(artifacts.manifest)
        program = lowered("phonograd.bench.peers.executorch_export", artifacts)
        torch.set_num_threads(job.threads)
        portable_lib._unsafe_reset_threadpool(job.threads)
        self._module = portable_lib._load_for_executorch(str(program))
        # The outputs are the loss and the states, then gradients, then the parameters themselves.
        self._gradients, self._parameters = (
            self._module.run_method(f"__et_training_{part}_index_{FORWARD}", ())[0]
            for part in ("gradients", "parameters")
        )
        self._names = self._module.run_method(f"__et_training_fqn_{FORWARD}", ())
        shape = (model.layers, self._training.minibatch, model.hidden)
        self._states = [torch.zeros(shape), torch.zeros(shape)]
        self.about: Mapping[str, Any] = {"versions": version_of("executorch", "torch")}

    def step(self, tokens: Ids, targets: Ids) -> float:
        """See Contestant."""
        inputs = (*(torch.from_numpy(np.ascontiguousarray(ids)) for ids in (tokens, targets)), *self._states)
        # Not cloned: the gradients are used at once, the parameters are to be changed.
        outputs = self._module.run_method(FORWARD, inputs, clone_outputs=False)
        loss = float(outputs[0])
        self._states = [state.clone() for state in outputs[1:3]]
        gradients = outputs[self._gradients : self._parameters]
        rate = self._training.learning_rate
        if self._training.clip_norm is not None:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))).item()
            rate *= self._training.clip_norm / max(norm, self._training.clip_norm)
        parameters = dict(zip(self._names, outputs[self._parameters :], strict=True))
        get_sgd_optimizer(parameters, rate).step(dict(zip(self._names, gradients, strict=True)))
        return loss


load = ExecutorchContestant
