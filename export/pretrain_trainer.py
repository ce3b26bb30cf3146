"""What a backend does in pre-training: train on, evaluate, and save."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.corpus import Corpus
from phonograd.export.pretrain_config import Perplexities, PretrainConfig

# Hears of a step: steps done from the run's beginning, learning rate, loss in nats a token, tokens a second.
Heard = Callable[[int, float, float, float], None]
Stop = Callable[[], int]


@dataclass(frozen=True)
class Job:
    """What is trained, on what, and how."""

    model: LanguageModelConfig
    vocabulary: Vocabulary
    corpus: Corpus
    config: PretrainConfig
    teacher: Artifacts | None = None


class Trainer(Protocol):
    """A model in training, at the beginning or where the run's state is."""

    @property
    def windows(self) -> int:
        """Steps of an epoch."""

    def train(self, steps: int, last: int, heard: Heard, stop: Stop) -> int:
        """Train on from `steps` to the next place to save at, `last` at most; returns the steps done.

        `stop` is asked between steps: if it gives a number other than 0, end there, or where this call began.
        """

    def evaluate(self) -> Perplexities:
        """Return the validation text's perplexities."""

    def weights(self) -> Mapping[str, Array]:
        """Canonical float32 weights."""

    def restart(self, steps: int, weights: dict[str, Array]) -> int:
        """Go back to `steps`, with these weights where the state's file is of other steps.

        Returns the steps to go on from: `steps`, or the last place before it that training can go on from.
        """

    def save(self, steps: int) -> str | None:
        """Have all that the next step needs in the state's file of these steps; returns the file's hash.

        None: training can't go on from here, but from the last place that it could.
        """
