"""A round's model and what belongs to it: drafts first, then in place, then in the ledger.

Links lead phones from one model to the next. Those of the chain that ends in the current model are kept as long as
together they are smaller than that model: with more, a phone fetches the model itself.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sqlalchemy.orm import Session

from phonograd.device_runtime.formats.tensor_file import WrittenFile
from phonograd.server_agg.aggregation.next_model import Average, ModelFiles, NextModel
from phonograd.server_agg.aggregation.publishing import Publish
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Model, Round


def files_of_model(sha256: str, folder: StateFolder, ledger: Ledger) -> ModelFiles:
    """A model's files that the next one is made with. Raises StorageError if one is missing or damaged."""
    with ledger.reading() as session:
        row = session.get_one(Model, sha256)
    state, residual = row.optimizer_sha256, row.residual_sha256
    return ModelFiles(
        folder.model(sha256),
        optimizer=None if state is None else folder.check_content(folder.optimizer(state)),
        residual=None if residual is None else folder.check_content(folder.residual(residual)),
    )


def next_deployment(row: Round, session: Session) -> int:
    """The round after which phones get a model, if the open round of `row` and all after it make one."""
    left = RoundRules.from_json(row.rules).deploy_every - queries.models_from(session, row) - 1
    return row.number + max(0, left)


def deploys(row: Round, session: Session) -> bool:
    """Whether phones get the model of this round, if it makes one."""
    return next_deployment(row, session) == row.number


def inputs_of(row: Round, folder: StateFolder, ledger: Ledger) -> tuple[ModelFiles, Publish | None, Average | None]:
    """What a round's model is made with: its base's files, how it is published, if it is, and what is averaged on.

    Raises StorageError if a file is missing or damaged.
    """
    with ledger.reading() as session:
        rounds, deployed = queries.models_from(session, row), deploys(row, session)
    how = RoundRules.from_json(row.rules).how_published if deployed else None
    before = files_of_model(row.base_sha256, folder, ledger)
    if row.average_sha256 is None:
        return before, how, None
    last = files_of_model(row.average_sha256, folder, ledger)
    model = folder.check_content(folder.model(row.average_sha256))
    return replace(before, optimizer=last.optimizer), how, Average(model, rounds)


@contextlib.contextmanager
def model_drafts(folder: StateFolder, buffers: bool = False) -> Iterator[ModelFiles]:
    """Places for a round's model, and for its noise buffers; emptied at the end of the block, unless it moved them."""
    paths = [folder.new_draft() for _ in range(5)]
    try:
        yield ModelFiles(*paths[: 5 if buffers else 4])
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def move_into_place(
    made: NextModel, drafts: ModelFiles, round_: Round, folder: StateFolder, now: float, seal: bytes | None = None
) -> Model:
    """Move what a round's end wrote into place, durably. Returns the model's row for the ledger. Raises StorageError.

    seal: of the noise buffers.
    """

    def move(written: WrittenFile | None, name: str, path_of: Callable[[str], Path]) -> str | None:
        if written is not None:
            folder.move_into_place(getattr(drafts, name), path_of(written.sha256))
        return None if written is None else written.sha256

    published = made.published
    return Model(
        optimizer_sha256=move(made.optimizer, "optimizer", folder.optimizer),
        buffers_sha256=move(made.buffers, "buffers", folder.noise_buffers),
        buffers_seal=None if made.buffers is None or seal is None else seal.hex(),
        link_sha256=move(published.link, "link", folder.link),
        link_bytes=None if published.link is None else published.link.nbytes,
        residual_sha256=move(published.residual, "residual", folder.residual),
        distance=published.distance,
        sha256=move(published.model, "weights", folder.model),
        round=round_.number,
        parent_sha256=round_.base_sha256,
        bytes=published.model.nbytes,
        created_at=now,
    )


def links_to_keep(models: Sequence[Model], current_sha256: str, most: int | None) -> tuple[Model, ...]:
    """The models whose links lead to the current one, the newest first: at most `most`, smaller together than it."""
    by_hash = {model.sha256: model for model in models}
    model, kept = by_hash[current_sha256], list[Model]()
    left = model.bytes
    while model.link_bytes is not None and model.parent_sha256 is not None:
        left -= model.link_bytes
        if left <= 0 or len(kept) == most:
            break
        kept.append(model)
        model = by_hash[model.parent_sha256]
    return tuple(kept)


def links_between(linked: Sequence[Model], from_sha256: str, to_sha256: str) -> list[str]:
    """The hashes of the links that lead from one model to another, the oldest first; none if some are not kept."""
    way: list[str] = []
    for model in linked:
        if way or model.sha256 == to_sha256:
            way.insert(0, str(model.link_sha256))
            if model.parent_sha256 == from_sha256:
                return way
    return []
