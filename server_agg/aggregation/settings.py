"""The settings of all strategies, with their defaults. The ledger stores them with each round."""

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from phonograd.device_runtime.base.own_classes import OWN_NAME
from phonograd.device_runtime.client.protocol import ONE_STEP_STRATEGIES

# Strategies that average the updates' deltas.
AVERAGES = (
    "fedavg",
    "fedsgd",
    "fedatt",
    "median",
    "trimmed-mean",
    "multi-krum",
    "norm-bound",
    "dp-fedavg",
    "dp-fedsgd",
    "dp-ftrl",
)
TRANSFER = "transfer"  # paper P's eq. 4: trains a student on the updates' mean predictions
STRATEGIES = (*AVERAGES, TRANSFER)
SAMPLED_STRATEGIES = ("dp-fedavg", "dp-fedsgd")  # private by a secret sample of phones
FTRL = "dp-ftrl"  # private by correlated noise
PRIVATE_STRATEGIES = (*SAMPLED_STRATEGIES, FTRL)
NORM_STRATEGIES = ("norm-bound", "fedatt", *PRIVATE_STRATEGIES)  # what they do to an update depends on its norm
WEIGHTINGS = ("tokens", "equal")
SERVER_OPTIMIZERS = ("none", "momentum", "adam")
NORMS = ("1", "2", "inf")
ESTIMATORS = ("fixed", "clipped")


@dataclass(frozen=True)
class StrategySettings:
    """How a round's updates become the next model. Settings of other strategies are ignored.

    strategy: one of STRATEGIES, or MODULE:CLASS of one's own (own.py), of which `own` has the settings, as JSON;
    weighting: by `tokens` or `equal` (fedavg, fedsgd, norm-bound, one's own); max_tokens: the most tokens an update may
    claim. The claim is its weight and cannot be verified.

    server_optimizer: how the averaged delta becomes a step: `none` (server_lr x delta), `momentum` (FedAvgM, with
    `momentum`) or `adam` (Reddi et al.'s FedAdam, with beta1, beta2 and adam_epsilon, their tau).

    attention_step, attention_norm, attention_noise: paper J's epsilon, p, and beta x sigma.
    trim_share: the share of values trimmed-mean drops at each end, below 0.5.
    krum_byzantine: hostile updates that multi-krum tolerates (Blanchard et al.'s f); krum_selected: updates that it
    averages (m; 0: all but f).
    norm_bound: the largest L2 norm of a delta under norm-bound (Sun et al.'s M).

    Paper M, for dp-fedavg and dp-fedsgd. clip_norm: S; per_layer: S_l = S/sqrt(m) for each of m tensors in place of S
    for all together; estimator: `fixed` (f_f, divides by qW) or `clipped` (f_c, by max(qW_min, sum of weights));
    min_share: W_min / W; noise_multiplier: z (0: no noise and no privacy); sampling: q, the probability with which each
    phone is sampled; population: phones that must be enrolled before a round samples; token_cap: w-hat, the tokens of a
    phone of weight 1 (None: all weigh 1); adaptive_clip: the quantile of the phones' norms that S follows from round to
    round, starting at clip_norm (None: S stays); mean_weight: W / N, a public guess of the phones' mean weight; delta,
    epsilon_budget: the limit for all rounds together.

    dp-ftrl has clip_norm, per_layer, noise_multiplier (of the whole run), token_cap, mean_weight and delta of these.
    planned_rounds: n, after which it ends; min_separation: b, rounds from one participation of a phone to its next, at
    least (1: each round); max_participations: k, of a phone in the n rounds; noise_buffers: of the model's size, in
    which the noise remembers earlier rounds. All but the delta are fixed before the first round.

    Raises ValueError for a setting out of range, naming it.
    """

    strategy: str = "fedavg"
    weighting: str = "tokens"
    max_tokens: int = 10_000_000
    own: str = ""

    server_optimizer: str = "none"
    server_lr: float = 1.0
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.99
    adam_epsilon: float = 1e-3

    attention_step: float = 1.2
    attention_norm: str = "2"
    attention_noise: float = 0.0

    trim_share: float = 0.1
    krum_byzantine: int = 1
    krum_selected: int = 0
    norm_bound: float = 15.0

    clip_norm: float = 15.0
    per_layer: bool = False
    adaptive_clip: float | None = None
    estimator: str = "fixed"
    min_share: float = 0.5
    noise_multiplier: float = 1.0
    sampling: float = 0.01
    population: int = 1
    token_cap: int | None = None
    mean_weight: float = 1.0
    delta: float = 1e-9
    epsilon_budget: float | None = None

    planned_rounds: int = 1000
    min_separation: int = 100
    max_participations: int = 10
    noise_buffers: int = 4

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_type(field.name, getattr(self, field.name), field.type)
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices and not (name == "strategy" and self.is_own):
                raise ValueError(f"`{name}` is {getattr(self, name)!r}, expected one of {', '.join(choices)}")
        for name, (low, high, expected) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise ValueError(f"`{name}` is {value}, expected {expected}")
        if self.adaptive_clip is not None and self.per_layer:
            raise ValueError("`per_layer` is True, expected False with `adaptive_clip`, a quantile of the flat norm")
        if self.strategy == FTRL and self.adaptive_clip is not None:
            raise ValueError(
                f"`adaptive_clip` is {self.adaptive_clip}, expected none for {FTRL}: its noise is of one bound, in all "
                "rounds"
            )

    @property
    def is_own(self) -> bool:
        """Whether the strategy is one's own, by MODULE:CLASS."""
        return OWN_NAME.fullmatch(self.strategy) is not None

    @property
    def private(self) -> bool:
        """Whether the strategy is differentially private: noise is added, epsilon is spent."""
        return self.strategy in PRIVATE_STRATEGIES

    @property
    def noisy(self) -> bool:
        """Whether it adds noise, from a key of the round's."""
        return self.private or (self.strategy == "fedatt" and self.attention_noise > 0)

    @property
    def sampled(self) -> bool:
        """Whether it is private by a secret sample of phones."""
        return self.strategy in SAMPLED_STRATEGIES

    @property
    def one_step(self) -> bool:
        """Whether the strategy takes only updates of a single step."""
        return self.strategy in ONE_STEP_STRATEGIES

    @property
    def slow(self) -> bool:
        """Whether its next model takes minutes, so that its rounds pass through the state `closing`."""
        return self.strategy == TRANSFER

    def to_json(self) -> str:
        """All settings as a JSON object, keys sorted."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "StrategySettings":
        """Parse the output of `to_json`; missing settings get their defaults. Raises ValueError."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"strategy settings: not JSON: {error}") from error
        if not isinstance(document, dict):
            raise ValueError(f"strategy settings: expected a JSON object, found {type(document).__name__}")
        unknown = sorted(set(document) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"strategy settings: {unknown[0]!r} is unknown; was it written by a newer version?")
        return cls(**document)


_CHOICES = {
    "strategy": STRATEGIES,
    "weighting": WEIGHTINGS,
    "server_optimizer": SERVER_OPTIMIZERS,
    "attention_norm": NORMS,
    "estimator": ESTIMATORS,
}
_TINY = math.ulp(0.0)  # the smallest number above 0
_BELOW_1 = math.nextafter(1.0, 0.0)
_MANY = 10**18 - 1
_LARGE = 1e6  # for factors of deltas: far above useful values, far below float32's maximum
_RANGES: dict[str, tuple[float, float, str]] = {
    "max_tokens": (1, _MANY, "at least 1"),
    "server_lr": (_TINY, _LARGE, "more than 0, at most 1e6"),
    "momentum": (0, _BELOW_1, "at least 0 and below 1"),
    "beta1": (0, _BELOW_1, "at least 0 and below 1"),
    "beta2": (0, _BELOW_1, "at least 0 and below 1"),
    "adam_epsilon": (1e-12, _LARGE, "at least 1e-12"),
    "attention_step": (_TINY, _LARGE, "more than 0, at most 1e6"),
    "attention_noise": (0, _LARGE, "at least 0, at most 1e6"),
    "trim_share": (0, math.nextafter(0.5, 0.0), "at least 0 and below 0.5"),
    "krum_byzantine": (0, _MANY, "at least 0"),
    "krum_selected": (0, _MANY, "at least 0"),
    "norm_bound": (1e-6, _LARGE, "at least 1e-6, at most 1e6"),
    "clip_norm": (1e-6, _LARGE, "at least 1e-6, at most 1e6"),
    "adaptive_clip": (0.01, 0.99, "at least 0.01, at most 0.99"),
    "min_share": (_TINY, 1, "more than 0, at most 1"),
    "noise_multiplier": (0, _LARGE, "at least 0, at most 1e6"),
    "sampling": (1e-9, 1, "at least 1e-9, at most 1"),
    "population": (1, _MANY, "at least 1"),
    "token_cap": (1, _MANY, "at least 1"),
    "mean_weight": (1e-6, 1, "at least 1e-6, at most 1"),
    "delta": (1e-30, _BELOW_1, "at least 1e-30 and below 1"),
    "epsilon_budget": (_TINY, _LARGE, "more than 0"),
    "planned_rounds": (1, 10_000, "at least 1, at most 10000"),
    "min_separation": (1, 10_000, "at least 1, at most 10000"),
    "max_participations": (1, 10_000, "at least 1, at most 10000"),
    "noise_buffers": (1, 6, "at least 1, at most 6"),
}
_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "text"),
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    int | None: ((int, type(None)), "a whole number or none"),
    float: ((int, float), "a number"),
    float | None: ((int, float, type(None)), "a number or none"),
}


def _check_type(name: str, value: object, declared: Any) -> None:
    kinds, expected = _KINDS[declared]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(f"`{name}` is {value!r}, expected {expected}")
