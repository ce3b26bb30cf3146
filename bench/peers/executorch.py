"""ExecuTorch with XNNPACK: the joint forward and backward graph, then its own SGD. Runs in an environment of its own.

Lowering the paper's model takes minutes and much memory, so another process does it once; the program is kept in the
cache folder under the hash of the artifacts.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from executorch.extension.pybindings import portable_lib
from executorch.extension.training import get_sgd_optimizer

from phonograd.bench.environment import version_of
from phonograd.bench.worker import Ids, Job, UnavailableError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import MANIFEST, open_artifacts
from phonograd.device_runtime.native_build.compiler import cache_folder

FORWARD = "forward"


class ExecutorchContestant:
    """The untied LSTM with ce; clipping is a smaller learning rate. Raises UnavailableError for other models."""

    def __init__(self, job: Job):
        folder = Path(job.artifacts)
        manifest = open_artifacts(folder, verify=False).manifest
        self._training, model = manifest.training, manifest.model
        if model.cell != "lstm" or model.tied or self._training.loss != "ce" or self._training.dropout:
            raise UnavailableError("this peer trains an untied LSTM with ce and without dropout only")
        program = cache_folder() / "executorch" / f"{sha256_of_file(folder / MANIFEST)}.pte"
        if not program.is_file():
            program.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                [sys.executable, "-m", "phonograd.bench.peers.executorch_export", folder, program], check=True
            )
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


def load(job: Job) -> ExecutorchContestant:
    """See phonograd.bench.peers."""
    return ExecutorchContestant(job)
