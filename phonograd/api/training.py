"""One phone's training, from a user's text to weights and an update."""

import contextlib
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal

from phonograd.api.inputs import (
    StrPath,
    Text,
    artifacts_of,
    chosen_seed,
    counts_of,
    messages_of,
    path_of,
    require_output,
    text_of,
    vocabulary_of,
)
from phonograd.api.model import base_weights
from phonograd.device_runtime.base.errors import TrainingError, UsageError, WeightsError
from phonograd.device_runtime.base.files import require_writable
from phonograd.device_runtime.engine import DEFAULT_BACKEND, BackendOptions, load_backend
from phonograd.device_runtime.formats.frozen import frozen_in, frozen_metadata
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig
from phonograd.device_runtime.formats.tensor_file import TensorFile, check_finite, save_tensors
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample, random_sample_seed
from phonograd.device_runtime.text.rehearsal import MAX_UNKNOWN, TextShares, mix, require_known
from phonograd.device_runtime.training.plain_loop import train_plainly
from phonograd.device_runtime.training.round import ResumableState, Round, RoundSettings, Trained
from phonograd.device_runtime.update.codecs import DEFAULT_CODEC
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update

# A context in which signals are noted; it gives a function that tells the first one's number, 0 for none.
StopSignals = Callable[[], AbstractContextManager[Callable[[], int]]]

__all__ = ["ResumableState", "StopSignals", "Trained", "train"]


def train(
    artifacts: Artifacts | StrPath,
    user: Text,
    *,
    rehearsal: Text | None = None,
    user_share: float | None = None,
    weights: StrPath | None = None,
    epochs: int = 1,
    steps: Literal[1] | None = None,
    learning_rate: float | None = None,
    seed: int | None = None,
    output_sample: int | None = None,
    sample_seed: int | None = None,
    phone: str | None = None,
    round_number: int = 1,
    out: StrPath | None = None,
    update: StrPath | None = None,
    codec: str = DEFAULT_CODEC,
    masked: str | None = None,
    run: str | None = None,
    run_history: StrPath | None = None,
    max_unknown: float = MAX_UNKNOWN,
    backend: str = DEFAULT_BACKEND,
    options: BackendOptions | None = None,
    state: ResumableState | None = None,
    duty: float = 1.0,
    stop: StopSignals | None = None,
    progress: Callable[[int, int, float], None] | None = None,
    on_text: Callable[[TextShares], None] | None = None,
) -> Trained:
    """Train on a user's text as a phone does, and write the trained weights and the update for the server.

    user, rehearsal: a file, one message a line, or the messages; of `rehearsal`, general text, so much is mixed in that
    the user's share of the tokens is `user_share` (TrainingConfig's if None). weights: as in `open_model`.
    learning_rate: None is the artifacts'. output_sample: train the softmax over the text's own words and this many
    others, drawn at random (FORMAT.md, "Output sample"): several times faster; nobody else may learn `sample_seed`,
    which is random if None. max_unknown: of a text of whose words the vocabulary lacks a larger share, no update is
    made (TextError). duty: the share of the wall time that steps take, in (0, 1]; rests keep the device cooler.
    RoundSettings says the rest. The seed replaces that of `options`.

    progress hears (steps done, steps in all, nats a token); on_text hears what will be trained on; stop is entered
    before the first step and gives a function that is asked between steps for the number of a signal that asks to end,
    0 for none.

    Raises TextError, ArtifactsError, VocabularyError, WeightsError (the base, or it was changed meanwhile),
    TrainingError (not finite, diverged), StorageError, StateError, StoppedError, TookPartError, UsageError for
    arguments that do not go together, and what `load_backend` raises.
    """
    if user_share is not None and rehearsal is None:
        raise UsageError("`user_share` needs `rehearsal`, the general text to mix in")
    if options is not None and options.sample is not None:
        raise UsageError("options: no sample expected, train draws it; give output_sample")
    if sample_seed is not None and output_sample is None:
        raise UsageError("`sample_seed` needs `output_sample`, the number of words to draw")
    outputs = [path for path in (path_of(out), path_of(update)) if path is not None]
    inputs = (artifacts, user, rehearsal, weights)
    for number, path in enumerate(outputs):
        require_output(path, *inputs, others=outputs[:number])
        require_writable(path)
    if state is not None:
        require_output(state.folder, *inputs, others=outputs, folder=True)
    folder = artifacts_of(artifacts)
    with contextlib.ExitStack() as stack:
        base = stack.enter_context(base_weights(folder, path_of(weights)))
        settings = RoundSettings(
            folder.folder,
            text_of(user),
            None if rehearsal is None else text_of(rehearsal),
            user_share,
            weights=None if weights is None else base.path,
            epochs=epochs,
            steps=steps,
            learning_rate=learning_rate,
            output_sample=output_sample,
            sample_seed=sample_seed,
            duty=duty,
            round=round_number,
            phone=phone,
            seed=seed,
            out=path_of(out),
            update=path_of(update),
            codec=codec,
            masked=masked,
            run=run,
            run_history=path_of(run_history),
            max_unknown=max_unknown,
            state=state,
            options=options or BackendOptions(),
        )

        if backend != DEFAULT_BACKEND:
            return _train_elsewhere(backend, folder, base, settings, progress, on_text)
        opened = stack.enter_context(Round(settings))
        base.require_at_path()
        if on_text is not None:
            on_text(opened.text)
        trained = opened.train(progress, None if stop is None else stack.enter_context(stop()))
        opened.discard_state()  # last: a kill before this is a resume that ends in the same files
        return trained


def _train_elsewhere(
    backend: str,
    folder: Artifacts,
    base: TensorFile,
    settings: RoundSettings,
    progress: Callable[[int, int, float], None] | None,
    on_text: Callable[[TextShares], None] | None,
) -> Trained:
    """The same in a backend that is not the native engine, as far as that can do it."""
    for name, default in (("state", None), ("steps", None), ("duty", 1.0), ("run", None)):
        if getattr(settings, name) != default:
            raise UsageError(f"backend {backend}: no `{name}` expected; use backend native")
    seed = chosen_seed(settings.seed, settings.phone, base.sha256, settings.round)
    user, general = messages_of(settings.user or b""), messages_of(settings.rehearsal or b"")
    share = (settings.user_share or TrainingConfig().user_share) if general else 1.0
    text = mix(user, general, share, vocabulary_of(folder), seed)
    if settings.update is not None:
        require_known(text, "user text", settings.max_unknown)
    if on_text is not None:
        on_text(text)
    sample = None
    if settings.output_sample is not None:
        draw = SampleDraw(settings.output_sample, settings.sample_seed or random_sample_seed())
        sample = draw_output_sample(text.stream, counts_of(folder), draw)
    chosen = dataclasses.replace(settings.options, seed=seed, sample=sample)
    rate = settings.learning_rate or folder.manifest.training.learning_rate
    words = None if sample is None else len(sample)
    with contextlib.closing(load_backend(backend, folder, settings.weights, chosen)) as engine:
        base.require_at_path()
        report = train_plainly(engine, folder.manifest, text, rate, settings.epochs, words, progress)
        weights = engine.weights()
    try:
        for name, values in weights.items():
            check_finite("trained weights", name, values)
    except WeightsError as error:
        raise TrainingError(f"{error}; lower the learning rate or export with stronger clipping") from error
    base.require_unchanged()
    info = UpdateInfo(base.sha256(), settings.round, report.tokens, settings.codec or DEFAULT_CODEC, seed)
    metadata = frozen_metadata(frozen_in(base), weights)
    return Trained(
        seed,
        report,
        None if settings.out is None else save_tensors(settings.out, weights, metadata),
        None if settings.update is None else write_update(settings.update, base, weights, info, settings.masked),
    )
