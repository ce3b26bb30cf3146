"""The rules of a round: how many phones, its deadline, what happens to late updates, and how it publishes its model."""

import json
from typing import Annotated, Literal

from msgspec import Meta

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Count, Settings, as_dict
from phonograd.device_runtime.update.links import LinkCodec, PublishBits
from phonograd.server_agg.aggregation.publishing import Publish

Late = Literal["drop", "next"]
MAX_DEADLINE_SECONDS = 1e9  # 30 years: still a valid date


class RoundRules(Settings, frozen=True):
    """The rules of a round. The ledger stores them with the round, so that a restart keeps them.

    Raises ValueError for a rule out of range.
    """

    clients_per_round: Annotated[Count, about("Accepted updates that close a round; paper P's K: 10.")] = 10
    min_clients: Annotated[
        Count, about("Fewest updates with which a deadline closes a round; with fewer it stays open until it has them.")
    ] = 1
    max_clients: Annotated[
        Count | None, about("Most phones that take part at once, for phones that drop out.  [default: no limit]")
    ] = None
    deadline_seconds: Annotated[
        float | None,
        Meta(gt=0, le=MAX_DEADLINE_SECONDS),
        about("Also close a round after this time.  [default: never]"),
    ] = None
    late: Annotated[Late, about("Late updates: drop them, or add them to the next round.")] = "drop"
    deploy_every: Annotated[
        Count, about("Rounds after which phones get a model, the mean of what these rounds made; paper P's N.")
    ] = 1
    publish: Annotated[
        LinkCodec,
        about("Codec of the link from the last model to the next; top-rows is lossy (phonograd docs server)."),
    ] = "rows-f32"
    publish_rows: Annotated[Count, about("top-rows: rows of largest change to publish.")] = 5000
    publish_bits: Annotated[PublishBits, about("top-rows: bits a weight.")] = 4

    def check_together(self) -> None:
        """Raise ValueError for numbers of phones that do not go together."""
        phones = self.clients_per_round
        self.require("min_clients", self.min_clients <= phones, f"1 to `clients_per_round` ({phones})")
        most = self.max_clients
        self.require("max_clients", most is None or most >= phones, f"at least `clients_per_round` ({phones})")

    @property
    def how_published(self) -> Publish:
        """How the round publishes its model."""
        return Publish(self.publish, self.publish_rows, self.publish_bits)

    def to_json(self) -> str:
        """The rules as JSON, as the ledger keeps them."""
        return json.dumps(as_dict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "RoundRules":
        """Parse the output of `to_json`. Raises ValueError or TypeError for anything else."""
        return cls(**json.loads(text))
