"""A fold whose shards are summed by Ray's workers and joined in a tree: the same sum as one process's, to the bit."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import ray

from phonograd.adapters.ray.cluster import RETRIES, cluster, result
from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.server_agg.aggregation.fold import Fold
from phonograd.server_agg.aggregation.folding import fold_files
from phonograd.server_agg.aggregation.settings import StrategySettings


def fold_in_ray(
    base: TensorFile, base_sha256: str, updates: Sequence[Path], settings: StrategySettings, workers: int
) -> Fold:
    """The sum of update files, a shard for each worker. base_sha256: the base's hash.

    Ray repeats the work of a worker that is lost; integer sums do not depend on who adds what, or when. Memory is 8
    bytes a parameter in each worker, and twice that for each in Ray's object store. Raises what `fold_files` raises,
    OutOfMemoryError.
    """
    place = base.path.resolve()
    paths = [path.resolve() for path in updates]
    shards = [paths[first::workers] for first in range(min(workers, len(paths)))]
    fold_bytes = 8 * sum(spec.elements for spec in base.specs.values())
    with cluster(workers, 2 * len(shards) * fold_bytes):
        parts = [_fold_shard.remote(place, base_sha256, shard, settings) for shard in shards]
        while len(parts) > 1:
            paired = len(parts) // 2 * 2
            pairs = zip(parts[:paired:2], parts[1:paired:2], strict=True)
            parts = [_merge.remote(place, base_sha256, *pair) for pair in pairs] + parts[paired:]
        return Fold.from_bytes(result(parts[0]).data, base, base_sha256)


@ray.remote(num_cpus=1, max_retries=RETRIES)  # type: ignore[untyped-decorator]
def _fold_shard(place: Path, base_sha256: str, updates: Sequence[Path], settings: StrategySettings) -> Array:
    with TensorFile(place) as base:
        if (found := base.sha256()) != base_sha256:
            raise WeightsError(
                f"{place}: model {base_sha256[:12]}… expected, {found[:12]}… found on a worker; "
                "all machines of the cluster must have the same files"
            )
        return _as_array(fold_files(base, base_sha256, updates, settings))


@ray.remote(num_cpus=1, max_retries=RETRIES)  # type: ignore[untyped-decorator]
def _merge(place: Path, base_sha256: str, one: Array, other: Array) -> Array:
    with TensorFile(place) as base:
        fold = Fold.from_bytes(one.data, base, base_sha256)
        fold.merge(Fold.from_bytes(other.data, base, base_sha256))
        return _as_array(fold)


def _as_array(fold: Fold) -> Array:
    """A fold's bytes, U8: Ray's object store shares an array with all processes of a machine, and copies bytes."""
    return np.frombuffer(fold.to_bytes(), np.uint8)
