"""Running any ONNX graph of operators that the native engine knows: for models other than language models (the MLP of
paper P), and for tests of single operators.
"""

import ctypes
from ctypes import c_int64
from pathlib import Path

import numpy as np

from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.c_abi import Handle, NativeLibrary, load_library, options_of
from phonograd.device_runtime.formats.tensor_file import Array

MAX_DIMENSIONS = 8
DTYPES = {4: np.float32, 8: np.int64, 1: np.bool_}  # by the element size in bytes


class NativeGraph(Handle):
    """A graph's inputs, outputs and parameters by name. Not thread-safe.

    optimizer: optimizer_model.onnx, to let `run` update the parameters. weights: a tensor file; its tensors become the
    inputs of the same names, as parameters. With `fuse` False every output can be read after `run`.
    Raises ArtifactsError for an operator, shape or attribute that the engine does not know, WeightsError.
    """

    def __init__(
        self,
        model: Path,
        optimizer: Path | None = None,
        weights: Path | None = None,
        options: BackendOptions | None = None,
        fuse: bool = True,
        library: NativeLibrary | None = None,
    ):
        chosen = options_of(options or BackendOptions(), fuse)
        super().__init__(library or load_library(), "graph", model, optimizer, weights, chosen)

    def set(self, name: str, values: Array) -> None:
        """Set an input's values, of the dtype and shape that the graph declares."""
        dense = np.ascontiguousarray(values)
        self._library.call("pg_graph_set", self.handle, name, dense, dense.nbytes)

    def run(self, learning_rate: float = 0.0) -> None:
        """Execute the graph once, and the optimizer if there is one."""
        self._library.call("pg_graph_run", self.handle, learning_rate)

    def get(self, name: str) -> Array:
        """A copy of an output's or a parameter's values."""
        shape = (c_int64 * MAX_DIMENSIONS)()
        data, nbytes, rank = self._library.call("pg_graph_get", self.handle, name, shape=shape)
        elements = int(np.prod(shape[:rank], dtype=np.int64))
        dtype = np.dtype(DTYPES[nbytes // elements if elements else 4])
        return np.frombuffer(ctypes.string_at(data, nbytes), dtype).reshape(shape[:rank]).copy()
