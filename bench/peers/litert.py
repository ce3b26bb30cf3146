"""LiteRT: a training signature with the weights as variables, and XNNPACK. Runs in an environment of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from phonograd.bench.environment import version_of
from phonograd.bench.peers.lowered import lowered
from phonograd.bench.peers.untied_lstm import require_untied_lstm
from phonograd.bench.worker import Ids, Job
from phonograd.device_runtime.formats.manifest import open_artifacts


class LiteRTContestant:
    """The untied LSTM with ce. Raises UnavailableError for other models."""

    def __init__(self, job: Job):
        artifacts = open_artifacts(Path(job.artifacts), verify=False)
        require_untied_lstm(artifacts.manifest)
        program = lowered("phonograd.bench.peers.litert_export", artifacts)
        self._interpreter = Interpreter(str(program), num_threads=job.threads)
        self._train = self._interpreter.get_signature_runner()
        model = artifacts.manifest.model
        zeros = np.zeros((model.layers, artifacts.manifest.training.minibatch, model.hidden), np.float32)
        self._states = {"h": zeros, "c": zeros}
        self.about: Mapping[str, Any] = {"versions": version_of("ai-edge-litert")}

    def step(self, tokens: Ids, targets: Ids) -> float:
        """See Contestant."""
        ids = {"tokens": tokens.astype(np.int32), "targets": targets.astype(np.int32)}
        outputs = self._train(**ids, **self._states)
        self._states = {"h": outputs["next_h"], "c": outputs["next_c"]}
        return float(outputs["loss"])


load = LiteRTContestant
