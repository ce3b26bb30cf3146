"""Interim."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from device_runtime.tensor_file import Array, TensorFile, WrittenFile, write_tensor_file
from device_runtime.update_file import UpdateInfo
from server_agg.fold import Fold, TileSource
from server_agg.refusals import InvalidUpdateError

NOISE_KEY_BYTES = 32
WEIGHTINGS = {"tokens": 0, "equal": 0}


@dataclass(frozen=True)
class StrategySettings:
    strategy: str = "fedavg"
    weighting: str = "tokens"
    max_tokens: int = 10_000_000

    def __post_init__(self) -> None:
        if self.weighting not in WEIGHTINGS:
            raise ValueError(f"weighting is {self.weighting!r}, expected one of tokens, equal")
        if self.strategy != "fedavg":
            raise ValueError(f"strategy is {self.strategy!r}, expected fedavg")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "StrategySettings":
        return cls(**json.loads(text))


@dataclass(frozen=True)
class RoundContext:
    number: int
    noise_key: bytes
    population: int


@dataclass(frozen=True)
class Member:
    sha256: str
    weight: int
    measures: Mapping[str, float]
    open: Callable[[], AbstractContextManager[TileSource]]


class Aggregation(Protocol):
    def measure(self, update: TileSource) -> dict[str, float]: ...
    def add(self, update: TileSource, weight: int, measures: Mapping[str, float]) -> None: ...
    def deltas(self, members: Sequence[Member]) -> Iterator[Array]: ...


class _Mean:
    def __init__(self, base: TensorFile, sha: str):
        self.fold = Fold(base, sha)

    def measure(self, update: TileSource) -> dict[str, float]:
        self.fold._largest_step(update)
        return {}

    def add(self, update: TileSource, weight: int, measures: Mapping[str, float]) -> None:
        self.fold.accumulate(update, weight)

    def deltas(self, members: Sequence[Member]) -> Iterator[Array]:
        return self.fold.finish()


@dataclass(frozen=True)
class Strategy:
    settings: StrategySettings
    samples: bool = False

    def weight(self, info: UpdateInfo) -> int:
        if info.tokens > self.settings.max_tokens:
            raise InvalidUpdateError(
                f"the update claims {info.tokens} tokens, at most {self.settings.max_tokens} accepted; "
                "send what was trained in one round"
            )
        return info.tokens if self.settings.weighting == "tokens" else 1

    def begin(self, base: TensorFile, base_sha256: str, context: RoundContext) -> Aggregation:
        return _Mean(base, base_sha256)


def make_strategy(settings: StrategySettings) -> Strategy:
    return Strategy(settings)


def write_model(
    strategy: Strategy,
    aggregation: Aggregation,
    members: Sequence[Member],
    base: TensorFile,
    old: TensorFile | None,
    path: Path,
    state: Path,
    metadata: Mapping[str, str],
) -> tuple[WrittenFile, WrittenFile | None]:
    return write_tensor_file(path, base.specs.values(), aggregation.deltas(members), metadata), None
