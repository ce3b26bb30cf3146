"""The settings of all strategies, with their defaults. The ledger stores them with each round."""

import json
import re
from typing import Annotated, Literal

from msgspec import Meta

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Count, FromZero, Settings, Share, as_dict, fields_of
from phonograd.device_runtime.client.protocol import ONE_STEP_STRATEGIES

OWN_NAME = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")  # MODULE:CLASS
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
Weighting = Literal["tokens", "equal"]
ServerOptimizer = Literal["none", "momentum", "adam"]
AttentionNorm = Literal["1", "2", "inf"]
Estimator = Literal["fixed", "clipped"]
LARGE = 1e6  # for factors of deltas: far above useful values, far below float32's maximum
Factor = Annotated[float, Meta(gt=0, le=LARGE)]
Amount = Annotated[float, Meta(ge=0, le=LARGE)]
Norm = Annotated[float, Meta(ge=1e-6, le=LARGE)]
Momentum = Annotated[float, Meta(ge=0, lt=1)]
Rounds = Annotated[int, Meta(ge=1, le=10_000)]


class StrategySettings(Settings, frozen=True):
    """How a round's updates become the next model. Settings of other strategies are ignored.

    The settings of dp-fedavg and dp-fedsgd are paper M's, those of fedatt paper J's.

    Raises ValueError for a setting out of range, naming it.
    """

    strategy: Annotated[
        str,
        about(
            f"How updates are averaged: {', '.join(STRATEGIES)}; or MODULE:CLASS of your own "
            "(phonograd docs strategies)."
        ),
    ] = "fedavg"
    weighting: Annotated[Weighting, about("An update's weight in the average; paper P: equal.")] = "tokens"
    max_tokens: Annotated[
        Count, about("Most tokens that an update may claim. The claim is its weight and cannot be verified.")
    ] = 10_000_000
    own: Annotated[str, about("Settings of a custom strategy, as JSON.")] = ""

    server_optimizer: Annotated[
        ServerOptimizer,
        about("Server optimizer that applies the averaged delta: none, FedAvgM, or FedAdam of Reddi et al."),
    ] = "none"
    server_lr: Annotated[Factor, about("Its learning rate.")] = 1.0
    momentum: Annotated[Momentum, about("Of the velocity.")] = 0.9
    beta1: Annotated[Momentum, about("Of the first moment.")] = 0.9
    beta2: Annotated[Momentum, about("Of the second moment.")] = 0.99
    adam_epsilon: Annotated[float, Meta(ge=1e-12, le=LARGE), about("Reddi et al.'s tau.")] = 1e-3

    attention_step: Annotated[Factor, about("Paper J's epsilon.")] = 1.2
    attention_norm: Annotated[AttentionNorm, about("p of the distance.")] = "2"
    attention_noise: Annotated[Amount, about("beta x sigma.")] = 0.0

    trim_share: Annotated[float, Meta(ge=0, lt=0.5), about("Share of values dropped at each end.")] = 0.1
    krum_byzantine: Annotated[FromZero, about("Hostile updates to tolerate: f of Blanchard et al.")] = 1
    krum_selected: Annotated[FromZero, about("Updates to average; 0: all but the hostile ones.")] = 0
    norm_bound: Annotated[Norm, about("Largest L2 norm of a delta: M of Sun et al.")] = 15.0

    clip_norm: Annotated[Norm, about("S, largest L2 norm of a delta.")] = 15.0
    per_layer: Annotated[bool, about("Clip each of m tensors to S/sqrt(m).")] = False
    adaptive_clip: Annotated[
        float | None,
        Meta(ge=0.01, le=0.99),
        about("The quantile of the phones' norms that S follows, from round to round.  [default: S stays]"),
    ] = None
    estimator: Annotated[
        Estimator, about("f_f or f_c of paper M: divide by qW, or by max(qW_min, the sum of weights).")
    ] = "fixed"
    min_share: Annotated[Share, about("W_min / W, with estimator clipped.")] = 0.5
    noise_multiplier: Annotated[Amount, about("z; of dp-ftrl, for the whole run. 0: no noise and no privacy.")] = 1.0
    sampling: Annotated[float, Meta(ge=1e-9, le=1), about("q, each phone's sampling probability.")] = 0.01
    population: Annotated[Count, about("Enrolled phones needed before a round samples any.")] = 1
    token_cap: Annotated[Count | None, about("Tokens at which a phone has weight 1.  [default: all weigh 1]")] = None
    mean_weight: Annotated[
        float, Meta(ge=1e-6, le=1), about("W / N; of dp-ftrl, a public guess of the phones' mean weight.")
    ] = 1.0
    delta: Annotated[float, Meta(ge=1e-30, lt=1), about("Delta of the guarantee.")] = 1e-9
    epsilon_budget: Annotated[
        Factor | None, about("Stop before a round exceeds this epsilon, of all rounds together.  [default: no limit]")
    ] = None

    planned_rounds: Annotated[Rounds, about("n, rounds of the whole run, fixed before the first.")] = 1000
    min_separation: Annotated[
        Rounds, about("b, rounds from one participation of a phone to its next, at least; 1: each round.")
    ] = 100
    max_participations: Annotated[Rounds, about("k, of a phone in the whole run, at most.")] = 10
    noise_buffers: Annotated[int, Meta(ge=1, le=6), about("Buffers of the model's size that the noise keeps.")] = 4

    def check_together(self) -> None:
        """Raise ValueError for an unknown strategy, and for settings that do not go together."""
        self.require("strategy", self.strategy in STRATEGIES or self.is_own, f"one of {', '.join(STRATEGIES)}")
        adaptive = self.adaptive_clip is not None
        self.require(
            "per_layer", not (adaptive and self.per_layer), "False with `adaptive_clip`, a quantile of the flat norm"
        )
        correlated = self.strategy == FTRL
        self.require(
            "adaptive_clip", not (adaptive and correlated), f"none for {FTRL}: its noise is of one bound, in all rounds"
        )

    @property
    def is_own(self) -> bool:
        """Whether the strategy is a custom class, MODULE:CLASS."""
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
        return json.dumps(as_dict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "StrategySettings":
        """Parse the output of `to_json`; missing settings get their defaults. Raises ValueError."""
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"strategy settings: not JSON: {error}") from error
        if not isinstance(document, dict):
            raise ValueError(f"strategy settings: expected a JSON object, found {type(document).__name__}")
        unknown = sorted(set(document) - fields_of(cls).keys())
        if unknown:
            raise ValueError(f"strategy settings: {unknown[0]!r} is unknown; was it written by a newer version?")
        return cls(**document)
