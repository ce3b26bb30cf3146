"""A general model, pre-trained on a server or a workstation before it goes to phones."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from phonograd.api.exporting import words_of
from phonograd.api.inputs import StrPath, artifacts_of, path_of, require_output
from phonograd.device_runtime.base.files import require_writable
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.corpus import load_corpus
from phonograd.export.presets import preset_named
from phonograd.export.pretrain import pretrain as train_model
from phonograd.export.pretrain_config import PretrainConfig, PretrainProgress, PretrainResult


def pretrain(
    shape: LanguageModelConfig | str,
    vocabulary: Vocabulary | StrPath | Sequence[str],
    texts: Sequence[StrPath],
    out: StrPath,
    *,
    config: PretrainConfig | None = None,
    teacher: Artifacts | StrPath | None = None,
    validation: StrPath | None = None,
    state: StrPath | None = None,
    progress: Callable[[PretrainProgress], None] | None = None,
    stop: Callable[[], int] | None = None,
) -> PretrainResult:
    """Train a model on general texts and keep at `out` the weights of the lowest validation perplexity, unknown words
    counted: a safetensors file in the artifacts' layout.

    shape: a LanguageModelConfig with as many words as the vocabulary, or a preset's name. vocabulary: as in
    `export_artifacts`. texts, validation: files, one message a line; without `validation` the last 5 % of the messages
    are held out. teacher: artifacts of any shape, whose vocabulary begins with this one, for its distribution to be
    mixed into the loss by `config.text_share`. state: a folder for the run's state, from which the same call resumes.
    stop: asked between steps for the number of a signal that asks to end, 0 for none.

    Raises TextError, VocabularyError, ArtifactsError (an unknown preset; no such device or precision here), UsageError,
    StateError (damaged, in use, of another run), TrainingError (diverged), StoppedError, StorageError,
    UnsupportedError, MissingExtraError without the extra `export`.
    """
    place = Path(out)
    inputs = (vocabulary, *texts, validation, teacher)
    require_output(place, *inputs)
    require_output(state, *inputs, others=[place], folder=True)
    require_writable(place)
    words = words_of(vocabulary)
    model = shape
    if isinstance(model, str):
        model = msgspec.structs.replace(preset_named(model).model, vocabulary=len(words))
    corpus = load_corpus([Path(text) for text in texts], words, path_of(validation))
    return train_model(
        model,
        words,
        corpus,
        config or PretrainConfig(),
        place,
        teacher=None if teacher is None else artifacts_of(teacher),
        state_folder=path_of(state),
        progress=progress,
        stop=stop,
    )
