"""Backend `native`: phonograd's C++ engine executes the artifacts."""

import ctypes
import json
from ctypes import POINTER, c_float
from pathlib import Path

import numpy as np

from phonograd.device_runtime.engine.backend import BackendOptions, Ids, Window
from phonograd.device_runtime.engine.c_abi import Handle, load_library, options_of
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.tensor_file import Array, Floats


class NativeBackend(Handle):
    """The C ABI's engine; see Backend. Windows and scores are passed by address, weights are copied once.

    weights: None for the folder's; or a tensor file of the same shapes. Raises WeightsError for weights that do not
    fit, UnsupportedError for options that this CPU does not support, ArtifactsError for an output sample if the folder
    has no graph for one.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        weights: Path | None,
        options: BackendOptions,
        fuse: bool = True,
    ):
        self._model = artifacts.manifest.model
        self._window = (artifacts.manifest.training.bptt, artifacts.manifest.training.minibatch)
        chosen = options_of(options, fuse)
        if options.sample is not None:
            ids, shifts = _dense(options.sample.candidates), np.ascontiguousarray(options.sample.shifts, np.float32)
            chosen.candidates, chosen.shifts, chosen.C = ids.ctypes.data, shifts.ctypes.data, len(ids)
        super().__init__(load_library(), "engine", artifacts.folder, weights, chosen)

    def reset(self) -> None:
        """See Backend.reset."""
        self._library.call("pg_engine_reset", self.handle)

    def step(self, window: Window, learning_rate: float) -> float:
        """See Backend.step."""
        tokens, targets = _dense(window.tokens), _dense(window.targets)
        for what, ids in (("tokens", tokens), ("targets", targets)):
            if ids.shape != self._window:
                raise ValueError(f"window: {what} of shape {self._window} expected, found {ids.shape}")
        (loss,) = self._library.call("pg_engine_step", self.handle, tokens, targets, learning_rate)
        return float(loss)

    def logits(self, tokens: Ids) -> Floats:
        """See Backend.logits."""
        ids = _dense(tokens)
        if ids.ndim != 2:
            raise ValueError(f"tokens: a shape [T, B] expected, found {ids.shape}")
        scores = np.empty((ids.size, self._model.vocabulary), np.float32)
        self._library.call("pg_engine_logits", self.handle, ids, *ids.shape, scores)
        return scores

    def weights(self) -> dict[str, Array]:
        """See Backend.weights."""
        copies: dict[str, Array] = {}
        shapes = {spec.name: spec.shape for spec in self._model.tensor_specs()}
        for index in range(self._library.function("pg_engine_parameters")(self.handle)):
            name, elements, data = self._library.call("pg_engine_parameter", self.handle, index)
            values = np.ctypeslib.as_array(ctypes.cast(data, POINTER(c_float)), (elements,))
            tensor = ctypes.string_at(name).decode()
            copies[tensor] = values.copy().reshape(shapes[tensor])
        return copies

    def plan(self) -> str:
        """The steps of the plan in order and the memory layout, for people to read."""
        return self._library.text("pg_engine_plan", self.handle)

    def phases(self) -> dict[str, float]:
        """Seconds of the last step by phase, in the order of the plan; the sum is the step."""
        seconds: dict[str, float] = json.loads(self._library.text("pg_engine_phases", self.handle))
        return seconds


def _dense(ids: Ids) -> Ids:
    return np.ascontiguousarray(ids, np.int64)
