"""The folder of a simulation: its record, the last models, updates under way.

A round's files are written first and its record last, atomically: a kill costs the running round and nothing else.
"""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from phonograd.device_runtime.base.documents import FieldError, document_of, parse, read
from phonograd.device_runtime.base.errors import StateError, StorageError
from phonograd.device_runtime.base.files import lock_file, require_posix, sha256_of_file, storage_errors, write_bytes
from phonograd.device_runtime.base.settings import as_dict
from phonograd.server_agg.aggregation.next_model import ModelFiles
from phonograd.simulation.records import SimulationRecord
from phonograd.simulation.settings import SimulationSettings

RECORD = "simulation.json"
# A model's file; `half`: of one that a kill left half written.
_MODEL = re.compile(
    r"\.?(?P<round>\d+)(\.(optimizer|link|residual|buffers))?\.safetensors(?P<half>\.[0-9a-f]{8}\.partial)?\Z"
)


class SimulationFolder:
    """A simulation's folder, made if missing; locked until `close`. Raises StorageError, StateError if it is in use."""

    def __init__(self, folder: Path, first: Path):
        require_posix(f"{folder}, a simulation's folder")
        self.folder = folder
        self._first = first
        self._models, self._updates = folder / "models", folder / "updates"
        with storage_errors(folder):
            self._require_own()
            for made in (folder, self._models, self._updates):
                made.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            lock_file(self._lock)
        except OSError as error:
            os.close(self._lock)
            raise StateError(
                f"{folder}: another simulation is running in it; wait for it, or use another one"
            ) from error

    def _require_own(self) -> None:
        """Raise StorageError for a new simulation whose models and updates would lie among what someone else keeps."""
        if (self.folder / RECORD).exists():
            return
        for place in (self._models, self._updates):
            if place.is_dir() and any(place.iterdir()):
                raise StorageError(
                    f"{place}: an empty folder or none expected, as a simulation deletes files in it, found "
                    f"{next(place.iterdir()).name}; choose another place"
                )

    def close(self) -> None:
        """Release the folder."""
        os.close(self._lock)

    def load(self) -> SimulationRecord | None:
        """The record, or None for a new folder. Raises StateError for a damaged one."""
        return read_record(self.folder) if (self.folder / RECORD).exists() else None

    def save(self, record: SimulationRecord) -> None:
        """Write the record: what it names is on disk. Raises StorageError."""
        write_bytes(
            self.folder / RECORD, msgspec.json.format(msgspec.json.encode(document_of(record)), indent=1) + b"\n"
        )

    def model(self, number: int) -> ModelFiles:
        """The files of the model after round `number`; 0 is the exported one."""
        weights = self._models / f"{number}.safetensors" if number else self._first
        others = (
            self._models / f"{number}.{part}.safetensors" for part in ("optimizer", "link", "residual", "buffers")
        )
        return ModelFiles(weights, *others)

    def require_model(self, number: int, sha256: str) -> None:
        """Raise StateError unless the model after a round is whole."""
        path = self.model(number).weights
        try:
            found = sha256_of_file(path)
        except OSError as error:
            raise StateError(f"{path}: cannot be read: {error.strerror}; use a new folder") from error
        if found != sha256:
            raise StateError(f"{path}: SHA-256 {sha256[:12]}… expected, found {found[:12]}…; use a new folder")

    def repeat_model(self, number: int) -> None:
        """Round `number` failed: its model is that of the round before. Raises StorageError."""
        with storage_errors(self._models):
            for before, now in zip(_paths(self.model(number - 1)), _paths(self.model(number)), strict=True):
                now.unlink(missing_ok=True)
                if before.exists():
                    shutil.copyfile(before, now)

    def updates(self, number: int) -> Path:
        """The folder of the updates that phones made in round `number`. Raises StorageError."""
        folder = self._updates / str(number)
        with storage_errors(folder):
            folder.mkdir(exist_ok=True)
        return folder

    def tidy(self, number: int, base: int, folded: Iterable[Path] = ()) -> None:
        """Remove what is not needed after round `number` is on record: older models and updates, and those `folded`.

        base: the round whose model its phones had, which late updates are made from and phones may have still.
        """
        for path in folded:
            path.unlink(missing_ok=True)
        for path in self._models.iterdir():
            match = _MODEL.match(path.name)
            if match and (match["half"] or int(match["round"]) not in (base, number)):
                path.unlink()
        for folder in self._updates.iterdir():
            if folder.name.isdecimal() and int(folder.name) < number:
                shutil.rmtree(folder)


def read_record(folder: Path) -> SimulationRecord:
    """The record of a simulation's folder. Raises StorageError if it is missing, StateError for a damaged one."""
    path = folder / RECORD
    try:
        return read(SimulationRecord, parse(path.read_bytes()))
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}; expected a simulation's folder") from error
    except (FieldError, UnicodeError) as error:
        raise StateError(f"{path}: {error}; use a new folder") from error


def require_same_job(record: SimulationRecord, job: Mapping[str, Any], folder: Path) -> None:
    """Raise StateError, naming the first difference, unless the folder's simulation is this one.

    A setting that the version which wrote the record did not have had its default.
    """
    recorded = {**job_of(SimulationSettings()), **record.job}
    for name in {**recorded, **job}:
        before, now = recorded.get(name), job.get(name)
        if before != now:
            shown = f"`{name}`" if name in SimulationSettings.__struct_fields__ else name
            end = "use another folder" + ("; serve takes another" if name == "deploy_every" else "")
            raise StateError(f"{folder}: holds a simulation with {shown} {before}, found {now}; {end}")


def _paths(files: ModelFiles) -> tuple[Path, ...]:
    """What a round that failed has in common with the one before: all but the link."""
    assert files.optimizer is not None and files.residual is not None and files.buffers is not None
    return files.weights, files.optimizer, files.residual, files.buffers


def job_of(settings: SimulationSettings, **inputs: Any) -> dict[str, Any]:
    """What identifies a simulation: its settings but `rounds`, which may grow, and hashes of its inputs, not paths."""
    document = as_dict(settings)
    del document["rounds"]
    strategy = {f"strategy.{name}": value for name, value in document.pop("strategy").items()}
    transfer = document.pop("transfer")
    del transfer["general"]
    return {**document, **strategy, **transfer, **inputs}
