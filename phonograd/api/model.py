"""A language model that runs: what it makes of a text, and the next word that a keyboard shows."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

from phonograd.api.inputs import StrPath, Text, artifacts_of, messages_of, path_of, vocabulary_of
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.engine.personal import PersonalWords
from phonograd.device_runtime.engine.predictor import (
    Predictor,
    Suggestion,
    SuggestOptions,
    is_prediction_file,
    write_merged_weights,
    write_prediction_weights,
)
from phonograd.device_runtime.formats.frozen import frozen_in, frozen_metadata
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile, WrittenFile, save_tensors
from phonograd.device_runtime.text.evaluation import Evaluation, PredictorScorer, keystroke_savings
from phonograd.device_runtime.text.evaluation import evaluate as evaluate_text
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.state_dict import is_torch_file
from phonograd.export.torch_layout import VOCABULARY_SHA256


@contextlib.contextmanager
def base_weights(folder: Artifacts, weights: Path | None) -> Iterator[TensorFile]:
    """The folder's own weights, or those of `weights` in any layout and float type that `export --weights` takes.

    What is not in the folder's layout is converted, to the bytes that export would write: an update names the same
    model. Raises WeightsError for a file that fits neither layout, is not finite, or is of another vocabulary.
    """
    with contextlib.ExitStack() as resources:
        own = resources.enter_context(TensorFile(folder.path(WEIGHTS)))
        if weights is None:
            yield own
            return
        if not is_torch_file(weights):
            file = resources.enter_context(TensorFile(weights))
            same = list(file.specs.items()) == list(own.specs.items()) and frozen_in(file) == frozen_in(own)
            if same and VOCABULARY_SHA256 not in file.metadata:  # which only a pre-trained model's file has
                yield file
                return
        from phonograd.export.model_file import load_weights

        config = folder.manifest.model
        vocabulary = Vocabulary.load(folder.path(VOCABULARY), config.vocabulary)
        converted = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="phonograd-"))) / WEIGHTS
        save_tensors(converted, load_weights(weights, config, vocabulary), frozen_metadata(frozen_in(own), own.specs))
        yield resources.enter_context(TensorFile(converted))


class Model(contextlib.AbstractContextManager["Model"]):
    """A language model in the engine, open until `close`; made by `open_model`. Not thread-safe.

    artifacts: the folder it is of.
    """

    def __init__(
        self,
        artifacts: Artifacts,
        weights: TensorFile,
        scorer: NativeBackend | PredictorScorer,
        resources: contextlib.ExitStack,
    ):
        self.artifacts = artifacts
        self._weights = weights
        self._scorer = scorer
        self._resources = resources

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the engine and close the weights."""
        self._resources.close()

    @cached_property
    def sha256(self) -> str:
        """Hex SHA-256 of the weights: the model's name at a server. Raises WeightsError if they were changed."""
        sha256 = self._weights.sha256()
        self._weights.require_unchanged()
        return sha256

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The model's words. Raises VocabularyError."""
        return vocabulary_of(self.artifacts)

    def evaluate(
        self, text: Text, *, kss: bool = False, progress: Callable[[int, int], None] | None = None
    ) -> Evaluation:
        """Perplexity and top-1 accuracy on a text, with `kss` also keystroke savings, and their standard errors.

        text: a file, one message a line, or the messages. progress hears (tokens done, tokens in all). Raises
        TextError, TrainingError for scores that are not finite, WeightsError if the weights were changed meanwhile.
        """
        training = self.artifacts.manifest.training
        messages = messages_of(text)
        columns = 1 if isinstance(self._scorer, PredictorScorer) else training.minibatch
        result = evaluate_text(self._scorer, self.vocabulary, messages, columns, training.bptt, kss, progress)
        self._weights.require_unchanged()
        return result


def open_model(
    artifacts: Artifacts | StrPath,
    *,
    weights: StrPath | None = None,
    options: BackendOptions | None = None,
) -> Model:
    """Load a model to evaluate it; use it as a context, or `close` it.

    weights: a tensor file, of a later round or a torch state dict, or prediction weights, which are measured as a
    keyboard predicts with them; None: the folder's own. The first use in a source checkout compiles the engine. Raises
    ArtifactsError, WeightsError, and UnsupportedError for options that this CPU does not support.
    """
    folder, given = artifacts_of(artifacts), path_of(weights)
    with contextlib.ExitStack() as resources:
        if given is not None and _is_prediction_file(given):
            file = resources.enter_context(TensorFile(given))
            scorer = PredictorScorer(Predictor(folder, given, options or BackendOptions()), vocabulary_of(folder))
            resources.callback(scorer.close)
            return Model(folder, file, scorer, resources.pop_all())
        file = resources.enter_context(base_weights(folder, given))
        engine = NativeBackend(folder, None if weights is None else file.path, options or BackendOptions())
        resources.callback(engine.close)
        file.require_at_path()
        return Model(folder, file, engine, resources.pop_all())


def evaluate(
    artifacts: Artifacts | StrPath,
    text: Text,
    *,
    weights: StrPath | None = None,
    kss: bool = False,
    options: BackendOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """What a model makes of one text: `open_model` and `Model.evaluate` in one call."""
    with open_model(artifacts, weights=weights, options=options) as model:
        return model.evaluate(text, kss=kss, progress=progress)


def open_predictor(
    artifacts: Artifacts | StrPath,
    *,
    weights: StrPath | None = None,
    personal: PersonalWords | StrPath | None = None,
    options: BackendOptions | None = None,
) -> Predictor:
    """Open a model for prediction alone, at the start of a text; use it as a context, or `close` it.

    weights: None for the folder's prediction weights if it has them, else its weights; or a file of either kind, such
    as a later round's model or a torch state dict. personal: the user's own words, mixed into the suggestions, or their
    file. options: threads, kernels. Raises ArtifactsError, WeightsError, VocabularyError, UnsupportedError, and
    StateError for a damaged file of personal words.
    """
    folder, given = artifacts_of(artifacts), path_of(weights)
    with contextlib.ExitStack() as resources:
        if given is not None and not _is_prediction_file(given):
            given = resources.enter_context(base_weights(folder, given)).path
        predictor = Predictor(folder, given, options or BackendOptions())
    if personal is not None:
        predictor.use(personal if isinstance(personal, PersonalWords) else PersonalWords(personal))
    return predictor


def predict(
    artifacts: Artifacts | StrPath,
    context: str,
    prefix: str = "",
    *,
    suggest: SuggestOptions | None = None,
    weights: StrPath | None = None,
    options: BackendOptions | None = None,
) -> list[Suggestion]:
    """What a keyboard would suggest: the three most probable next words that begin with `prefix`, best first.

    context: what was written before, messages a line each; the last line is the one being written. It opens the model
    each time; for many predictions, keep one `open_predictor`, which reads no word twice. Raises what that raises.
    """
    with open_predictor(artifacts, weights=weights, options=options) as predictor:
        predictor.feed(context)
        return predictor.suggest(prefix, options=suggest)


def keystrokes_saved(
    artifacts: Artifacts | StrPath,
    text: Text,
    *,
    weights: StrPath | None = None,
    personal: StrPath | None = None,
    options: BackendOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[float, float]:
    """Keystroke savings (paper P, eq. 5) of a predictor that learns the user's own words as they are written: where
    marks are suggested too, and by a keyboard that suggests words alone.

    text: the user's, messages in order. personal: a file of what was learned before, which is not changed; None:
    nothing was. progress hears (messages done, in all). Raises what `open_predictor` raises, and TextError.
    """
    folder, words = artifacts_of(artifacts), PersonalWords(path_of(personal))
    with open_predictor(folder, weights=weights, personal=words, options=options) as predictor:
        return keystroke_savings(predictor, vocabulary_of(folder), messages_of(text), learn=True, progress=progress)


def quantize(artifacts: Artifacts | StrPath, out: StrPath, *, weights: StrPath | None = None) -> WrittenFile:
    """Write a model's prediction weights, in int8: a quarter of its size, and less than half of the time.

    weights: as for `evaluate`; None: the folder's own. `phonograd-phone quantize` writes the same bytes on a phone.
    Raises ArtifactsError, WeightsError, StorageError.
    """
    with base_weights(artifacts_of(artifacts), path_of(weights)) as file:
        return write_prediction_weights(file.path, Path(out))


def merge(model: Artifacts | StrPath, out: StrPath) -> WrittenFile:
    """Write a model with adapters as a plain one: W + B A in place of each matrix W, and no adapters.

    model: an artifacts folder or a tensor file. The result fits the artifacts that an export without `adapters` writes.
    Raises WeightsError for a model without adapters, ArtifactsError, UsageError for an output that is the input,
    StorageError.
    """
    folder = isinstance(model, Artifacts) or Path(model).is_dir()
    weights = artifacts_of(model).path(WEIGHTS) if folder else Path(model)  # type: ignore[arg-type]
    return write_merged_weights(weights, Path(out))


def _is_prediction_file(path: Path) -> bool:
    return not is_torch_file(path) and is_prediction_file(path)
