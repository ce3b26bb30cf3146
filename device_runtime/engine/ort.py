"""Backend `ort`: ONNX Runtime's training API executes the artifacts."""

from pathlib import Path
from typing import Any

import numpy as np

from phonograd.device_runtime.base.errors import MissingExtraError
from phonograd.device_runtime.engine.backend import BackendOptions, Ids, Window
from phonograd.device_runtime.formats.manifest import (
    CHECKPOINT,
    EVAL_MODEL,
    OPTIMIZER_MODEL,
    TEACHER_PREFIX,
    TRAINING_MODEL,
    TRAINING_MODEL_SAMPLED,
    Artifacts,
)
from phonograd.device_runtime.formats.tensor_file import Array, Floats, TensorFile, check_finite, check_specs

try:
    import onnxruntime
    from onnxruntime.training import api
except ImportError as error:
    raise MissingExtraError.for_export("backend ort needs onnxruntime-training-cpu", error) from error

LOG_ERRORS_ONLY = 3


class OrtBackend:
    """One training and one evaluation session over shared weights; see Backend."""

    def __init__(self, artifacts: Artifacts, weights: Path | None, options: BackendOptions):
        onnxruntime.set_default_logger_severity(LOG_ERRORS_ONLY)
        onnxruntime.set_seed(options.seed)
        self._manifest = artifacts.manifest
        self._sample = options.sample
        training_model = TRAINING_MODEL if self._sample is None else TRAINING_MODEL_SAMPLED
        self._checkpoint = api.CheckpointState.load_checkpoint(str(artifacts.path(CHECKPOINT)))
        session = onnxruntime.SessionOptions()
        session.intra_op_num_threads = options.threads
        session.log_severity_level = LOG_ERRORS_ONLY
        self._module = api.Module(
            artifacts.path(training_model), self._checkpoint, artifacts.path(EVAL_MODEL), session_options=session
        )
        if weights is not None:
            self._replace_weights(weights)  # after Module(): copying crashes without its session
        self._optimizer = api.Optimizer(artifacts.path(OPTIMIZER_MODEL), self._module)
        self._states: tuple[Array, ...] = ()
        self.reset()

    def _replace_weights(self, path: Path) -> None:
        with TensorFile(path) as file:
            check_specs(str(path), file.specs, self._manifest.model.tensor_specs())
            for name in file.specs:
                values = file.read(name)
                check_finite(str(path), name, values)
                self._parameters[name].data = values
                # LwF's teacher is the model the server sent (paper P, eq. 2): the weights that training starts from.
                if TEACHER_PREFIX + name in self._parameters:
                    self._parameters[TEACHER_PREFIX + name].data = values

    @property
    def _parameters(self) -> Any:
        return self._checkpoint.parameters

    def reset(self) -> None:
        """See Backend.reset."""
        self._states = tuple(np.zeros(state.shape, np.float32) for state in self._manifest.states)
        self._eval_states: tuple[Array, ...] = ()

    def step(self, window: Window, learning_rate: float) -> float:
        """See Backend.step."""
        self._module.train()
        loss, *states = self._module(*self._inputs(window), *self._states)
        self._states = tuple(states)
        self._optimizer.set_learning_rate(learning_rate)
        self._optimizer.step()
        self._module.lazy_reset_grad()
        return float(loss)

    def _inputs(self, window: Window) -> tuple[Array, ...]:
        if self._sample is None:
            return window.tokens, window.targets
        targets = self._sample.places(window.targets)
        tokens = self._sample.places(window.tokens) if self._manifest.model.tied else window.tokens
        return tokens, targets, self._sample.candidates, self._sample.shifts

    def logits(self, tokens: Ids) -> Floats:
        """See Backend.logits."""
        self._module.eval()
        if not self._eval_states:
            model = self._manifest.model
            shape = (1, tokens.shape[1], model.hidden)
            self._eval_states = tuple(np.zeros(shape, np.float32) for _ in range(model.layers * len(model.states)))
        scores, *states = self._module(tokens, *self._eval_states)
        self._eval_states = tuple(states)
        return np.asarray(scores)

    def weights(self) -> dict[str, Array]:
        """See Backend.weights."""
        return {spec.name: np.array(self._parameters[spec.name].data) for spec in self._manifest.model.tensor_specs()}

    def close(self) -> None:
        """See Backend.close."""
        del self._optimizer, self._module, self._checkpoint
