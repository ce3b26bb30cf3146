"""A pre-training run on disk: its record, the weights that it goes on from, and the best weights."""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import asdict

from phonograd.device_runtime.base.documents import Count, FieldError, Record, Sha256, document_of, parse, read
from phonograd.device_runtime.base.errors import StateError, StorageError, WeightsError
from phonograd.device_runtime.base.files import lock_file, read_bytes, sha256_of_file, storage_errors, write_bytes
from phonograd.device_runtime.formats.manifest import VOCABULARY
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, save_tensors
from phonograd.export.pretrain_config import Perplexities, PretrainPoint
from phonograd.export.pretrain_trainer import Job
from phonograd.export.torch_layout import VOCABULARY_SHA256, vocabulary_sha256

RECORD, LOCK = "pretrain.json", ".lock"
# Settings that may differ when a run is resumed: they do not change what a step computes.
FREE_SETTINGS = ("epochs", "max_steps", "threads", "evaluate_every", "device", "checkpoint_steps")


def run_identity(job: Job) -> dict[str, str]:
    """What makes a run this run and no other, by name; kept in its record and in the metadata of its best weights."""
    settings = {name: value for name, value in asdict(job.config).items() if name not in FREE_SETTINGS}
    return {
        **{name: str(value) for name, value in (document_of(job.model) | settings).items()},
        VOCABULARY_SHA256: vocabulary_sha256(job.vocabulary),
        # Its counts decide which words are drawn.
        "teacher_sha256": "none" if job.teacher is None else job.teacher.weights_sha256,
        "teacher_vocabulary_sha256": "none" if job.teacher is None else job.teacher.manifest.files[VOCABULARY].sha256,
        "training_sha256": hashlib.sha256(job.corpus.training.tobytes()).hexdigest(),
        "validation_sha256": hashlib.sha256(b"\n".join(job.corpus.validation)).hexdigest(),
    }


class RunRecord(Record, frozen=True):
    """How far a run is: `sha256` is that of the weights after `steps` steps; None before the first.

    The curve may end later: a run that `max_steps` ended within a part goes on from the part before. diverged: the
    steps at which it diverged and went back.
    """

    identity: dict[str, str]
    steps: Count = 0
    sha256: Sha256 | None = None
    curve: tuple[PretrainPoint, ...] = ()
    diverged: tuple[Count, ...] = ()


class PretrainState:
    """A run's record, and its folder, made if missing and locked until `close`; without one, nothing is saved.

    Raises StorageError for a folder that holds something else, StateError for one that is in use, damaged or another
    run's, and if the best weights so far are no longer at `out`.
    """

    def __init__(self, folder: Path | None, identity: Mapping[str, str], out: Path):
        self.folder, self.out, self._lock = folder, out, -1
        self.record = RunRecord(dict(identity))
        if folder is None:
            return
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / RECORD).exists() and (odd := [one.name for one in folder.iterdir() if one.name != LOCK]):
                raise StorageError(
                    f"{folder}: an empty folder or none expected, as files in it will be removed, found {odd[0]}; "
                    "choose another place"
                )
            self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._claim(folder)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the folder."""
        if self._lock >= 0:
            os.close(self._lock)

    @property
    def steps(self) -> int:
        """Steps done: those that the saved weights hold."""
        return self.record.steps

    @property
    def evaluated(self) -> int:
        """Steps at the last evaluation, 0 before the first."""
        return self.record.curve[-1].steps if self.record.curve else 0

    @property
    def best(self) -> PretrainPoint:
        """The evaluation of the best weights: the lowest perplexity, unknown words counted."""
        return min(self.record.curve, key=lambda point: point.perplexity_with_unknown)

    @property
    def slowed(self) -> float:
        """Factor on the learning rate: a half for each time that the run diverged."""
        return float(0.5 ** len(self.record.diverged))

    def weights(self, steps: int) -> Path:
        """The tensor file of the weights after so many steps. Only for a state with a folder."""
        assert self.folder is not None
        return self.folder / f"{steps}.safetensors"

    def advance(self, steps: int, sha256: str) -> None:
        """The weights after `steps` are at their place: record that, and remove all others. Raises StorageError."""
        self._save(msgspec.structs.replace(self.record, steps=steps, sha256=sha256))
        self._tidy()

    def go_back(self, diverged: int, steps: int, sha256: str | None) -> None:
        """Record that the run diverged after `diverged` steps and goes on from `steps`, with weights that are at their
        place, or the first ones; what was evaluated after the best is forgotten. Raises StorageError.
        """
        kept = self.record.curve.index(self.best) + 1 if self.record.curve else 0
        self._save(
            msgspec.structs.replace(
                self.record,
                steps=0 if self.folder is None else steps,
                sha256=sha256,
                curve=self.record.curve[:kept],
                diverged=(*self.record.diverged, diverged),
            )
        )
        self._tidy()

    def _tidy(self) -> None:
        """Remove all weights but those that the run goes on from."""
        for path in self.folder.glob("*.safetensors") if self.folder is not None else ():
            if path.stem.isdecimal() and int(path.stem) != self.steps:
                path.unlink()

    def add(self, found: Perplexities, steps: int, tokens: int, weights: Callable[[], Mapping[str, Array]]) -> None:
        """Record an evaluation, and keep the weights, canonical, if they are the best. Raises StorageError."""
        point = PretrainPoint(steps, tokens, *found)
        record = msgspec.structs.replace(self.record, curve=(*self.record.curve, point))
        if not self.record.curve or found.with_unknown < self.best.perplexity_with_unknown:
            told = {
                "validation_perplexity": repr(found.without_unknown),
                "validation_perplexity_with_unknown": repr(found.with_unknown),
                "steps": str(steps),
            }
            save_tensors(self.out, weights(), record.identity | told)
        self._save(record)

    def _save(self, record: RunRecord) -> None:
        if self.folder is not None:
            write_bytes(self.folder / RECORD, msgspec.json.format(msgspec.json.encode(document_of(record))) + b"\n")
        self.record = record

    def _claim(self, folder: Path) -> None:
        try:
            lock_file(self._lock)
        except OSError as error:
            raise StateError(f"{folder}: another run is training in it; wait for it, or choose another one") from error
        path = folder / RECORD
        if not path.exists():
            self._save(self.record)  # from here on, all that the folder holds is this run's
            return
        try:
            found = read(RunRecord, parse(read_bytes(path)))
        except (OSError, FieldError) as error:
            raise StateError(f"{path}: damaged ({error}); choose an empty folder to start over") from error
        _check_identity(path, found.identity, self.record.identity)
        self.record = found
        if found.sha256 is not None:
            _check_hash(self.weights(found.steps), found.sha256)
        if found.curve:
            _check_best(self.out, found.identity)


def _check_identity(path: Path, stored: Mapping[str, str], expected: Mapping[str, str]) -> None:
    for name, value in expected.items():
        if stored.get(name) != value:
            raise StateError(
                f"{path}: made by a run with {name} {stored.get(name)}, this one has {value}; "
                "repeat that run's settings, or choose an empty folder to start over"
            )


def _check_hash(path: Path, expected: str) -> None:
    try:
        found = sha256_of_file(path)
    except OSError as error:
        found = str(error.strerror)
    if found != expected:
        raise StateError(f"{path}: SHA-256 {expected} expected, found {found}; choose an empty folder to start over")


def _check_best(path: Path, identity: Mapping[str, str]) -> None:
    try:
        with TensorFile(path) as file:
            _check_identity(path, file.metadata, identity)
    except WeightsError as error:
        raise StateError(
            f"{path}: the best weights of the run to resume were written there and cannot be read ({error}); "
            "put them back, or choose an empty folder to start over"
        ) from error
