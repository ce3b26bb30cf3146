"""What is simulated."""

import math
from dataclasses import dataclass, field

from phonograd.device_runtime.engine.backend import Precision
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.update.codecs import DEFAULT_CODEC
from phonograd.device_runtime.update.links import LinkCodec, PublishBits
from phonograd.server_agg.aggregation.publishing import Publish
from phonograd.server_agg.aggregation.settings import FTRL, StrategySettings
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.rules import Late, RoundRules
from phonograd.server_agg.settings.server import MASKED_STRATEGIES
from phonograd.server_agg.transfer import TransferSettings

_MOST = 10**9


@dataclass(frozen=True)
class SimulationSettings:
    """A simulation. The same settings, model and texts give the same models, to the bit, unless rounds are masked.

    rounds; clients_per_round: K, drawn without repetition (dp-fedavg and dp-fedsgd sample each phone with their
    `sampling`; dp-ftrl draws among those that its `min_separation` lets take part).
    text_bytes: of a user's text that a phone trains on in a round, the next ones in the next round; user_share: λ, if
    there is general text to rehearse; codec, epochs, steps, learning_rate (None: the artifacts'), output_sample (words
    drawn; None: the full softmax), precision: as in `train`.

    publish, publish_rows, publish_bits: how rounds publish their models, as in RoundRules; what that costs is in
    `downloads`.

    drop_outs: the chance that a phone trains and its update never arrives; late_phones: that it arrives in the next
    round; late: what happens then, see RoundRules; duplicates: that it is sent twice.

    test_users: users that never train; the model is evaluated on their texts, at most text_bytes of each, every
    `evaluate_every` rounds and in each of the last `evaluate_last`; kss: with keystroke savings, which take longer.

    masked: rounds are masked with these settings, but for cohorts: phones round their deltas to the grid, and the
    server has their sum.

    transfer: of strategy transfer, whose model is trained, without a state `closing` between rounds.

    Raises ValueError for a setting out of range, naming it.
    """

    rounds: int = 10
    clients_per_round: int = 10
    seed: int = 1
    text_bytes: int = 10_000
    user_share: float = TrainingConfig().user_share
    codec: str = DEFAULT_CODEC
    epochs: int = 1
    steps: int | None = None
    learning_rate: float | None = None
    output_sample: int | None = None
    precision: Precision = "fp32"
    publish: LinkCodec = RoundRules().publish
    publish_rows: int = RoundRules().publish_rows
    publish_bits: PublishBits = RoundRules().publish_bits
    drop_outs: float = 0.0
    late_phones: float = 0.0
    late: Late = "drop"
    duplicates: float = 0.0
    test_users: int = 20
    evaluate_every: int = 1
    evaluate_last: int = 1
    kss: bool = False
    strategy: StrategySettings = field(default_factory=StrategySettings)
    transfer: TransferSettings = field(default_factory=TransferSettings)
    masked: MaskedSettings | None = None

    def __post_init__(self) -> None:
        for name in ("rounds", "clients_per_round", "text_bytes", "epochs", "evaluate_every", "evaluate_last"):
            self._require(name, 1, _MOST)
        for name in ("drop_outs", "late_phones", "duplicates"):
            self._require(name, 0, 1)
        self._require("test_users", 0, _MOST)
        self._require("seed", 0, (1 << 64) - 1)
        if self.output_sample is not None:
            self._require("output_sample", 1, _MOST)
        if self.steps not in (None, 1):
            raise ValueError(f"`steps` is {self.steps}, expected 1, a single step with the gradient of the whole text")
        if self.steps == 1 and self.epochs != 1:
            raise ValueError(f"`epochs` is {self.epochs}, expected 1: a single step is a single pass over the text")
        if self.strategy.one_step and self.steps != 1:
            raise ValueError(f"`steps` is {self.steps}, expected 1: {self.strategy.strategy} averages single steps")
        if self.learning_rate is not None and not 0 < self.learning_rate < math.inf:
            raise ValueError(f"`learning_rate` is {self.learning_rate}, expected a finite number above 0")
        if not 0 < self.user_share <= 1:
            raise ValueError(f"`user_share` is {self.user_share}, expected more than 0, at most 1")
        if self.drop_outs + self.late_phones > 1:
            raise ValueError(
                f"`late_phones` is {self.late_phones}, expected at most 1 - `drop_outs` ({self.drop_outs})"
            )
        if self.strategy.strategy == FTRL and self.rounds > self.strategy.planned_rounds:
            raise ValueError(
                f"`rounds` is {self.rounds}, expected at most `planned_rounds` ({self.strategy.planned_rounds}), which "
                "the noise is made for"
            )
        if self.masked is not None:
            self._require_masked(self.masked)
        _ = self.how_published

    @property
    def how_published(self) -> Publish:
        """How rounds publish their models. Raises ValueError for a setting out of range."""
        return Publish(self.publish, self.publish_rows, self.publish_bits)

    def _require_masked(self, masked: MaskedSettings) -> None:
        strategy = self.strategy
        if strategy.strategy not in MASKED_STRATEGIES or strategy.private or self.late == "next":
            raise ValueError(
                f"`strategy` is {strategy.strategy!r} and `late` {self.late!r}, expected fedavg or fedsgd, and drop, "
                "with `masked`"
            )
        if strategy.weighting != masked.weighting:
            raise ValueError(
                f"`weighting` is {strategy.weighting!r}, expected equal with `weight_cap` 1 and tokens above it"
            )
        if self.clients_per_round > masked.cohort:
            raise ValueError(
                f"`clients_per_round` is {self.clients_per_round}, expected at most `cohort` ({masked.cohort})"
            )

    def _require(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        if not low <= value <= high:
            raise ValueError(f"`{name}` is {value}, expected {low} to {high}")
