"""Whether an artifacts folder computes what the model does that it was exported from: on random tokens, on a text."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from phonograd.device_runtime.base.errors import UnsupportedError, UsageError, WeightsError
from phonograd.device_runtime.engine.backend import Backend, BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts
from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.text.evaluation import Evaluation, Scorer, evaluate
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary
from phonograd.export.model_file import ModelOfStateDict, describe_shape
from phonograd.export.torch_model import LanguageModel

T, B, WINDOWS = 7, 3, 2
# Of log-probabilities, which float32 rounds by some 1e-6, and of their standard deviation.
ROUNDING, TOLERANCE = 5e-5, 1e-3
# Of the mean loss over a text, in nats a token: 0.1 % of the perplexity.
MEAN_TOLERANCE = 1e-3
# Hears what the model makes of a text, and what the exported one does.
OnCheck = Callable[[Evaluation, Evaluation], None]


@dataclass
class TorchScorer:
    """A forward of PyTorch as evaluation's Scorer of the exported words.

    forward: takes int64 tokens [T, B], or [B, T] if `batch_first`, and a state if `initial` makes one for B columns;
    gives scores of any of these layouts, or [T·B, V], and the next state behind them. Without `initial` each window
    starts with zero states. rows: of each exported word [V] int64, its row in the forward's scores.
    """

    forward: Callable[..., Any]
    rows: Ids
    name: str = "its forward"
    initial: Callable[[int], Any] | None = None
    batch_first: bool = False
    _state: Any = None

    def reset(self) -> None:
        """See Scorer."""
        self._state = None

    def logits(self, tokens: Ids) -> Floats:
        """See Scorer. Raises ValueError for other scores than expected, and what the forward raises."""
        given = torch.from_numpy(self.rows[tokens])
        given = given.T.contiguous() if self.batch_first else given
        arguments: tuple[Any, ...] = (given,)
        if self.initial is not None:
            arguments = given, self.initial(tokens.shape[1]) if self._state is None else self._state
        with torch.no_grad():
            result = self.forward(*arguments)
        scores, *after = result if isinstance(result, tuple | list) else (result,)
        if self.initial is not None and not after:
            raise ValueError("scores and the next state expected, found scores alone")
        self._state = after[0] if after else None
        words = int(self.rows.max()) + 1
        if not (isinstance(scores, torch.Tensor) and scores.numel() == given.numel() * max(words, scores.shape[-1])):
            shape = list(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
            raise ValueError(f"scores of {words} words for each of {list(given.shape)} tokens expected, found {shape}")
        scores = scores.float().cpu().reshape(*given.shape, -1)
        scores = scores.transpose(0, 1) if self.batch_first else scores
        return np.asarray(scores.reshape(tokens.size, -1)[:, torch.from_numpy(self.rows)].numpy())


@dataclass
class _EachWindow:
    scorer: Scorer

    def reset(self) -> None:
        """See Scorer; `logits` does it."""

    def logits(self, tokens: Ids) -> Floats:
        """See Scorer."""
        self.scorer.reset()
        return self.scorer.logits(tokens)


def torch_scorer(loaded: ModelOfStateDict, given: Callable[..., Any] | None) -> TorchScorer:
    """A module or a function of the user's, to run beside what was read from its tensors; None: these in our module.

    Raises UsageError for one that can't be run with tokens [T, B].
    """
    V = loaded.config.vocabulary
    if given is None:
        model = LanguageModel(loaded.config)
        model.load(loaded.weights)
        return TorchScorer(model.eval(), np.arange(V), "PyTorch with its tensors", model.zero_state)
    rows = np.arange(V) if loaded.rows is None else loaded.rows
    problems = []
    for scorer in _ways_to_call(given, rows):
        try:
            for tokens in _random_tokens(V):
                scorer.logits(tokens)
            return scorer
        except Exception as error:  # the user's code may raise anything for arguments that it does not expect
            problems.append(error)
    raise _not_compared(problems[0]) from problems[0]


def _ways_to_call(given: Callable[..., Any], rows: Ids) -> Iterator[TorchScorer]:
    if not isinstance(given, torch.nn.Module):
        yield TorchScorer(given, rows)
        return
    try:
        module = copy.deepcopy(given).float().cpu().eval()
    except Exception as error:  # a module may hold what can't be copied
        raise _not_compared(error) from error
    batch_first = any(getattr(part, "batch_first", False) for part in module.modules())
    initial: Any = getattr(module, "init_hidden", None)
    if callable(initial):
        yield TorchScorer(module, rows, initial=initial, batch_first=batch_first)
    yield TorchScorer(module, rows, batch_first=batch_first)


def _not_compared(error: Exception) -> UsageError:
    return UsageError(
        "model: its forward can't be compared with the exported model: called with int64 tokens [T, B], scores "
        f"[T, B, V] expected, found {type(error).__name__}: {error}; give as `forward` a function that takes and gives "
        "these, or export the module's state_dict(), which is not compared"
    )


def _random_tokens(V: int) -> Iterator[Ids]:
    random = np.random.default_rng(1)
    for _ in range(WINDOWS):
        yield random.integers(0, V, (T, B))


def check_artifacts(
    theirs: TorchScorer, messages: Sequence[bytes] | None, on_check: OnCheck | None, artifacts: Artifacts
) -> None:
    """Compare the folder with `theirs`: their perplexities of `messages`, if there are some, and random tokens' scores.

    It runs in the native engine for a text, where there is one, and else in ONNX Runtime. Raises WeightsError if they
    differ by more than float32 rounds.
    """
    engine = _engine(artifacts, messages is not None)
    try:
        ours: Scorer = _EachWindow(engine) if theirs.initial is None else engine
        if messages is not None:
            _compare_perplexities(theirs, ours, messages, on_check, artifacts)
        _compare_windows(theirs, ours, artifacts)
    finally:
        engine.close()


def _compare_perplexities(
    theirs: TorchScorer, ours: Scorer, messages: Sequence[bytes], on_check: OnCheck | None, artifacts: Artifacts
) -> None:
    training, words = artifacts.manifest.training, Vocabulary.load(artifacts.path(VOCABULARY))
    expected, actual = (
        evaluate(scorer, words, messages, training.minibatch, training.bptt) for scorer in (theirs, ours)
    )
    if on_check is not None:
        on_check(expected, actual)
    for name in ("perplexity", "perplexity_with_unknown"):
        one, other = getattr(expected, name), getattr(actual, name)
        if one != other and not abs(math.log(one) - math.log(other)) <= MEAN_TOLERANCE:
            raise _differs(theirs, artifacts, f"perplexity {one:.6g}, exported {other:.6g}, 0.1 % apart allowed")


def _engine(artifacts: Artifacts, native: bool) -> Backend:
    if native:
        try:
            return NativeBackend(artifacts, None, BackendOptions())
        except UnsupportedError:
            pass
    from phonograd.device_runtime.engine.ort import OrtBackend  # noqa: PLC0415  # loaded where nothing else can

    return OrtBackend(artifacts, None, BackendOptions())


def _compare_windows(theirs: TorchScorer, ours: Scorer, artifacts: Artifacts) -> None:
    for scorer in (theirs, ours):
        scorer.reset()
    for tokens in _random_tokens(artifacts.manifest.model.vocabulary):
        expected, found = (torch.from_numpy(scorer.logits(tokens)).log_softmax(-1) for scorer in (theirs, ours))
        allowed = ROUNDING + TOLERANCE * float(expected.std())
        apart = float((expected - found).abs().max())
        if not apart <= allowed:
            figures = f"log-probabilities of random tokens differ by up to {apart:.3g}, {allowed:.2g} allowed"
            raise _differs(theirs, artifacts, figures)


def _differs(theirs: TorchScorer, artifacts: Artifacts, figures: str) -> WeightsError:
    return WeightsError(
        f"model: {theirs.name} computes something else than the exported {describe_shape(artifacts.manifest.model)}: "
        f"{figures}; no artifacts were written; phones train embedding, recurrent layers and output layer alone: leave "
        "out what is more, such as scaled embeddings, a residual or a state kept between calls, and train again"
    )
