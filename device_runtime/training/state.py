"""Resumable training: a killed epoch resumes with the same bits. FORMAT.md, "Training state".

The engine writes and reads the state from and into its own memory; this module is Python's handle of it.
"""

import ctypes
import os
import weakref
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from phonograd.device_runtime.base.errors import UsageError, WeightsError
from phonograd.device_runtime.engine.backend import Backend
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.text.output_sample import SampleDraw
from phonograd.device_runtime.text.vocabulary import Ids

# Default number of steps between saves, the same as the phone command's; training/state.h says why.
SAVE_EVERY = 5
STATE_FILE = "state.safetensors"


def saved_seed(folder: Path, kind: Literal["seed", "sample_seed"] = "seed") -> int | None:
    """A seed of the state in a folder, from which a run without its own seed resumes; None if there is no state."""
    try:
        with TensorFile(folder / STATE_FILE) as state:
            return int(state.metadata[kind])
    except (WeightsError, KeyError, ValueError):
        return None  # no state, or a damaged one, which is refused when it is read


@dataclass(frozen=True)
class CompletedSteps:
    """The steps done when a state was saved: their losses in nats a token, and their wall times in seconds."""

    losses: tuple[float, ...] = ()
    step_seconds: tuple[float, ...] = ()


class TrainingState:
    """The state of one epoch in a folder, which is locked until `close`; use it as a context manager.

    The job is the stream of ids, the learning rate, the backend's model and options, and with an output sample `draw`;
    a state of another job is refused. `restart` discards the saved state. Raises UsageError for a backend other than
    native, StateError if another process is training with the folder, StorageError if it can't be created or written.
    """

    def __init__(
        self,
        backend: Backend,
        folder: Path,
        stream: Ids,
        learning_rate: float,
        restart: bool = False,
        draw: SampleDraw | None = None,
    ):
        if not isinstance(backend, NativeBackend):
            raise UsageError("training state: only backend native can resume training; use --backend native")
        self._library = backend.engine
        self._backend = backend  # the engine must outlive the state
        self._handle = c_void_p()
        ids = np.ascontiguousarray(stream, np.int64)
        job = (os.fsencode(folder), ids.ctypes.data, len(ids), learning_rate, restart)
        drawn = (0, 0) if draw is None else (draw.drawn, draw.seed)  # not read of a backend without a sample
        self._library.call("pg_state_open_sampled", backend.handle, *job, *drawn, ctypes.byref(self._handle))
        self._free = weakref.finalize(self, self._library.function("pg_state_close"), self._handle.value)

    def __enter__(self) -> "TrainingState":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resume(self, steps: int) -> CompletedSteps:
        """Restore the saved state into the backend, which must just have been reset. steps: of the whole training.

        Raises StateError if the state is damaged or of another job; the message names the differences.
        """
        losses, seconds, done = np.zeros(steps), np.zeros(steps), c_int64()
        self._library.call(
            "pg_state_resume", self._handle, losses.ctypes.data, seconds.ctypes.data, steps, ctypes.byref(done)
        )
        return CompletedSteps(tuple(losses[: done.value].tolist()), tuple(seconds[: done.value].tolist()))

    def save(self, losses: Sequence[float], step_seconds: Sequence[float]) -> None:
        """Save the epoch's progress durably. Raises StorageError; then the state saved before is unchanged."""
        done = np.array(losses, np.float64), np.array(step_seconds, np.float64)
        self._library.call("pg_state_save", self._handle, *(part.ctypes.data for part in done), len(losses))

    def discard(self) -> None:
        """Remove the saved state, once the epoch's outputs are on disk."""
        self._library.call("pg_state_discard", self._handle)

    def close(self) -> None:
        """Unlock the folder; its state stays."""
        self._free()
        self._handle = c_void_p()
