"""Updates of earlier rounds are taken too: their deltas count on the open round's model."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateFile


@contextlib.contextmanager
def decoded_on(base: TensorFile, update: UpdateFile, its_base: Path | None) -> Iterator[DecodedUpdate]:
    """An open update on the open round's model, `base`. its_base: the model of a late update, else None.

    Raises UpdateError for an update that does not fit its model, WeightsError.
    """
    with contextlib.ExitStack() as opened:
        models = (base,) if its_base is None else (opened.enter_context(TensorFile(its_base)), base)
        yield opened.enter_context(DecodedUpdate(update, *models))


@contextlib.contextmanager
def decoded_file(base: TensorFile, path: Path, its_base: Path | None) -> Iterator[DecodedUpdate]:
    """The same for an update's file, which is opened."""
    with UpdateFile(path) as update, decoded_on(base, update, its_base) as source:
        yield source
