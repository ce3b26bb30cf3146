"""A general model, pre-trained on a server or a workstation before it goes to phones."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from phonograd.api.exporting import words_of
from phonograd.api.inputs import StrPath, path_of, require_output
from phonograd.device_runtime.base.errors import MissingExtraError
from phonograd.device_runtime.base.files import require_writable
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.corpus import load_corpus
from phonograd.export.presets import preset_named
from phonograd.export.pretrain_config import PretrainConfig, PretrainProgress, PretrainResult


def pretrain(
    shape: LanguageModelConfig | str,
    vocabulary: Vocabulary | StrPath | Sequence[str],
    texts: Sequence[StrPath],
    out: StrPath,
    *,
    config: PretrainConfig | None = None,
    validation: StrPath | None = None,
    state: StrPath | None = None,
    progress: Callable[[PretrainProgress], None] | None = None,
) -> PretrainResult:
    """Train a model on general texts and keep at `out` the weights of the lowest validation perplexity, unknown words
    counted.

    shape: a LanguageModelConfig with as many words as the vocabulary, or a preset's name. vocabulary: as in
    `export_artifacts`. texts, validation: files, one message a line; without `validation` the last 5 % of the messages
    are held out. state: a folder for the run's state, from which the same call resumes. Ctrl-C ends it after the step
    that is running, saved.

    Raises TextError, VocabularyError, ArtifactsError (an unknown preset; no such device or precision here; the state of
    another run), TrainingError (not finite), StorageError, MissingExtraError without `phonograd[export]`.
    """
    try:
        from phonograd.export import pretrain as recipe  # it needs torch
    except ImportError as error:
        raise MissingExtraError(
            f"pretrain needs torch ({error}); install it with: pip install 'phonograd[export]'"
        ) from error

    place = Path(out)
    inputs = (vocabulary, *texts, validation)
    require_output(place, *inputs)
    require_output(state, *inputs, others=[place], folder=True)
    require_writable(place)
    words = words_of(vocabulary)
    model = shape
    if isinstance(model, str):
        model = msgspec.structs.replace(preset_named(model).model, vocabulary=len(words))
    corpus = load_corpus([Path(text) for text in texts], words, path_of(validation))
    return recipe.pretrain(
        model, words, corpus, config or PretrainConfig(), place, state_folder=path_of(state), progress=progress
    )
