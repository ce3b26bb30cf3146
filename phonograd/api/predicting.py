"""What a keyboard shows: the next word, predicted as the user writes."""

import contextlib
from pathlib import Path

from phonograd.api.base_weights import base_weights
from phonograd.api.inputs import StrPath, artifacts_of, path_of
from phonograd.device_runtime.engine import BackendOptions
from phonograd.device_runtime.engine.predictor import (
    Predictor,
    Suggestion,
    is_prediction_file,
    write_prediction_weights,
)
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.tensor_file import WrittenFile
from phonograd.export.state_dict import is_torch_file


def open_predictor(
    artifacts: Artifacts | StrPath, *, weights: StrPath | None = None, options: BackendOptions | None = None
) -> Predictor:
    """Open a model for prediction alone, at the start of a text; use it as a context, or `close` it.

    weights: None for the folder's prediction weights if it has them, else its weights; or a file of either kind, such
    as a later round's model or a torch state dict. options: threads, kernels. Raises ArtifactsError, WeightsError,
    VocabularyError, UnsupportedError.
    """
    folder, given = artifacts_of(artifacts), path_of(weights)
    with contextlib.ExitStack() as resources:
        if given is not None and not _is_prediction_file(given):
            given = resources.enter_context(base_weights(folder, given)).path
        return Predictor(folder, given, options or BackendOptions())


def predict(
    artifacts: Artifacts | StrPath,
    context: str,
    prefix: str = "",
    *,
    weights: StrPath | None = None,
    options: BackendOptions | None = None,
) -> list[Suggestion]:
    """What a keyboard would suggest: the three most probable next words that begin with `prefix`, best first.

    context: what was written before, messages a line each; the last line is the one being written. It opens the model
    each time; for many predictions, keep one `open_predictor`, which reads no word twice. Raises what that raises.
    """
    with open_predictor(artifacts, weights=weights, options=options) as predictor:
        predictor.feed(context)
        return predictor.suggest(prefix)


def quantize(artifacts: Artifacts | StrPath, out: StrPath, *, weights: StrPath | None = None) -> WrittenFile:
    """Write a model's prediction weights, in int8: a quarter of its size, and less than half of the time.

    weights: as for `evaluate`; None: the folder's own. `phonograd-phone quantize` writes the same bytes on a phone.
    Raises ArtifactsError, WeightsError, StorageError.
    """
    with base_weights(artifacts_of(artifacts), path_of(weights)) as file:
        return write_prediction_weights(file.path, Path(out))


def _is_prediction_file(path: Path) -> bool:
    return not is_torch_file(path) and is_prediction_file(path)
