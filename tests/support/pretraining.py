"""A tiny model to pre-train, in either backend, and what it was told meanwhile."""

import signal
from pathlib import Path
from typing import Any

from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.corpus import Corpus
from phonograd.export.pretrain import pretrain
from phonograd.export.pretrain_config import PretrainConfig, PretrainProgress, PretrainResult

WORDS = Vocabulary((b"<unk>", b"<eos>", b"the", b"cat", b"sat", b"on", b"mat", b"dog", b"ran", b"home"))
MODEL = LanguageModelConfig("lstm", vocabulary=10, embedding=12, hidden=12, layers=2)
SHARED: dict[str, Any] = {"minibatch": 4, "bptt": 5, "epochs": 4, "dropout": 0.2, "seed": 3}
TORCH = PretrainConfig(**SHARED, backend="torch", device="cpu", checkpoint_steps=3)
# Seven steps an epoch: a part of four and one of three. The sample: some of the words that a part lacks.
NATIVE = PretrainConfig(**SHARED, threads=1, part_steps=4, output_sample=1)
MESSAGES = [b"the cat sat on the mat", b"the dog ran home"] * 12  # 12 tokens the pair: 144, 7 windows of 20 and 4 more
CORPUS = Corpus(WORDS.encode(MESSAGES), MESSAGES[:4])


class KilledError(Exception):
    """Raised where a test ends a run at an unforeseen place."""


class Recorder:
    """A progress callback that keeps what it is told; a signal arrives, or the process is killed, after some steps."""

    def __init__(self, signal_after: int | None = None, kill_after: int | None = None):
        self.steps: list[PretrainProgress] = []
        self.evaluations: list[PretrainProgress] = []
        self.signal_after, self.kill_after = signal_after, kill_after

    def __call__(self, progress: PretrainProgress) -> None:
        (self.evaluations if progress.loss is None else self.steps).append(progress)
        if progress.loss is not None and len(self.steps) == self.kill_after:
            raise KilledError

    def stop(self) -> int:
        return signal.SIGTERM if len(self.steps) == self.signal_after else 0

    @property
    def losses(self) -> list[float]:
        return [progress.loss for progress in self.steps if progress.loss is not None]


def run(
    out: Path,
    config: PretrainConfig,
    state: Path | None = None,
    recorder: Recorder | None = None,
    *,
    corpus: Corpus = CORPUS,
    model: LanguageModelConfig = MODEL,
    teacher: Artifacts | None = None,
) -> PretrainResult:
    heard = recorder or Recorder()
    return pretrain(
        *(model, WORDS, corpus, config, out), teacher=teacher, state_folder=state, progress=heard, stop=heard.stop
    )
