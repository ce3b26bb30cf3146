"""The server's part of a simulated round: its own aggregation, from update files to the next model."""

import hashlib
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import UpdateError, WeightsError
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateFile
from phonograd.server_agg.aggregation.late import decoded_file
from phonograd.server_agg.aggregation.next_model import Average, ModelFiles, Student, make_model
from phonograd.server_agg.aggregation.publishing import Publication, Publish
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategies import strategy_of
from phonograd.server_agg.aggregation.strategy import Aggregation, ClientUpdate, RoundContext, Strategy
from phonograd.server_agg.refusals import InvalidUpdateError
from phonograd.server_agg.rounds.uploads import redact_path
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.simulation.masked import GridMean


@dataclass(frozen=True)
class Arrival:
    """An update that reached the server. late_base: the model it was made from, if it is late, else None."""

    user: str
    path: Path
    sha256: str
    late_base: Path | None = None


@dataclass(frozen=True)
class ClosedRound:
    """What a round made: accepted and repeated updates, and what it published, None if too few were accepted.

    refusals: a line for each update that was refused, which names its user and says why.
    """

    accepted: int
    refusals: tuple[str, ...]
    repeated: int
    published: Publication | None


def close_round(
    settings: StrategySettings,
    number: int,
    base: ModelFiles,
    base_sha256: str,
    arrivals: Iterable[Arrival],
    next_files: ModelFiles,
    population: int,
    student: Student | None = None,
    publish: Publish | None = None,
    masked: MaskedSettings | None = None,
    phones: int = 0,
    average: Average | None = None,
) -> ClosedRound:
    """Aggregate the updates and write the next model; the same bytes as a server's round of the same updates.

    student: for strategy transfer, in place of an average. publish: how the model is published, with a link and a
    residual at the places that `next_files` has for them; None: as it is, without a link. masked: of a masked round,
    whose arrivals are grid updates. phones: that the round expects, for dp-ftrl, which needs a place for its buffers.
    average: of the rounds before on this base, if there are any.

    An arrival is asked for when the one before it has been added. Their order does not matter. The noise of a private
    strategy follows from the base model and the round, so that a repeat gives the same bits; it hides nothing from who
    knows the model. Raises StorageError, WeightsError for a model that overflows.
    """
    strategy = strategy_of(settings)
    key = hashlib.sha256(f"{base_sha256} {number}".encode()).digest()
    accepted: list[ClientUpdate] = []
    users: set[str] = set()
    refusals: list[str] = []
    repeated = 0
    opened = TensorFile(base.buffers) if base.buffers is not None and base.buffers.exists() else nullcontext()
    with TensorFile(base.weights) as weights, opened as buffers:
        context = RoundContext(number, key, population, phones, buffers)
        aggregation: Aggregation
        if masked is None:
            aggregation = strategy.begin(weights, base_sha256, context)
        else:
            aggregation = GridMean(settings, weights, base_sha256, context, masked)
        for arrival in arrivals:
            if any(update.sha256 == arrival.sha256 for update in accepted):
                repeated += 1
                continue
            try:
                if arrival.user in users or len(accepted) == strategy.max_updates:
                    raise InvalidUpdateError("a phone has one update in a round, and a round so many")
                accepted.append(_add(arrival, strategy, aggregation))
                users.add(arrival.user)
            except (WeightsError, UpdateError, InvalidUpdateError) as error:
                refusals.append(f"{arrival.user}: {redact_path(error, arrival.path)}")
        published = None
        if len(accepted) >= strategy.min_updates or settings.private:
            published = make_model(aggregation, accepted, base, next_files, publish, student, average).published
    return ClosedRound(len(accepted), tuple(refusals), repeated, published)


def _add(arrival: Arrival, strategy: Strategy, aggregation: Aggregation) -> ClientUpdate:
    def open_update() -> AbstractContextManager[DecodedUpdate]:
        return decoded_file(aggregation.base, arrival.path, arrival.late_base)

    if isinstance(aggregation, GridMean):
        aggregation.add_file(arrival.path)
        return ClientUpdate(arrival.sha256, 1, {}, open_update)
    with UpdateFile(arrival.path) as update:
        if arrival.late_base is None:
            update.check_base(aggregation.base_sha256)
        weight = strategy.weight(update.info)
    with open_update() as source:
        measures = aggregation.take(source, weight)
    return ClientUpdate(arrival.sha256, weight, measures, open_update)
