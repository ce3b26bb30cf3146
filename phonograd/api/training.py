"""One phone's training, from a user's text to weights and an update."""

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated

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
from phonograd.device_runtime.client.protocol import PHONE_NAME, PHONE_NAME_RULE
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.text.rehearsal import TextShares
from phonograd.device_runtime.training.round import PhoneSettings, ResumableState, Round, RoundSettings, Trained
from phonograd.device_runtime.update.codecs import DEFAULT_CODEC, CodecName

# A context in which signals are noted; it gives a function that tells the first one's number, 0 for none.
StopSignals = Callable[[], AbstractContextManager[Callable[[], int]]]

__all__ = ["ResumableState", "StopSignals", "TrainHooks", "TrainSettings", "Trained", "train"]


class TrainSettings(PhoneSettings, frozen=True):
    """How a phone trains (PhoneSettings), and the codec. Raises ValueError for a setting out of range."""

    codec: Annotated[CodecName, about("The update's encoding.")] = DEFAULT_CODEC

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
        job = RoundSettings(
            **asdict(chosen) | {"weights": None if chosen.weights is None else base.path},
            folder=folder.folder,
            user=text_of(user),
            rehearsal=None if rehearsal is None else text_of(rehearsal),
            out=path_of(out),
            update=path_of(update),
        )
        opened = stack.enter_context(Round(job))
        base.require_at_path()
        if called.on_text is not None:
            called.on_text(opened.text)
        stop = None if called.stop is None else stack.enter_context(called.stop())
        trained = opened.train(called.progress, stop)
        opened.discard_state()  # last: a kill before this is a resume that ends in the same files
        return trained
