"""Trains a round's next model from its updates, resumably."""

import contextlib
import hashlib
import json
import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import asdict

from phonograd.device_runtime.base.errors import StoppedError, TrainingError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file, storage_errors, write_bytes
from phonograd.device_runtime.base.random_words import stream_of
from phonograd.device_runtime.base.system import usable_cores
from phonograd.device_runtime.engine.backend import IGNORED, MAX_THREADS, BackendOptions, Window
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.frozen import frozen_in, frozen_metadata
from phonograd.device_runtime.formats.manifest import (
    OPTIMIZER_MODEL,
    TEACHER_PREFIX,
    TEACHER_PROBS,
    TRAINING_MODEL_DISTILL,
    VOCABULARY,
    Artifacts,
)
from phonograd.device_runtime.formats.tensor_file import TensorFile, WrittenFile, check_finite, write_tensor_file
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary
from phonograd.device_runtime.text.windows import windows
from phonograd.server_agg.aggregation.strategy import ClientUpdate, sorted_by_hash
from phonograd.server_agg.transfer.settings import TransferSettings
from phonograd.server_agg.transfer.teachers import Predictions, to_probabilities, write_teacher
from phonograd.server_agg.transfer.text import drawn_text, generated_text, require_window

# Training has diverged if the loss is this many times that of a uniform guess.
DIVERGENCE = 10.0
# Of the predictions on disk. Longer texts are cut into parts, each with zero states at its start.
PREDICTIONS_BYTES = 2 << 30
# Work files.
JOB, STUDENT, TEACHER, PREDICTIONS = "job.json", "student.safetensors", "teacher.safetensors", "predictions"
PARTS = "parts"  # metadata of the student: parts it has been trained on
# Called with (windows done, windows in all): those that a teacher has predicted, and those trained.
Progress = Callable[[int, int], None]


def transfer(
    artifacts: Artifacts,
    base_weights: Path,
    updates: Sequence[ClientUpdate],
    settings: TransferSettings,
    general: Sequence[bytes] | None,
    work: Path,
    out: Path,
    metadata: Mapping[str, str],
    progress: Progress | None = None,
    stop: Callable[[], int] | None = None,
    threads: int | None = None,
) -> WrittenFile:
    """Write the model after a round to `out`: the base model, trained on the mean predictions of the updates' models.

    general: messages of the general text, for settings that name one; None for generated text. work: a folder for work
    files, made if missing, up to 2 GiB and two models large. If the same call is repeated after an interruption, it
    continues from the last part of the text that was trained; the caller removes the folder. metadata: added to the
    model's file. threads: None is one a core.
    stop: asked after each window for the number of a signal that asks to end, 0 for none.

    The same base, updates in any order, settings and text give the same bytes, with any number of threads. Raises
    ArtifactsError for a folder without a distillation graph, TextError for a text that does not fill a window,
    WeightsError for a teacher with weights that are not finite, which names the update, TrainingError if training
    diverges, StorageError, StoppedError; ValueError without updates.
    """
    if not updates:
        raise ValueError("a round without updates has no teachers")
    artifacts.require_distill()
    cores = threads or min(usable_cores(), MAX_THREADS)
    return _Transfer(artifacts, base_weights, updates, settings, general, work, cores).run(
        out, metadata, progress or (lambda *_: None), stop or (lambda: 0)
    )


@dataclass(frozen=True)
class _Part:
    """A pass over some consecutive windows of a cycle's text. number: of the part in the text."""

    cycle: int
    epoch: int
    number: int

    @property
    def text(self) -> tuple[int, int]:
        return self.cycle, self.number


class _Transfer:
    def __init__(
        self,
        artifacts: Artifacts,
        base_weights: Path,
        updates: Sequence[ClientUpdate],
        settings: TransferSettings,
        general: Sequence[bytes] | None,
        work: Path,
        threads: int,
    ):
        self._artifacts = artifacts
        self._base = base_weights
        self._updates = sorted_by_hash(updates)
        self._settings = settings
        self._general = general
        self._work = work
        self._threads = threads
        self._training = artifacts.manifest.training
        base_sha256 = sha256_of_file(base_weights)
        self._seed = int(base_sha256[:16], 16)
        self._claim(base_sha256)

    def run(self, out: Path, metadata: Mapping[str, str], progress: Progress, stop: Callable[[], int]) -> WrittenFile:
        first = self._windows(0)
        size = self._part_windows
        texts = -(-len(first) // size)
        parts = [
            _Part(cycle, epoch, number)
            for cycle in range(self._settings.transfer_cycles)
            for epoch in range(self._settings.transfer_epochs)
            for number in range(texts)
        ]
        done = self._parts_done()
        self._count = _Count(self._cost(parts, len(first)), self._cost(parts[done:], len(first)), progress, stop)
        cycle, layout = 0, first
        held: tuple[int, int] | None = None
        rows, vocabulary = self._training.bptt * self._training.minibatch, self._artifacts.manifest.model.vocabulary
        with Predictions(self._work / PREDICTIONS, min(size, len(first)), rows, vocabulary) as predictions:
            for place in range(done, len(parts)):
                part = parts[place]
                if part.cycle != cycle:
                    cycle, layout = part.cycle, self._windows(part.cycle)
                own = layout[part.number * size : (part.number + 1) * size]
                if part.text != held:
                    self._predict(own, predictions)
                    held = part.text
                self._train(place, own, predictions)
        with TensorFile(self._base) as base:
            metadata = {**metadata, **frozen_metadata(frozen_in(base), base.specs)}
        with TensorFile(self._work / STUDENT) as student:
            for name in student.specs:
                check_finite("transfer learning", name, student.read(name))
            tensors = (student.read(name) for name in student.specs)
            return write_tensor_file(out, student.specs.values(), tensors, metadata)

    def _predict(self, windows: Sequence[Window], predictions: Predictions) -> None:
        teacher = self._work / TEACHER
        try:
            for number, update in enumerate(self._updates):
                write_teacher(update, self._base, teacher)
                try:
                    backend = NativeBackend(self._artifacts, teacher, BackendOptions(threads=self._threads))
                except WeightsError as error:  # weights too large for the engine
                    raise WeightsError(f"update {update.sha256[:12]}…: {error}; discard it") from error
                with contextlib.closing(backend):
                    self._add_teacher(number, backend, windows, predictions)
        finally:
            teacher.unlink(missing_ok=True)

    def _add_teacher(
        self, number: int, teacher: NativeBackend, windows: Sequence[Window], predictions: Predictions
    ) -> None:
        """Add its share of the teachers' mean probabilities; the first replaces what is there."""
        for place, window in enumerate(windows):
            scores = teacher.logits(window.tokens)
            padding = window.targets.reshape(-1) == IGNORED
            if not to_probabilities(scores, np.where(padding, 0, 1 / len(self._updates)).astype(np.float32)):
                sha256 = self._updates[number].sha256
                raise WeightsError(f"update {sha256[:12]}…: its scores are NaN or infinite; discard it")
            if number > 0:
                scores += predictions.read(place)
            predictions.write(place, scores)
            self._count()

    def _train(self, place: int, windows: Sequence[Window], predictions: Predictions) -> None:
        artifacts, student = self._artifacts, self._work / STUDENT
        rate = self._settings.transfer_lr or self._training.learning_rate
        options = BackendOptions(threads=self._threads, seed=stream_of(self._seed, f"dropout {place}"))
        weights = student if place else self._base
        states = [state for state in artifacts.manifest.states if not state.input.startswith(TEACHER_PREFIX)]
        graphs = artifacts.path(TRAINING_MODEL_DISTILL), artifacts.path(OPTIMIZER_MODEL)
        with NativeGraph(*graphs, weights, options) as graph:
            for number, window in enumerate(windows):
                graph.set("tokens", window.tokens)
                graph.set(TEACHER_PROBS, predictions.read(number))
                graph.run(rate)
                self._check_loss(float(graph.get("loss")), window, rate)
                for state in states:
                    graph.set(state.input, graph.get(state.output))
                self._count()
            with TensorFile(weights) as file:
                specs = list(file.specs.values())
            write_tensor_file(student, specs, (graph.get(spec.name) for spec in specs), {PARTS: str(place + 1)})

    def _check_loss(self, loss: float, window: Window, rate: float) -> None:
        if self._training.loss_reduction == "sum_over_time":
            loss *= self._training.minibatch / window.predictions
        most = DIVERGENCE * math.log(self._artifacts.manifest.model.vocabulary)
        if not loss <= most:  # NaN too
            raise TrainingError(
                f"transfer learning: the loss is {loss:.6g} nats a token, expected {most:.6g} at most (ten times a "
                f"uniform guess); training diverged: lower `transfer_lr` ({rate})"
            )

    def _claim(self, base_sha256: str) -> None:
        """Empty the work folder, unless it is this job's."""
        job = {
            "base": base_sha256,
            "updates": [update.sha256 for update in self._updates],
            "settings": {**asdict(self._settings), "general": _hash_of(self._general or ())},
            "graph": self._artifacts.manifest.files[TRAINING_MODEL_DISTILL].sha256,
            "vocabulary": self._artifacts.manifest.files[VOCABULARY].sha256,
            "predictions_bytes": PREDICTIONS_BYTES,
        }
        text = json.dumps(job, sort_keys=True).encode()
        path = self._work / JOB
        with storage_errors(self._work):
            if path.exists() and path.read_bytes() == text:
                return
            if self._work.exists():
                shutil.rmtree(self._work)
            self._work.mkdir(parents=True)
        write_bytes(path, text)

    def _parts_done(self) -> int:
        try:
            with TensorFile(self._work / STUDENT) as student:
                return int(student.metadata[PARTS])
        except WeightsError:  # not there yet
            return 0

    def _windows(self, cycle: int) -> Sequence[Window]:
        path = self._work / f"text-{cycle}.ids"
        if path.exists():
            ids: Ids = np.frombuffer(path.read_bytes(), "<i8").astype(np.int64)
        else:
            ids = self._text(stream_of(self._seed, f"text {cycle}"))
            write_bytes(path, ids.astype("<i8").tobytes())
        return list(windows(ids, self._training.minibatch, self._training.bptt))

    def _text(self, seed: int) -> Ids:
        tokens = self._settings.transfer_tokens
        if self._general is None:
            options = BackendOptions(threads=self._threads)
            with contextlib.closing(NativeBackend(self._artifacts, self._base, options)) as model:
                ids = generated_text(model, self._artifacts.manifest.model.vocabulary, tokens, seed)
        else:
            ids = drawn_text(self._general, Vocabulary.load(self._artifacts.path(VOCABULARY)), tokens, seed)
        require_window(ids, self._training.minibatch, self._training.bptt)
        return ids

    @property
    def _part_windows(self) -> int:
        window = 4 * self._training.bptt * self._training.minibatch * self._artifacts.manifest.model.vocabulary
        return max(1, PREDICTIONS_BYTES // window)

    def _cost(self, parts: Sequence[_Part], windows: int) -> int:
        total, held = 0, None
        for part in parts:
            own = min(self._part_windows, windows - part.number * self._part_windows)
            total += own * (1 if part.text == held else 1 + len(self._updates))
            held = part.text
        return total


class _Count:
    """Counts windows, reports them, and raises StoppedError once it is asked to."""

    def __init__(self, total: int, left: int, progress: Progress, stop: Callable[[], int]):
        self._total = total
        self._done = max(0, total - left)
        self._progress = progress
        self._stop = stop

    def __call__(self) -> None:
        self._done = min(self._total, self._done + 1)
        self._progress(self._done, self._total)
        if signal := self._stop():
            raise StoppedError("transfer learning was interrupted; the same call continues it", signal)


def _hash_of(messages: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for message in messages:
        digest.update(message + b"\n")
    return digest.hexdigest()
