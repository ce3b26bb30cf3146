"""Whether a torch module computes what its tensors do as an LSTM or GRU, and nothing more in its forward."""

import copy
from typing import Any

import torch

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.export.model_file import OwnModel, described
from phonograd.export.torch_model import LanguageModel

T, B = 7, 3
# Of log-probabilities, which float32 rounds by some 1e-6, and of their standard deviation.
ROUNDING, TOLERANCE = 5e-5, 1e-3


def check_forward(module: torch.nn.Module, found: OwnModel) -> str | None:
    """Run `module` and the model that was read from its tensors on T x B random tokens, from zero states.

    Forward takes tokens int64 [T, B] ([B, T] if a recurrent layer of it is batch_first), and `init_hidden(B)` if it
    wants a state; its answer, or the first of it, is scores [T, B, V] or [T·B, V]. Returns a remark if forward is
    another one, so that nothing was compared. Raises WeightsError if the log-probabilities differ.
    """
    V = found.config.vocabulary
    tokens = torch.randint(0, V, (T, B), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        theirs = _scores(copy.deepcopy(module).float().cpu().eval(), tokens, V)
    if theirs is None:
        return "its forward was not compared: it takes other arguments than tokens [T, B], or gives no scores [T, B, V]"
    ours = LanguageModel(found.config)
    ours.load(found.weights)
    with torch.no_grad():
        expected = ours(tokens, ours.zero_state(B))[0].log_softmax(-1)
    allowed = ROUNDING + TOLERANCE * float(expected.std())
    apart = float((theirs.log_softmax(-1) - expected).abs().max())
    if not apart <= allowed:
        raise WeightsError(
            f"model: its forward computes something else than its tensors as {described(found.config)}: "
            f"log-probabilities of {T * B} random tokens differ by up to {apart:.3g}, {allowed:.2g} allowed; phones "
            "train embedding, recurrent layers and output layer alone: leave out what is more, such as scaled "
            "embeddings or a residual, and train again"
        )
    return None


def _scores(module: torch.nn.Module, tokens: torch.Tensor, V: int) -> torch.Tensor | None:
    """The module's scores [T, B, V]; None if it can't be called as expected."""
    batch_first = any(getattr(part, "batch_first", False) for part in module.modules())
    given = tokens.T.contiguous() if batch_first else tokens
    calls: list[tuple[Any, ...]] = [(given,)]
    initial: Any = getattr(module, "init_hidden", None)
    if callable(initial):
        calls.append((given, initial(B)))
    for arguments in calls:
        try:
            found = module(*arguments)
        except Exception:  # the user's code may raise anything for arguments that it does not expect
            continue
        scores = found[0] if isinstance(found, tuple | list) else found
        if isinstance(scores, torch.Tensor) and scores.numel() == T * B * V and scores.shape[-1] == V:
            scores = scores.reshape(*given.shape, V)
            return scores.transpose(0, 1) if batch_first else scores
    return None
