"""Saved runs of `make bench`, which are pytest-benchmark's JSON, and whether one is slower than another."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from phonograd.android_harness.errors import RegressionError, ReportError
from phonograd.bench.environment import Environment
from phonograd.device_runtime.base.errors import StorageError, UsageError
from phonograd.device_runtime.base.files import read_bytes, storage_errors


class _Machine(Struct):
    environment: Environment


class _Stats(Struct):
    median: Annotated[float, Meta(gt=0)]


class _Benchmark(Struct):
    fullname: str
    stats: _Stats


class SavedRun(Struct):
    """What a comparison reads of a file; pytest-benchmark writes more."""

    machine_info: _Machine
    benchmarks: Annotated[list[_Benchmark], Meta(min_length=1)]

    @property
    def medians(self) -> dict[str, float]:
        """Seconds by the benchmark's name."""
        return {one.fullname: one.stats.median for one in self.benchmarks}


def load_run(path: Path) -> SavedRun:
    """A saved run. Raises StorageError if there is no such file, and ReportError if it is something else."""
    expected = "expected a run that `make bench SAVE=FILE` saved; save one first"
    try:
        return msgspec.json.decode(read_bytes(path), type=SavedRun)
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; {expected}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReportError(f"{path}: {error}; {expected}") from error


def require_apart(save: Path | None, compare: Path | None, max_slowdown: str | None) -> None:
    """Raise UsageError for a run that would replace the one it is compared with, and for a limit without one."""
    if save is not None and save == compare:
        raise UsageError(
            f"SAVE and COMPARE are both {save}: a slower run would replace what it is compared with; use two files"
        )
    if max_slowdown is not None and compare is None:
        raise UsageError("MAX_SLOWDOWN: expected COMPARE=FILE beside it, a saved run to compare with; found none")


def require_replaceable(path: Path) -> None:
    """Raise StorageError if a run saved at `path` would replace anything but a run, or if its folder takes none."""
    if path.exists() or path.is_symlink():
        try:
            load_run(path)
        except (StorageError, ReportError) as error:
            raise StorageError(f"{path}: not replaced, because it is no saved run; choose another name") from error
    with storage_errors(path.parent), TemporaryFile(dir=path.parent):
        pass


def require_same_set(saved: SavedRun, names: Iterable[str], what: str) -> None:
    """Raise ReportError if `saved` has benchmarks that are not among `names`. New ones are not compared."""
    if gone := sorted(saved.medians.keys() - set(names)):
        others = f" and {len(gone) - 1} more" if gone[1:] else ""
        raise ReportError(f"the saved run has {gone[0]}{others}, which {what}; save a run of these benchmarks first")


def require_same_machine(saved: SavedRun, here: Environment) -> None:
    """Raise ReportError if the run was saved on another machine than this one."""
    then, now = (f"{one.cpu} ({one.model}), {one.cores} cores" for one in (saved.machine_info.environment, here))
    if then != now:
        raise ReportError(f"the saved run is of {then}, this machine is {now}; save a run here first")


def ratios_of(saved: SavedRun, now: SavedRun) -> dict[str, float]:
    """Each benchmark's median divided by the saved one. Raises ReportError if `now` lacks a benchmark."""
    require_same_set(saved, now.medians, "was skipped now")
    return {name: now.medians[name] / seconds for name, seconds in saved.medians.items()}


def require_no_slower(ratios: Mapping[str, float], max_slowdown: float) -> None:
    """Raise RegressionError if a benchmark takes longer than saved by more than `max_slowdown` (0.1: 10 %)."""
    slow = [f"{name} takes {ratio:.2f} times as long" for name, ratio in ratios.items() if ratio > 1 + max_slowdown]
    if slow:
        raise RegressionError(f"slower than the saved run by more than {100 * max_slowdown:g} %: {'; '.join(slow)}")
