"""The rules of a round: how many phones, its deadline, what happens to late updates, and how it publishes its model."""

import json
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from phonograd.device_runtime.update.links import LinkCodec
from phonograd.server_agg.aggregation.publishing import Publish

Late = Literal["drop", "next"]
MAX_DEADLINE_SECONDS = 1e9  # 30 years: still a valid date


@dataclass(frozen=True)
class RoundRules:
    """The rules of a round. The ledger stores them with the round, so that a restart keeps them.

    clients_per_round: accepted updates that close the round (paper P's K: 10).
    max_clients: the most phones that may take part, including those still uploading. More than clients_per_round is
        over-selection, for phones that drop out. None: no limit.
    deadline_seconds: the round also closes this long after it opened if it has min_clients accepted updates; with
        fewer it stays open until it has. None: no deadline.
    late: an update of a closed round is refused ("drop"), or its delta is added to the open round ("next").
    publish: the codec of the link from the base to the next model. rows-f32 is lossless; top-rows brings the
        publish_rows rows of largest change, of all matrices together, at publish_bits a weight (1, 2 or 4), and later
        rounds the rest.

    Raises ValueError for a rule out of range.
    """

    clients_per_round: int = 10
    min_clients: int = 1
    max_clients: int | None = None
    deadline_seconds: float | None = None
    late: Late = "drop"
    publish: LinkCodec = Publish.codec
    publish_rows: int = Publish.rows
    publish_bits: int = Publish.bits

    def __post_init__(self) -> None:
        most, deadline = self.max_clients, self.deadline_seconds
        checks = (
            (self.clients_per_round >= 1, f"`clients_per_round` is {self.clients_per_round}, expected at least 1"),
            (
                1 <= self.min_clients <= self.clients_per_round,
                f"`min_clients` is {self.min_clients}, expected 1 to `clients_per_round` ({self.clients_per_round})",
            ),
            (
                most is None or most >= self.clients_per_round,
                f"`max_clients` is {most}, expected at least `clients_per_round` ({self.clients_per_round})",
            ),
            (
                deadline is None or 0 < deadline <= MAX_DEADLINE_SECONDS,
                f"`deadline_seconds` is {deadline}, expected more than 0, at most {MAX_DEADLINE_SECONDS:g}",
            ),
            (self.late in get_args(Late), f"`late` is {self.late!r}, expected one of {', '.join(get_args(Late))}"),
        )
        for good, message in checks:
            if not good:
                raise ValueError(message)
        _ = self.how_published

    @property
    def how_published(self) -> Publish:
        """How the round publishes its model. Raises ValueError for a setting out of range."""
        return Publish(self.publish, self.publish_rows, self.publish_bits)

    def to_json(self) -> str:
        """The rules as JSON, as the ledger keeps them."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "RoundRules":
        """Parse the output of `to_json`. Raises ValueError or TypeError for anything else."""
        return cls(**json.loads(text))
