"""What makes a round: how many phones, until when, and what becomes of those that come late."""

import json
from dataclasses import asdict, dataclass
from typing import Literal, get_args

Late = Literal["drop", "next"]
MAX_DEADLINE_SECONDS = 1e9  # 30 years: a date that can be written


@dataclass(frozen=True)
class RoundRules:
    """The rules of a round; kept with it, so that a restart goes on under the same.

    clients_per_round: accepted updates that close it (paper P's K: 10).
    max_clients: the most phones that take part, updates under way counted: more than clients_per_round is
        over-selection, for phones that drop out. None: no limit.
    deadline_seconds: it also closes this long after it opened, with at least min_clients accepted updates; with fewer
        it waits for them. None: no deadline.
    late: an update that comes after its round closed is refused ("drop"), or what the phone learned is folded into the
        next round ("next").

    Raises ValueError for a rule out of range.
    """

    clients_per_round: int = 10
    min_clients: int = 1
    max_clients: int | None = None
    deadline_seconds: float | None = None
    late: Late = "drop"

    def __post_init__(self) -> None:
        most = self.max_clients
        checks = (
            (self.clients_per_round >= 1, f"clients_per_round is {self.clients_per_round}, expected at least 1"),
            (
                1 <= self.min_clients <= self.clients_per_round,
                f"min_clients is {self.min_clients}, expected 1 to clients_per_round ({self.clients_per_round})",
            ),
            (
                most is None or most >= self.clients_per_round,
                f"max_clients is {most}, expected at least clients_per_round ({self.clients_per_round})",
            ),
            (
                self.deadline_seconds is None or 0 < self.deadline_seconds <= MAX_DEADLINE_SECONDS,
                f"deadline_seconds is {self.deadline_seconds}, expected more than 0, at most {MAX_DEADLINE_SECONDS:g}",
            ),
            (self.late in get_args(Late), f"late is {self.late!r}, expected one of {', '.join(get_args(Late))}"),
        )
        for good, message in checks:
            if not good:
                raise ValueError(message)

    def to_json(self) -> str:
        """The rules as a JSON object."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "RoundRules":
        """What `to_json` wrote. Raises ValueError or TypeError for anything else."""
        return cls(**json.loads(text))
