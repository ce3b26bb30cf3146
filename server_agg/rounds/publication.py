"""Publishing a round's model: its files are drafts first, then in place, then in the ledger.

Links lead phones from one model to the next. Those of the chain that ends in the current model are kept as long as
together they are smaller than that model: with more, a phone fetches the model itself.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.formats.tensor_file import TensorFile, WrittenFile
from phonograd.server_agg.aggregation.publishing import Publication, PublishedFiles, publish
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.tables import Model, Round


@dataclass(frozen=True)
class PublishedDraft:
    """A published model, its link and its residual, in drafts."""

    round: Round
    publication: Publication
    files: PublishedFiles

    def move_into_place(self, folder: StateFolder, now: float, **beside: str | None) -> Model:
        """Move the files into place, durably. Returns the model's row for the ledger. Raises StorageError.

        beside: columns of the row, about other files that belong to the model.
        """
        made = self.publication
        for written, draft, path_of in (
            (made.link, self.files.link, folder.link),
            (made.residual, self.files.residual, folder.residual),
            (made.model, self.files.model, folder.model),
        ):
            if written is not None:
                folder.move_into_place(draft, path_of(written.sha256))
        return Model(
            sha256=made.model.sha256,
            round=self.round.number,
            parent_sha256=self.round.base_sha256,
            **beside,
            bytes=made.model.nbytes,
            created_at=now,
            link_sha256=None if made.link is None else made.link.sha256,
            link_bytes=None if made.link is None else made.link.nbytes,
            residual_sha256=None if made.residual is None else made.residual.sha256,
            distance=made.distance,
        )


@contextlib.contextmanager
def published(
    round_: Round, base: Path, draft: Path, written: WrittenFile, folder: StateFolder, ledger: Ledger
) -> Iterator[PublishedDraft]:
    """What the round publishes, in drafts, which are removed at the end of the block unless they moved.

    draft: its uncompressed model. Raises what `publish` raises.
    """
    files = PublishedFiles(folder.new_draft(), folder.new_draft(), folder.new_draft())
    how, sha256 = RoundRules.from_json(round_.rules).how_published, round_.base_sha256
    try:
        with TensorFile(base) as old:
            made = publish(how, old, sha256, draft, written, residual_path(sha256, folder, ledger), files)
        yield PublishedDraft(round_, made, files)
    finally:
        for path in (files.model, files.link, files.residual):
            path.unlink(missing_ok=True)


def residual_path(base_sha256: str, folder: StateFolder, ledger: Ledger) -> Path | None:
    """What the links up to a model left out; None if nothing. Raises StorageError if it is missing or damaged."""
    with ledger.reading() as session:
        sha256 = session.get_one(Model, base_sha256).residual_sha256
    return None if sha256 is None else folder.checked(folder.residual(sha256))


@dataclass(frozen=True)
class KeptLink:
    """A link on disk, and the models that it leads from and to."""

    sha256: str
    nbytes: int
    from_sha256: str
    to_sha256: str


def links_to_keep(models: Sequence[Model], current_sha256: str, most: int | None) -> tuple[KeptLink, ...]:
    """The links of the chain that ends in the current model, the newest first: at most `most`, smaller than it."""
    by_hash = {model.sha256: model for model in models}
    model, kept = by_hash[current_sha256], list[KeptLink]()
    left = model.bytes
    while model.link_sha256 is not None and model.link_bytes is not None and model.parent_sha256 is not None:
        left -= model.link_bytes
        if left <= 0 or len(kept) == most:
            break
        kept.append(KeptLink(model.link_sha256, model.link_bytes, model.parent_sha256, model.sha256))
        model = by_hash[model.parent_sha256]
    return tuple(kept)


def links_between(links: Sequence[KeptLink], from_sha256: str, to_sha256: str) -> list[KeptLink]:
    """The links that lead from one model to another, the oldest first; none if some are not kept."""
    way: list[KeptLink] = []
    for link in links:
        if way or link.to_sha256 == to_sha256:
            way.insert(0, link)
            if link.from_sha256 == from_sha256:
                return way
    return []
