"""A Flower strategy that averages phonograd's updates: a server's rounds, with Flower in place of HTTP and ledger."""

import hashlib
import tempfile
import time
from collections.abc import Iterable, Iterator
from logging import getLogger
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from phonograd.adapters.flower.files import ARRAYS, CONFIG, MODEL, ROUND, UPDATE, bytes_in, file_record, save
from phonograd.device_runtime.base.errors import UpdateError, UsageError
from phonograd.device_runtime.base.files import storage_errors
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, open_artifacts
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.server_agg.aggregation.next_model import ModelFiles
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategies import strategy_of
from phonograd.simulation.server import Arrival, close_round

POLL_SECONDS = 0.2  # between two looks at all phones that have not answered

LOGGER = getLogger("flwr")


class UpdateStrategy(Strategy):  # type: ignore[misc]  # flwr has no types here
    """Rounds whose nodes answer with `train_reply`.

    The model of each round is the one that `phonograd serve` makes of the same updates, to the bit.

    base: what the first round starts from, an artifacts folder or a tensor file; folder: where models go,
    `ROUND.safetensors`. settings: how updates are averaged. clients_per_round: nodes that train in a round, drawn at
    random; a round waits until so many are connected.

    A reply is folded when it comes, and then dropped; one that is not a sound update of the round's model is refused,
    and `refusals` says why. Raises ArtifactsError, WeightsError, StorageError, UsageError for a strategy that needs
    phonograd's own server: a private one, and transfer.
    """

    def __init__(
        self,
        base: Artifacts | str | Path,
        folder: str | Path,
        settings: StrategySettings | None = None,
        *,
        clients_per_round: int = 10,
    ):
        self._settings = settings or StrategySettings()
        if self._settings.private or self._settings.slow:
            raise UsageError(f"strategy {self._settings.strategy}: not available in Flower; use phonograd serve")
        self._folder = Path(folder)
        with storage_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        self._clients = clients_per_round
        self._base = ModelFiles(_weights_of(base))
        with TensorFile(self._base.weights) as weights:
            self._base_sha256 = weights.sha256()
        self.refusals: dict[int, tuple[str, ...]] = {}

    @property
    def model(self) -> Path:
        """The weights after the last round."""
        return self._base.weights

    @property
    def model_sha256(self) -> str:
        """The hash of the model's file."""
        return self._base_sha256

    def start(self, grid: Grid, num_rounds: int = 3, **options: Any) -> Result:
        """Run rounds, the first from the base. options: of `Strategy.start`, such as timeout.

        The arrays in the result, and those that an `evaluate_fn` gets, are the bytes of `model`.
        """
        return super().start(StreamingGrid(grid), file_record(MODEL, self.model), num_rounds, **options)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterator[Message]:
        """The round's model to each of the nodes that were drawn."""
        nodes, _ = sample_nodes(grid, self._clients, self._clients)
        config[ROUND] = server_round
        content = RecordDict({ARRAYS: arrays, CONFIG: config})
        for node in nodes:
            yield Message(content=content, dst_node_id=node, message_type="train")

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Fold each reply when it comes, and write the model. No model without enough sound updates."""
        keep, files = strategy_of(self._settings).aggregation.reads_at_close, self._files(server_round)
        refusals, sizes = list[str](), list[int]()
        with tempfile.TemporaryDirectory(prefix="updates-", dir=self._folder) as place:
            received = _receive(replies, Path(place), keep, refusals, sizes)
            closed = close_round(
                self._settings, server_round, self._base, self._base_sha256, received, files, population=self._clients
            )
        self.refusals[server_round] = (*refusals, *closed.refusals)
        for refusal in self.refusals[server_round]:
            LOGGER.warning("round %s: refused: %s", server_round, refusal)
        metrics = MetricRecord(
            {
                "updates": closed.accepted,
                "refused": len(self.refusals[server_round]),
                "repeated": closed.repeated,
                "update-bytes": sum(sizes),
            }
        )
        if closed.published is None:
            return None, metrics
        self._base, self._base_sha256 = files, closed.published.model.sha256
        return file_record(MODEL, self.model), metrics

    def configure_evaluate(self, *_: object) -> Iterable[Message]:
        """No node evaluates; give `start` an `evaluate_fn`, which can read `model`."""
        return ()

    def aggregate_evaluate(self, *_: object) -> None:
        """See `configure_evaluate`."""

    def summary(self) -> None:
        """Log what the rounds are."""
        LOGGER.info("\t├── %s over %d nodes", self._settings.strategy, self._clients)

    def _files(self, number: int) -> ModelFiles:
        names = f"{number}.safetensors", f"{number}.optimizer.safetensors"
        return ModelFiles(*(self._folder / name for name in names))


def _weights_of(base: Artifacts | str | Path) -> Path:
    if isinstance(base, str | Path):
        if Path(base).is_file():
            return Path(base)
        base = open_artifacts(Path(base))
    return base.path(WEIGHTS)


def _receive(
    replies: Iterable[Message], place: Path, keep: bool, refusals: list[str], sizes: list[int]
) -> Iterator[Arrival]:
    """The updates in replies, each written to a file when it is asked for, which goes when the next one is.

    keep: the files stay, for strategies that read all updates at the close. refusals: gets those of replies without an
    update; sizes: gets the bytes of each update.
    """
    for reply in replies:
        node = f"node {reply.metadata.src_node_id}"
        try:
            data = bytes_in(UPDATE, reply)
        except UpdateError as error:
            refusals.append(f"{node}: {error}")
            continue
        finally:
            del reply  # the next one is pulled before the loop replaces it
        sha256 = hashlib.sha256(data).hexdigest()
        path = place / f"{sha256}.safetensors"
        save(data, path)
        sizes.append(len(data))
        del data
        yield Arrival(node, path, sha256)
        if not keep:
            path.unlink()


class StreamingGrid:
    """A Grid, whose `send_and_receive` sends each message when it is made and yields each reply when it has come.

    Nothing here refers to a reply that was yielded: memory holds one, for any number of nodes.
    """

    def __init__(self, grid: Grid):
        self._grid = grid

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterator[Message]:
        """Replies to the messages, until all have come or `timeout` seconds are over."""
        sent = [identifier for message in messages for identifier in self._grid.push_messages([message])]
        waiting = [identifier for identifier in sent if identifier]  # the others could not be sent
        end = None if timeout is None else time.monotonic() + timeout
        while waiting:
            for identifier in list(waiting):
                replies = list(self._grid.pull_messages([identifier]))
                if replies:
                    waiting.remove(identifier)
                while replies:
                    yield replies.pop()
            if end is not None and time.monotonic() >= end:
                return
            if waiting:
                time.sleep(POLL_SECONDS)
