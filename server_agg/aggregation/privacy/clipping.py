"""Clipping a phone's delta to a norm, as factors for its tensors."""

import math
from collections.abc import Mapping

# A norm is summed in float64 and its product with a delta is rounded once more: clipping to a billionth less than asked
# keeps what comes out below the bound whatever those roundings do.
CLIP_MARGIN = 1 - 2.0**-30


def clip_scales(norms: Mapping[str, float], clip_norm: float, per_layer: bool) -> dict[str, float]:
    """Each tensor's factor, at most 1, so that the L2 norm of all tensors together is at most `clip_norm`.

    norms: each tensor's L2 norm. Flat (paper M, section 2): min(1, S / norm of all). Per layer: min(1, S_l / its norm),
    S_l = S/sqrt(m), m tensors.
    """
    if per_layer:
        limit = clip_norm / math.sqrt(len(norms))
        return {name: _factor(norm, limit) for name, norm in norms.items()}
    return dict.fromkeys(norms, _factor(math.sqrt(math.fsum(norm * norm for norm in norms.values())), clip_norm))


def scaled_reach(norms: Mapping[str, float], scales: Mapping[str, float]) -> float:
    """A bound on every |scaled delta|: no element is larger than its tensor's norm."""
    return max((norm * scales[name] for name, norm in norms.items()), default=0.0)


def _factor(norm: float, limit: float) -> float:
    return 1.0 if norm <= limit * CLIP_MARGIN else limit * CLIP_MARGIN / norm
