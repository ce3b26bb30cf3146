"""How updates become the next model: so far, what each of them weighs in the average."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from device_runtime.update_file import UpdateInfo
from server_agg.refusals import InvalidUpdateError

WEIGHTINGS: Mapping[str, Callable[[UpdateInfo], int]] = {
    "tokens": lambda info: info.tokens,  # McMahan et al.: each token counts the same
    "equal": lambda _: 1,  # each phone counts the same
}


class Strategy(Protocol):
    """Decides an update's weight in the round's average."""

    def weight(self, info: UpdateInfo) -> int:
        """The weight, at least 1. Raises InvalidUpdateError for an update that it will not take."""
        ...


@dataclass(frozen=True)
class FedAvg:
    """Federated averaging: the mean of the updates, weighted by tokens or equal; no claim above `max_tokens`."""

    weighting: str
    max_tokens: int

    def weight(self, info: UpdateInfo) -> int:
        """Tokens, or 1. Raises InvalidUpdateError for more tokens than one phone can have trained."""
        if info.tokens > self.max_tokens:
            raise InvalidUpdateError(
                f"the update claims {info.tokens} tokens, at most {self.max_tokens} accepted; "
                "send what was trained in one round"
            )
        return WEIGHTINGS[self.weighting](info)


def strategy_named(name: str, weighting: str, max_tokens: int) -> Strategy:
    """The strategy of that name. Raises ValueError naming those there are."""
    if name != "fedavg":
        raise ValueError(f"strategy is {name!r}, expected fedavg")
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting is {weighting!r}, expected one of {', '.join(WEIGHTINGS)}")
    return FedAvg(weighting, max_tokens)
