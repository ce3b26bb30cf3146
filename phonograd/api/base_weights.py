"""The weights that training starts from, opened once: what is hashed and encoded against is what was trained."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from phonograd.device_runtime.formats.frozen import frozen_in, frozen_metadata
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS, Artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile, save_tensors
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.state_dict import is_torch_file


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
            if list(file.specs.items()) == list(own.specs.items()) and frozen_in(file) == frozen_in(own):
                yield file
                return
        from phonograd.export.model_file import load_weights

        config = folder.manifest.model
        vocabulary = Vocabulary.load(folder.path(VOCABULARY), config.vocabulary)
        converted = Path(resources.enter_context(tempfile.TemporaryDirectory(prefix="phonograd-"))) / WEIGHTS
        save_tensors(converted, load_weights(weights, config, vocabulary), frozen_metadata(frozen_in(own), own.specs))
        yield resources.enter_context(TensorFile(converted))
