"""A language model that runs: what it makes of a text."""

import contextlib
from collections.abc import Callable
from functools import cached_property

from phonograd.api.base_weights import base_weights
from phonograd.api.inputs import StrPath, Text, artifacts_of, messages_of, path_of, vocabulary_of
from phonograd.device_runtime.engine import DEFAULT_BACKEND, Backend, BackendOptions, load_backend
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.text.evaluation import Evaluation
from phonograd.device_runtime.text.evaluation import evaluate as evaluate_text
from phonograd.device_runtime.text.vocabulary import Vocabulary


class Model:
    """A language model in a backend, open until `close`; made by `open_model`. Not thread-safe.

    artifacts: the folder it is of.
    """

    def __init__(self, artifacts: Artifacts, weights: TensorFile, backend: Backend, resources: contextlib.ExitStack):
        self.artifacts = artifacts
        self._weights = weights
        self._backend = backend
        self._resources = resources

    def __enter__(self) -> "Model":
        return self

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
        """Perplexity and top-1 accuracy on a text; with `kss` also keystroke savings.

        text: a file, one message a line, or the messages. progress hears (tokens done, tokens in all). Raises
        TextError, TrainingError for scores that are not finite, WeightsError if the weights were changed meanwhile.
        """
        training = self.artifacts.manifest.training
        messages = messages_of(text)
        result = evaluate_text(
            self._backend, self.vocabulary, messages, training.minibatch, training.bptt, kss, progress
        )
        self._weights.require_unchanged()
        return result


def open_model(
    artifacts: Artifacts | StrPath,
    *,
    weights: StrPath | None = None,
    backend: str = DEFAULT_BACKEND,
    options: BackendOptions | None = None,
) -> Model:
    """Load a model to evaluate it; use it as a context, or `close` it.

    weights: a tensor file, of a later round or a torch state dict; None: the folder's own. backend: native or ort. The
    first use in a source checkout compiles the engine. Raises ArtifactsError, WeightsError, and what
    `load_backend` raises.
    """
    folder = artifacts_of(artifacts)
    with contextlib.ExitStack() as resources:
        file = resources.enter_context(base_weights(folder, path_of(weights)))
        engine = load_backend(backend, folder, None if weights is None else file.path, options or BackendOptions())
        resources.callback(engine.close)
        file.require_at_path()
        return Model(folder, file, engine, resources.pop_all())


def evaluate(
    artifacts: Artifacts | StrPath,
    text: Text,
    *,
    weights: StrPath | None = None,
    kss: bool = False,
    backend: str = DEFAULT_BACKEND,
    options: BackendOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """What a model makes of one text: `open_model` and `Model.evaluate` in one call."""
    with open_model(artifacts, weights=weights, backend=backend, options=options) as model:
        return model.evaluate(text, kss=kss, progress=progress)
