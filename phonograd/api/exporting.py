"""Artifacts from a model (one of PyTorch, its state dict, or a file of it), and what a folder of them holds."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from phonograd.api.inputs import StrPath, Text, artifacts_of, messages_of, path_of
from phonograd.device_runtime.base.errors import VocabularyError
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.evaluation import Evaluation
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.adapters import with_adapters
from phonograd.export.inspection import describe
from phonograd.export.model_file import ModelOfStateDict, load_model, own_model, tensors_named
from phonograd.export.presets import preset_named
from phonograd.export.state_dict import StateDict
from phonograd.export.tensor_names import Renames
from phonograd.export.vocabulary_import import import_vocabulary, load_vocabulary, misfit, permute, rows_of


class HasStateDict(Protocol):
    """A torch.nn.Module, as far as it is needed."""

    def state_dict(self) -> Mapping[str, Any]:
        """Tensors by name."""


# A torch.nn.Module; its state dict, of torch tensors or NumPy arrays; a .pt or safetensors file.
ModelSource: TypeAlias = HasStateDict | Mapping[str, Any] | StrPath


def export_artifacts(
    model: ModelSource,
    vocabulary: Vocabulary | StrPath | Sequence[str],
    out: StrPath,
    *,
    training: TrainingConfig | None = None,
    shape: LanguageModelConfig | str | None = None,
    renames: Mapping[str, str] | None = None,
    ignore: Sequence[str] = (),
    key: str | None = None,
    trained_with: StrPath | None = None,
    freeze: Sequence[str] = (),
    train: Sequence[str] = (),
    adapters: int | None = None,
    adapters_seed: int = 0,
    predict: Literal["int8"] | None = None,
    distill: bool = False,
    overwrite: bool = False,
    forward: Callable[..., Any] | None = None,
    check: Text | None = None,
    on_check: Callable[[Evaluation, Evaluation], None] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Artifacts:
    """Write the artifacts folder `out` that phones train from.

    model: a word-level LSTM or GRU, with the names of PyTorch's word_language_model example (encoder, rnn, decoder) or
    ours; `renames` has others, OLD to NEW, for a tensor or all below it. ignore: globs of tensors to leave out. key:
    where a checkpoint has the state dict, `model.state_dict`; None: it is one, or has one under a usual name. Its shape
    follows from its tensors; `shape`, a LanguageModelConfig or a preset's name, only holds it to one. vocabulary:
    vocab.txt or the words, `<unk>` and `<eos>` first; without counts, its words follow Zipf's law.
    trained_with: the vocabulary's file that the model was trained with, if that is another: rows follow their words.
    training: what the training graph computes. freeze: names of tensors, or what names begin with, that phones leave as
    they are. train: the only ones that they train. adapters: the rank of low-rank adapters, which train in place of
    every matrix, beside the biases; adapters_seed: of their fixed part. predict: "int8" also writes prediction weights,
    for `open_predictor`. distill: also write the graph that a server's transfer learning needs. overwrite: replace an
    artifacts folder, if it holds nothing else and none of the files given here.
    progress hears each stage, and what was noticed.

    A module's forward and the written graph are run on random tokens, and must agree. forward: runs in its place: a
    function of int64 tokens [T, B] that gives scores [T, B, V], each time from zero states and without dropout. check:
    a text on which the model's perplexity (without a forward: that of its tensors in PyTorch) and that of the artifacts
    in the native engine must agree too. on_check hears both.

    Raises WeightsError (names, shapes, dtypes, not finite, a forward that computes something else), VocabularyError,
    ArtifactsError (`out` may not be replaced; an unknown preset), UsageError (nothing to freeze by a name, a forward
    that can't be run), TextError, StorageError, MissingExtraError without the extra `export`.
    """
    from phonograd.export import artifacts  # it needs onnx: what is wrong with the model is said without

    heard = progress or (lambda _: None)
    words = words_of(vocabulary)
    renamed = tuple((renames or {}).items())
    loaded = model_with(words, model, _config_factory(shape), renamed, path_of(trained_with), ignore, key)
    config, weights = loaded.config, loaded.weights
    if adapters is not None:
        config, weights = with_adapters(config, weights, adapters, adapters_seed)
    frozen = {*config.frozen_by_adapters(), *tensors_named(config, freeze)}
    if train:
        frozen |= {spec.name for spec in config.tensor_specs()} - set(tensors_named(config, train))
    for remark in (*loaded.remarks, *(f"warning: {odd}" for odd in misfit(words))):
        heard(remark)
    compare = _comparison(model, loaded, forward, check, on_check)
    return artifacts.export_artifacts(
        Path(out),
        config,
        training or TrainingConfig(),
        weights,
        words,
        progress,
        overwrite,
        frozen,
        predict,
        distill,
        _files(model, vocabulary, trained_with, check),
        compare,
    )


def _files(*given: object) -> list[Path]:
    """The arguments that name a file."""
    return [Path(one) for one in given if isinstance(one, str | os.PathLike)]


def model_with(
    words: Vocabulary,
    model: ModelSource,
    shape: Callable[[int], LanguageModelConfig] | None = None,
    renames: Renames = (),
    trained_with: Path | None = None,
    ignore: Sequence[str] = (),
    key: str | None = None,
) -> ModelOfStateDict:
    """The model with rows for `words`, in their order; `shape` is one to hold it to, by the file's words.

    Else as `export_artifacts`.
    """
    in_file: Vocabulary | None = words
    imported = None if trained_with is None else import_vocabulary(trained_with, words.turkish)
    entries = len(words)
    if trained_with is not None and imported is not None:
        entries, in_file = imported.entries, None
        with contextlib.suppress(VocabularyError):  # a file that names its vocabulary was trained with one of ours
            in_file = Vocabulary.load(trained_with)
    rows = None if imported is None else rows_of(words, imported)
    declared = None if shape is None else shape(entries)
    if isinstance(model, str | os.PathLike):
        source, loaded = str(model), load_model(Path(model), in_file, renames, declared, ignore, key)
    else:
        source = "model"
        tensors = model if isinstance(model, Mapping) else model.state_dict()
        loaded = own_model(StateDict.of(tensors, source, key), renames, declared, ignore)
    if loaded.config.vocabulary != entries:
        raise VocabularyError(
            f"{trained_with or words.source}: {loaded.config.vocabulary} words expected, as {source} has rows, found "
            f"{entries}; give the vocabulary that the model was trained with, or, if this one was made of it, that as "
            "`trained_with`"
        )
    weights = loaded.weights if rows is None else permute(loaded.weights, rows)
    config = msgspec.structs.replace(loaded.config, vocabulary=len(words))
    return dataclasses.replace(loaded, config=config, weights=weights, rows=rows)


def _config_factory(shape: LanguageModelConfig | str | None) -> Callable[[int], LanguageModelConfig] | None:
    if shape is None:
        return None
    config = preset_named(shape).model if isinstance(shape, str) else shape
    return lambda words: msgspec.structs.replace(config, vocabulary=words)


def words_of(vocabulary: Vocabulary | StrPath | Sequence[str]) -> Vocabulary:
    """The vocabulary, read if a file's path is given, made if words are. Raises VocabularyError."""
    if isinstance(vocabulary, Vocabulary):
        return vocabulary
    if isinstance(vocabulary, str | os.PathLike):
        return load_vocabulary(Path(vocabulary))
    return Vocabulary(tuple(word.encode() for word in vocabulary))


def _comparison(
    model: object,
    loaded: ModelOfStateDict,
    forward: Callable[..., Any] | None,
    text: Text | None,
    on_check: Callable[[Evaluation, Evaluation], None] | None,
) -> Callable[[Artifacts], None] | None:
    """What holds the written folder to the model; None for tensors alone and no text."""
    runs = forward or (model if callable(model) else None)
    if runs is None and text is None:
        return None
    from phonograd.export.model_check import check_artifacts, torch_scorer

    messages = None if text is None else messages_of(text)
    return partial(check_artifacts, torch_scorer(loaded, runs), messages, on_check)


def inspect(artifacts: Artifacts | StrPath) -> dict[str, Any]:
    """Parameters, bytes, settings, tensors, files, frozen tensors, and the operators of each graph (None without onnx).

    As `phonograd inspect --json` prints it. Raises ArtifactsError, also for a file that was altered.
    """
    return describe(artifacts_of(artifacts))
