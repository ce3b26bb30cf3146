"""Trains virtual phones in batches by PyTorch, on the windows, draws and samples of the native engine."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from phonograd.device_runtime.base.errors import MissingExtraError, OutOfMemoryError, TrainingError, UnsupportedError
from phonograd.device_runtime.formats.manifest import TRAINING_MODEL, TRAINING_MODEL_SAMPLED, Artifacts
from phonograd.device_runtime.training.report import OutputLayer, require_converging
from phonograd.simulation.phone import PhoneJob, PhoneResult, PreparedPhone, VirtualPhone
from phonograd.simulation.settings import Device, SimulationSettings

try:
    import torch

    from phonograd.simulation.batched.batch import Base, Batch, dropout_nodes
except ImportError as error:
    raise MissingExtraError(
        f"backend torch needs PyTorch ({error}); install it with: pip install 'phonograd[export]'"
    ) from error

PER_BATCH: dict[Device, int] = {"cpu": 1, "cuda": 16}


class BatchedPhones:
    """Trains jobs, `phones_per_batch` at a time, and writes their updates. threads: of the CPU.

    Raises UnsupportedError without the device, or for a loss that only the native engine knows.
    """

    def __init__(self, phone: VirtualPhone, artifacts: Artifacts, settings: SimulationSettings, threads: int):
        self._phone, self._manifest, self._settings, self._threads = phone, artifacts.manifest, settings, threads
        self._device = _device_of(settings.device)
        training = self._manifest.training
        if training.loss not in ("ce", "lwf"):
            raise UnsupportedError(f"loss {training.loss}: backend torch trains ce and lwf; use backend native")
        self._rate = training.learning_rate if settings.learning_rate is None else settings.learning_rate
        graph = artifacts.path(TRAINING_MODEL if settings.output_sample is None else TRAINING_MODEL_SAMPLED)
        self._dropout_nodes = dropout_nodes(graph) if training.dropout else []
        self._base: Base | None = None

    def train(self, jobs: Iterable[PhoneJob]) -> Iterator[PhoneResult]:
        """Train the phones; results come batch by batch. Raises what `VirtualPhone.train` raises, OutOfMemoryError."""
        torch.set_num_threads(self._threads)
        left = iter(jobs)
        size = self._settings.phones_per_batch or PER_BATCH[self._settings.device]
        with ThreadPoolExecutor(self._threads) as writers:
            while batch := list(islice(left, size)):
                with torch.no_grad(), _no_memory_is_an_error(size):
                    results = self._train_batch(batch, writers)
                yield from results

    def _train_batch(self, jobs: Sequence[PhoneJob], writers: ThreadPoolExecutor) -> list[PhoneResult]:
        prepared = [self._phone.prepare(job) for job in jobs]
        began = time.perf_counter()
        base = self._loaded(jobs[0])
        batch = Batch(self._manifest, base, prepared, self._settings.epochs, self._rate, self._dropout_nodes)
        losses = batch.run()
        seconds = (time.perf_counter() - began) / len(jobs)

        def result(place: int) -> PhoneResult:
            return self._result(batch, place, prepared[place], losses[place], seconds)

        return list(writers.map(result, range(len(jobs))))

    def _result(
        self, batch: Batch, place: int, prepared: PreparedPhone, losses: Sequence[float], seconds: float
    ) -> PhoneResult:
        sample = prepared.sample
        words = self._manifest.model.vocabulary if sample is None else len(sample)
        layer = OutputLayer("full" if sample is None else "sampled", words)
        try:
            for step, loss in enumerate(losses, 1):
                require_converging(loss, step, layer, self._rate)
        except TrainingError as error:
            return PhoneResult(prepared.job.user, diverged=str(error))
        return self._phone.finish(prepared, batch.trained(place), losses, seconds)

    def _loaded(self, job: PhoneJob) -> Base:
        if self._base is None or self._base.sha256 != job.base_sha256:
            self._base = None  # frees the former one first
            self._base = Base.load(job.base, job.base_sha256, self._device)
        return self._base


def _device_of(device: Device) -> torch.device:
    if device == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError(
            f"device cuda: torch {torch.__version__} finds no CUDA device; use device cpu, or a machine with a GPU and "
            "a build of torch for CUDA"
        )
    return torch.device(device)


@contextlib.contextmanager
def _no_memory_is_an_error(phones: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "allocate memory" not in str(error):  # the CPU's
            raise
        raise OutOfMemoryError(
            f"no memory to train {phones} phones at once; use fewer `phones_per_batch`; run the same command to resume"
        ) from error
