"""The end of a round, the same for a server, a simulation and Flower: from its updates to the files of the next model.

- The strategy's averaged delta and the server optimizer make the model, or a student does.
- dp-ftrl writes what the next round's noise needs of this one's.
- What is published is that model, or, with a lossy link, one close to it; and the link.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, WrittenFile, all_tiles, write_tensor_file
from phonograd.server_agg.aggregation.model_writer import model_metadata, write_model
from phonograd.server_agg.aggregation.publishing import Publication, Publish, PublishedFiles, publish
from phonograd.server_agg.aggregation.strategy import Aggregation, ClientUpdate

# Trains strategy transfer's model: from the updates and the base model, to a path, with metadata.
Student = Callable[[Sequence[ClientUpdate], Path, Path, Mapping[str, str]], WrittenFile]


@dataclass(frozen=True)
class ModelFiles:
    """Paths of a model and of what belongs to it; of a round's base model, those that exist count.

    optimizer: the server optimizer's state after it
    link: from the model before it
    residual: what links so far left out
    buffers: the noise's memory, of dp-ftrl; None: no later round needs it
    """

    weights: Path
    optimizer: Path | None = None
    link: Path | None = None
    residual: Path | None = None
    buffers: Path | None = None


@dataclass(frozen=True)
class Average:
    """The mean of the models that `rounds` rounds made of a round's base, at a path."""

    model: Path
    rounds: int


@dataclass(frozen=True)
class NextModel:
    """The files that a round's end wrote, those that there are."""

    published: Publication
    optimizer: WrittenFile | None
    buffers: WrittenFile | None


def make_model(
    aggregation: Aggregation,
    updates: Sequence[ClientUpdate],
    before: ModelFiles,
    after: ModelFiles,
    how: Publish | None,
    student: Student | None = None,
    average: Average | None = None,
) -> NextModel:
    """Write the model after a round; the same updates, settings and context give the same bytes.

    updates: those that were added. before: of the base model. how: it is published, None: without a link. student: for
    strategy transfer. average: of the rounds before on this base, to which the model is added. Raises what
    `write_model`, `publish` and the student raise.
    """
    settings, base, sha256 = aggregation.settings, aggregation.base, aggregation.base_sha256
    metadata = model_metadata(aggregation.context.number, sha256)
    draft, state = after.weights if how is None else after.weights.with_suffix(".draft"), None
    try:
        if student is not None:
            model = student(updates, base.path, draft, metadata)
        else:
            old = _existing(before.optimizer)
            assert after.optimizer is not None
            model, state = write_model(settings, aggregation, updates, base, old, draft, after.optimizer, metadata)
        if average is not None:
            model = _average_on(average, draft)
        buffers = None if after.buffers is None else aggregation.write_buffers(after.buffers, metadata)
        if how is None:
            published = Publication(model, None, None, None)
        else:
            assert after.link is not None and after.residual is not None
            files = PublishedFiles(after.weights, after.link, after.residual)
            published = publish(how, base, sha256, draft, model, _existing(before.residual), files)
    finally:
        if how is not None:
            draft.unlink(missing_ok=True)
    return NextModel(published, state, buffers)


def _average_on(average: Average, draft: Path) -> WrittenFile:
    """Replace the model of a round by the mean of those before and this one. Weights that are equal keep their bits."""
    own = draft.with_suffix(".own")
    draft.replace(own)
    try:
        with TensorFile(own) as model, TensorFile(average.model) as before:
            tiles = (
                _mean(before.read_range(*part), model.read_range(*part), average.rounds)
                for part in all_tiles(model.specs)
            )
            return write_tensor_file(draft, model.specs.values(), tiles, model.metadata)
    finally:
        own.unlink(missing_ok=True)


def _mean(before: Array, own: Array, rounds: int) -> Array:
    return ((before.astype(np.float64) * rounds + own) / (rounds + 1)).astype(np.float32)


def _existing(path: Path | None) -> Path | None:
    return path if path is not None and path.exists() else None
