"""A phone's part in a round, as the native library runs it: a text, epochs over it, and the update."""

import ctypes
import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import asdict

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import StoppedError
from phonograd.device_runtime.base.settings import Count, FromZero, Positive, Settings, Share
from phonograd.device_runtime.base.signals import signals_noted
from phonograd.device_runtime.engine.backend import BackendOptions, Ids
from phonograd.device_runtime.engine.c_abi import Handle, load_library, options_of
from phonograd.device_runtime.engine.header import new, structs
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.tensor_file import WrittenFile
from phonograd.device_runtime.text.rehearsal import MAX_UNKNOWN, TextShares
from phonograd.device_runtime.text.tokenizer import text_of

# Steps between saves of a state; training/state.h says why.
SAVE_EVERY = 5


class ResumableState(Settings, frozen=True):
    """State that training keeps, so that a run that was killed goes on to the same bits."""

    folder: Annotated[Path, about("Folder to save resumable state in, and to resume from.")]
    save_every: Annotated[Count, about("Steps from one save of the state to the next, which 5 seconds end too.")] = (
        SAVE_EVERY
    )
    restart: Annotated[bool, about("Discard the state that the folder holds.")] = False


class PhoneSettings(Settings, frozen=True):
    """How a phone trains, and what for.

    round_number, masked, run, run_history: what a server says of its round. masked: the settings of a masked round, for
    which the update is a grid update, which MaskedPhone masks. run, run_history: a round of dp-ftrl, and the file of
    those in which this phone took part, which is continued before there is an update. options: their seed and sample
    are not used.
    """

    weights: Annotated[
        Path | None,
        about(
            "Tensor file to start from: a later round's model, or a torch state dict.  [default: the folder's weights]"
        ),
    ] = None
    epochs: Annotated[Count, about("Passes over the text.")] = 1
    steps: Annotated[
        Literal[1] | None,
        about("Take a single step, with the gradient of the whole text (FedSGD).  [default: one for each window]"),
    ] = None
    learning_rate: Annotated[Positive | None, about("Learning rate.  [default: the artifacts']")] = None
    user_share: Annotated[
        Share | None,
        about(f"λ, the user's share of the tokens, with general text.  [default: {TrainingConfig().user_share}]"),
    ] = None
    output_sample: Annotated[
        Count | None,
        about(
            "Train the softmax over the text's own words and about so many random others, not the whole vocabulary: "
            "several times faster."
        ),
    ] = None
    sample_seed: Annotated[
        int | None, Meta(ge=0, le=2**64 - 1), about("Seed of the output sample, a secret.  [default: random]")
    ] = None
    max_unknown: Annotated[
        Share, about("Largest share of the user's words that the vocabulary may lack, for an update to be made.")
    ] = MAX_UNKNOWN
    duty: Annotated[
        Share,
        about("Share of the time that steps take; below 1, rests between them keep the device cooler."),
    ] = 1.0
    phone: Annotated[
        str | None,
        about("The phone's name at the server; the seed is derived from model, round and name."),
    ] = None
    seed: Annotated[
        FromZero | None,
        about("In place of a phone's name: seed of the rehearsal draw, dropout and random codecs.  [default: random]"),
    ] = None
    round_number: Annotated[Count, about("The server's round.")] = 1
    masked: str | None = None
    run: str | None = None
    run_history: Path | None = None
    options: BackendOptions = BackendOptions()
    state: ResumableState | None = None


class RoundSettings(PhoneSettings, frozen=True, kw_only=True):
    """What to train, on what, and what to write; see pg_round_options in phonograd.h, which has the defaults of None.

    folder: the artifacts; weights_sha256: the hash of `weights`, if it is known. user, rehearsal: a file, or text, one
    message a line; stream: ids [N] to train on in place of both. The seed is `seed`, else follows from model, round and
    `phone`, else is the state's, else random. out, update: files for the trained weights and for the update.
    """

    folder: Path
    user: Path | bytes | None = None
    rehearsal: Path | bytes | None = None
    stream: Ids | None = None
    weights_sha256: str | None = None
    out: Path | None = None
    update: Path | None = None
    codec: str | None = None


@dataclass(frozen=True)
class OutputLayer:
    """The words that the softmax runs over: the vocabulary or an output sample. words: their number."""

    kind: Literal["full", "sampled"]
    words: int


@dataclass(frozen=True)
class EpochReport:
    """The result of training, with its time and memory.

    epochs: passes over the text; steps: of all epochs; tokens: of one pass; *_unknown_share, user_invalid_share: see
    TextShares; losses: nats a token before each step's update (with LwF, of the LwF loss); step_seconds: wall time of
    each step; both lists have all steps, also the first `resumed_at`, which an earlier process did; seconds: of this
    process's steps and saves; rest_seconds: of its rests, with a `duty` below 1; peak_rss_bytes: of the whole process
    so far, 0 on Windows.

    windows_per_step: 1; or with `full_batch`, which takes a single step, all: then `steps`, `losses` and `step_seconds`
    are the windows'.
    """

    epochs: int
    steps: int
    tokens: int
    user_tokens: int
    general_tokens: int
    user_share: float
    user_unknown_share: float
    general_unknown_share: float | None
    user_invalid_share: float
    duty: float
    learning_rate: float
    clip_norm: float | None
    loss_reduction: str
    output_layer: OutputLayer
    losses: tuple[float, ...]
    step_seconds: tuple[float, ...]
    seconds: float
    rest_seconds: float
    peak_rss_bytes: int
    resumed_at: int = 0
    windows_per_step: int = 1


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
    given = asdict(settings)
    given["round"] = given.pop("round_number")
    run, state, stream = options_of(given.pop("options")), given.pop("state"), given["stream"]
    for name in ("seed", "sample_seed"):
        seed = given.pop(name)
        if seed is not None:
            given[name] = np.array([seed % 2**64], np.uint64)
    for name in ("user", "rehearsal"):
        if given[name] is not None:
            given[name] = text_of(given[name])
    given |= {name: getattr(run, name) for name in ("kernels", "threads", "pin_threads", "precision", "teacher")}
    if stream is not None:
        given |= {"stream": np.ascontiguousarray(stream, np.int64), "stream_tokens": len(stream)}
    if state is not None:
        given |= {"state": state.folder, "save_every": state.save_every, "restart": state.restart}
    return new("pg_round_options", **given)
