"""Seconds and memory of the fold at full size, for few and for many phones."""

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.measuring import in_fresh_process, peak_rss_bytes
from device_runtime.tensor_file import TensorFile, save_tensors, write_tensor_file
from device_runtime.update_file import UpdateFile, UpdateInfo, write_update
from export.presets import preset_named
from export.torch_layout import seeded_weights
from server_agg.fold import Fold


@dataclass(frozen=True)
class AggregateBench:
    """One run of the fold: seconds per update (median), seconds to write the average, peak memory of the process."""

    codec: str
    updates: int
    update_bytes: int
    seconds_per_update: float
    seconds_to_write: float
    peak_rss_bytes: int


def bench_aggregate(preset: str, counts: tuple[int, ...], codecs: tuple[str, ...]) -> list[AggregateBench]:
    """Fold the same update again and again, each run in a process of its own. Raises ArtifactsError, StorageError."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        in_fresh_process(_make_updates, folder, preset, codecs)
        return [in_fresh_process(_measure, folder, codec, count) for codec in codecs for count in counts]


def _make_updates(folder: Path, preset: str, codecs: tuple[str, ...]) -> None:
    """A base, and an update in each codec: every weight moves, but of the embedding only one row in ten."""
    weights = seeded_weights(preset_named(preset).model, 0)
    base = save_tensors(folder / "base", weights)
    random = np.random.default_rng(0)
    for name, array in weights.items():
        moved = array[::10] if name == "embedding.weight" else array
        moved += random.normal(scale=1e-3, size=moved.shape).astype(np.float32)
    with TensorFile(folder / "base") as base_file:
        for codec in codecs:
            write_update(folder / codec, base_file, weights, UpdateInfo(base.sha256, 1, 4000, codec, 0))


def _measure(folder: Path, codec: str, count: int) -> AggregateBench:
    seconds = []
    with TensorFile(folder / "base") as base, UpdateFile(folder / codec) as update:
        fold = Fold(base, update.info.base_sha256)
        for _ in range(count):
            began = time.perf_counter()
            fold.accumulate(update, update.info.tokens)
            seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        write_tensor_file(folder / "average", base.specs.values(), fold.finish(), {})
        to_write = time.perf_counter() - began
    nbytes = (folder / codec).stat().st_size
    return AggregateBench(codec, count, nbytes, statistics.median(seconds), to_write, peak_rss_bytes())
