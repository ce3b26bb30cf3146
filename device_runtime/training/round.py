"""A phone's part in a round, as the native library runs it: a text, epochs over it, and the update."""

import ctypes
import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import StoppedError, UsageError
from phonograd.device_runtime.base.settings import Count, Settings
from phonograd.device_runtime.base.signals import signals_noted
from phonograd.device_runtime.engine.backend import BackendOptions, Ids
from phonograd.device_runtime.engine.c_abi import Handle, load_library, options_of
from phonograd.device_runtime.engine.header import new, structs
from phonograd.device_runtime.formats.tensor_file import WrittenFile
from phonograd.device_runtime.text.rehearsal import MAX_UNKNOWN, TextShares
from phonograd.device_runtime.text.tokenizer import text_of
from phonograd.device_runtime.training.report import EpochReport

# Steps between saves of a state; training/state.h says why.
SAVE_EVERY = 5


class ResumableState(Settings, frozen=True):
    """State that training keeps, so that a run that was killed goes on to the same bits."""

    folder: Annotated[Path, about("Folder to save resumable state in, and to resume from.")]
    save_every: Annotated[Count, about("Steps from one save of the state to the next, which 5 seconds end too.")] = (
        SAVE_EVERY
    )
    restart: Annotated[bool, about("Discard the state that the folder holds.")] = False


@dataclass(frozen=True)
class RoundSettings:
    """What to train, on what, and what to write; the fields are those of pg_round_options in phonograd.h, which has
    the defaults of those that are None.

    folder: the artifacts; weights: a tensor file to start from, None for the folder's own, and its hash if that is
    known. user, rehearsal: a file, or text, one message a line; user_share: the user's share of the tokens, with a
    rehearsal. stream: ids [N] to train on in place of both. steps: 1 takes a single step, with the gradient of the
    whole text. The seed is `seed`, else follows from model, round and `phone`, else is the state's, else random; that
    of `options` is not used. out, update: files for the trained weights and for the update; with `masked`, the settings
    of a masked round, for a grid update, which MaskedPhone masks. run, run_history: what the server says of its round
    of dp-ftrl, and the file of those that this phone took part in, which is continued before there is an update.
    """

    folder: Path
    user: Path | bytes | None = None
    rehearsal: Path | bytes | None = None
    user_share: float | None = None
    stream: Ids | None = None
    weights: Path | None = None
    weights_sha256: str | None = None
    epochs: int = 1
    steps: int | None = None
    learning_rate: float | None = None
    output_sample: int | None = None
    sample_seed: int | None = None
    duty: float = 1.0
    round: int = 1
    phone: str | None = None
    seed: int | None = None
    out: Path | None = None
    update: Path | None = None
    codec: str | None = None
    masked: str | None = None
    run: str | None = None
    run_history: Path | None = None
    max_unknown: float = MAX_UNKNOWN
    state: ResumableState | None = None
    options: BackendOptions = field(default_factory=BackendOptions)


@dataclass(frozen=True)
class Trained:
    """What one training left.

    seed: of all that was random; report: losses, seconds, tokens, memory; weights, update: size and hash of the files
    that were asked for.
    """

    seed: int
    report: EpochReport
    weights: WrittenFile | None = None
    update: WrittenFile | None = None

    @property
    def seconds_per_step(self) -> float:
        """The median over all steps."""
        return statistics.median(self.report.step_seconds)


class Round(Handle):
    """An open round: settings checked, texts read and mixed, the model loaded, and the state's folder locked.

    Not thread-safe. Raises UsageError for settings that are out of range or exclude each other, TextError,
    VocabularyError, ArtifactsError, WeightsError, UpdateError for an unknown codec, StateError if another process has
    the state's folder, StorageError, UnsupportedError, TookPartError while the run has the phone rest.
    """

    def __init__(self, settings: RoundSettings):
        self._saved = settings.state is not None
        self._stop: Callable[[], int] | None = None
        self._signal = 0
        self._raised: list[BaseException] = []
        # The library asks it for as long as the round is open.
        self._asked = dict(structs()["pg_round_options"]._fields_)["stop"](lambda _: self._is_stopped())
        options = _options(settings)
        options.stop = self._asked
        super().__init__(load_library(), "round", options)

    @property
    def text(self) -> TextShares:
        """Shares of the text that will be trained on."""
        return msgspec.convert(self._job(), TextShares)

    def train(
        self, progress: Callable[[int, int, float], None] | None = None, stop: Callable[[], int] | None = None
    ) -> Trained:
        """Train, and write what the settings ask for. Once a round.

        progress: called with (steps done, steps in total, loss in nats a token). stop: called between steps and during
        rests; returns the number of a signal that asks training to stop, or 0. Raises TrainingError if a loss or a
        weight is not finite or training diverges, StoppedError (after saving the state) if `stop` asks for it,
        WeightsError if the weights' file was changed, StateError for a state of another job, StorageError.
        """
        self._stop = stop

        def hear_progress(_: object, address: int) -> None:
            step = structs()["pg_progress"].from_address(address)
            with self._keep_error():
                if progress is not None and not self._raised:
                    progress(step.step, step.steps, step.loss)

        on_progress = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)(hear_progress)
        with signals_noted(self._raised):
            (finished,) = self._library.call("pg_round_train", self.handle, on_progress, None)
        if self._raised:
            raise self._raised[0]
        if not finished:
            saved = "the state is saved: run the same command to resume" if self._saved else "nothing is saved"
            job = self._job()
            raise StoppedError(f"interrupted after step {job['steps_done']} of {job['steps']}; {saved}", self._signal)
        found = json.loads(self._library.text("pg_round_report", self.handle))
        return msgspec.convert({**found, "report": found}, Trained)

    def discard_state(self) -> None:
        """Remove the saved state of a finished round, once its report is kept."""
        self._library.call("pg_round_discard_state", self.handle)

    def _job(self) -> dict[str, Any]:
        job: dict[str, Any] = json.loads(self._library.text("pg_round_job", self.handle))
        return job

    def _is_stopped(self) -> bool:
        with self._keep_error():
            self._signal = self._stop() if self._stop else 0
        return bool(self._signal or self._raised)

    @contextmanager
    def _keep_error(self) -> Iterator[None]:
        """What is raised in a callback, such as by Ctrl-C, is raised where training ends."""
        try:
            yield
        except BaseException as error:
            self._raised.append(error)


def _options(settings: RoundSettings) -> Any:
    given = {name: getattr(settings, name) for name in RoundSettings.__dataclass_fields__}
    run, state, stream = options_of(given.pop("options")), given.pop("state"), given["stream"]
    for name in ("seed", "sample_seed"):
        seed = given.pop(name)
        if seed is not None:
            given[name] = np.array([seed % 2**64], np.uint64)
    for name in ("user", "rehearsal"):
        if given[name] is not None:
            given[name] = text_of(given[name])
    for name, value in given.items():
        if isinstance(value, int | float) and value == 0:  # which the library takes as not given
            raise UsageError(f"`{name}` {value}: expected a number above 0")
    given |= {name: getattr(run, name) for name in ("kernels", "threads", "pin_threads", "precision")}
    if stream is not None:
        given |= {"stream": np.ascontiguousarray(stream, np.int64), "stream_tokens": len(stream)}
    if state is not None:
        given |= {"state": state.folder, "save_every": state.save_every, "restart": state.restart}
    return new("pg_round_options", **given)
