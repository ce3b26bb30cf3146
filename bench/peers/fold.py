"""The server's fold: it reads updates from their files a tile at a time and streams the average."""

from collections.abc import Callable, Mapping
from pathlib import Path

from phonograd.bench.environment import version_of
from phonograd.bench.worker import AggregationJob
from phonograd.device_runtime.formats.tensor_file import TensorFile, write_tensor_file
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateFile
from phonograd.server_agg.aggregation.fold import Fold


class FoldAggregator:
    """phonograd's own fold; it reads each update as it is averaged."""

    def __init__(self, job: AggregationJob):
        self._job = job
        self._base = TensorFile(Path(job.base))
        self.versions: Mapping[str, str] = version_of("phonograd")

    def aggregate(self) -> Callable[[Path], object]:
        """Fold every update, then compute every tile of the average."""
        with UpdateFile(Path(self._job.updates[0][0])) as first:
            fold = Fold(self._base, first.info.base_sha256)
        for path, weight in self._job.updates:
            with UpdateFile(Path(path)) as update, DecodedUpdate(update, self._base) as decoded:
                fold.accumulate(decoded, weight)
        for _ in fold.finish():
            pass
        return lambda path: write_tensor_file(path, self._base.specs.values(), fold.finish(), {})


load = FoldAggregator
