"""One phone's training, from a user's text to weights and an update."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import asdict

from phonograd.api.inputs import (
    StrPath,
    Text,
    artifacts_of,
    path_of,
    require_output,
    text_of,
)
from phonograd.api.model import base_weights
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.files import require_writable
from phonograd.device_runtime.base.settings import Count, FromZero, Positive, Settings, Share
from phonograd.device_runtime.client.protocol import PHONE_NAME, PHONE_NAME_RULE
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig
from phonograd.device_runtime.text.rehearsal import MAX_UNKNOWN, TextShares
from phonograd.device_runtime.training.round import ResumableState, Round, RoundSettings, Trained
from phonograd.device_runtime.update.codecs import DEFAULT_CODEC, CodecName

# A context in which signals are noted; it gives a function that tells the first one's number, 0 for none.
StopSignals = Callable[[], AbstractContextManager[Callable[[], int]]]

__all__ = ["ResumableState", "StopSignals", "TrainHooks", "TrainSettings", "Trained", "train"]


class TrainSettings(Settings, frozen=True):
    """How a phone trains, and what for. Raises ValueError for a setting out of range, or `seed` beside `phone`.

    round_number, masked, run, run_history: what a server says of its round. masked: the settings of a masked round, for
    which the update is a grid update. run, run_history: a round of dp-ftrl, and the file of those in which this phone
    took part, which is continued before there is an update. options: its seed is replaced, its sample is drawn.
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
    codec: Annotated[CodecName, about("The update's encoding.")] = DEFAULT_CODEC
    round_number: Annotated[Count, about("The server's round.")] = 1
    masked: str | None = None
    run: str | None = None
    run_history: Path | None = None
    options: BackendOptions = BackendOptions()
    state: ResumableState | None = None

    def check_together(self) -> None:
        """Raise ValueError for settings that exclude each other, or need each other."""
        self.require("phone", self.phone is None or bool(PHONE_NAME.match(self.phone)), PHONE_NAME_RULE)
        self.require("seed", self.seed is None or self.phone is None, "none with `phone`, from which it follows")
        drawn = self.sample_seed is None or self.output_sample is not None
        self.require("sample_seed", drawn, "none without `output_sample`, the number of words to draw")
        if self.options.sample is not None:
            raise ValueError("`options`: no sample expected, training draws it; give `output_sample`")


@dataclass(frozen=True)
class TrainHooks:
    """What is called while a phone trains.

    progress: hears (steps done, steps in all, nats a token). on_text: hears what will be trained on. stop: is entered
    before the first step and gives a function that is asked between steps for the number of a signal that asks to end,
    0 for none.
    """

    progress: Callable[[int, int, float], None] | None = None
    on_text: Callable[[TextShares], None] | None = None
    stop: StopSignals | None = None


def train(
    artifacts: Artifacts | StrPath,
    user: Text,
    settings: TrainSettings | None = None,
    *,
    rehearsal: Text | None = None,
    out: StrPath | None = None,
    update: StrPath | None = None,
    hooks: TrainHooks | None = None,
) -> Trained:
    """Train on a user's text as a phone does, and write the trained weights and the update for the server.

    user, rehearsal: a file, one message a line, or the messages; of `rehearsal`, general text, so much is mixed in that
    the user's share of the tokens is the settings' `user_share`.

    Raises TextError (a text that is missing or has no words; for an update, one of whose words the vocabulary lacks too
    many), ArtifactsError, VocabularyError, WeightsError (the base, or it was changed meanwhile), TrainingError (not
    finite, diverged), StorageError, StateError, StoppedError, TookPartError, UsageError for arguments that do not go
    together, UnsupportedError for options that this CPU does not support.
    """
    chosen, called = settings or TrainSettings(), hooks or TrainHooks()
    if chosen.user_share is not None and rehearsal is None:
        raise UsageError("`user_share` needs `rehearsal`, the general text to mix in")
    outputs = [path for path in (path_of(out), path_of(update)) if path is not None]
    inputs = (artifacts, user, rehearsal, chosen.weights)
    for number, path in enumerate(outputs):
        require_output(path, *inputs, others=outputs[:number])
        require_writable(path)
    if chosen.state is not None:
        require_output(chosen.state.folder, *inputs, others=outputs, folder=True)
    folder = artifacts_of(artifacts)
    with contextlib.ExitStack() as stack:
        base = stack.enter_context(base_weights(folder, chosen.weights))
        given = asdict(chosen)
        round_number = given.pop("round_number")
        job = RoundSettings(
            folder.folder,
            text_of(user),
            None if rehearsal is None else text_of(rehearsal),
            round=round_number,
            out=path_of(out),
            update=path_of(update),
            **given | {"weights": None if chosen.weights is None else base.path},
        )
        opened = stack.enter_context(Round(job))
        base.require_at_path()
        if called.on_text is not None:
            called.on_text(opened.text)
        stop = None if called.stop is None else stack.enter_context(called.stop())
        trained = opened.train(called.progress, stop)
        opened.discard_state()  # last: a kill before this is a resume that ends in the same files
        return trained
