"""What is simulated."""

from typing import Annotated, Literal

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Chance, Count, FromZero, Positive, Settings, Share
from phonograd.device_runtime.engine.backend import Precision
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.update.codecs import DEFAULT_CODEC, GROUPS, CodecName
from phonograd.device_runtime.update.links import LinkCodec, PublishBits
from phonograd.server_agg.aggregation.publishing import Publish
from phonograd.server_agg.aggregation.settings import FTRL, StrategySettings
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.rules import Late, RoundRules
from phonograd.server_agg.settings.server import MASKED_STRATEGIES, deploying_checks
from phonograd.server_agg.transfer.settings import TransferSettings

_GROUPS = "; ".join(f"{group}: {', '.join(codecs)}" for group, codecs in GROUPS.items())


class SimulationSettings(Settings, frozen=True):
    """A simulation. The same settings, model and texts give the same models, to the bit, unless rounds are masked.

    strategy: dp-fedavg and dp-fedsgd sample each phone with their `sampling`; dp-ftrl draws among those that its
    `min_separation` lets take part; a model of transfer is trained without a state `closing` between rounds.
    masked: phones round their deltas to the grid, and the server has their sum; cohorts are not simulated.

    Raises ValueError for a setting out of range, naming it.
    """

    rounds: Annotated[Count, about("Rounds to run; more continue a simulation.")] = 10
    clients_per_round: Annotated[Count, about("Phones that take part in a round.")] = 10
    seed: Annotated[FromZero, about("Of all that is drawn at random.")] = 1
    text_bytes: Annotated[
        Count, about("Bytes of a user's text that a phone trains on in a round, the next ones in the next round.")
    ] = 10_000
    user_share: Annotated[
        Share, about("λ, the user's share of the tokens, where there is general text to rehearse.")
    ] = TrainingConfig().user_share
    codec: Annotated[CodecName, about(f"The updates' encoding. {_GROUPS.capitalize()}.")] = DEFAULT_CODEC
    epochs: Annotated[Count, about("Passes over the text.")] = 1
    steps: Annotated[
        Literal[1] | None,
        about("1: a single step with the gradient of the whole text.  [default: a step for each minibatch]"),
    ] = None
    learning_rate: Annotated[Positive | None, about("[default: the artifacts']")] = None
    output_sample: Annotated[Count | None, about("Words drawn for the output layer.  [default: the full softmax]")] = (
        None
    )
    precision: Annotated[Precision, about("Precision of matrix products.")] = "fp32"
    publish: Annotated[
        LinkCodec,
        about("Codec of the link from a round's base to its model; top-rows is lossy (phonograd docs server)."),
    ] = RoundRules().publish
    publish_rows: Annotated[Count, about("top-rows: rows of largest change to publish.")] = RoundRules().publish_rows
    publish_bits: Annotated[PublishBits, about("top-rows: bits a weight.")] = RoundRules().publish_bits
    drop_outs: Annotated[Chance, about("Chance that a phone trains and its update never arrives.")] = 0.0
    late_phones: Annotated[Chance, about("Chance that an update arrives one round later.")] = 0.0
    late: Annotated[Late, about("Late updates: drop them, or add them to the next round.")] = "drop"
    deploy_every: Annotated[
        Count, about("Rounds after which phones get a model, the mean of what these rounds made; paper P's N.")
    ] = RoundRules().deploy_every
    duplicates: Annotated[Chance, about("Chance that an update is sent twice.")] = 0.0
    test_users: Annotated[
        FromZero, about("Users who never train; the model is evaluated on text_bytes of each one's text.")
    ] = 20
    evaluate_every: Annotated[Count, about("Rounds from one evaluation to the next.")] = 1
    evaluate_last: Annotated[Count, about("Rounds at the end that are all evaluated.")] = 1
    kss: Annotated[bool, about("Also measure keystroke savings, which takes longer.")] = False
    strategy: StrategySettings = StrategySettings()
    transfer: TransferSettings = TransferSettings()
    masked: MaskedSettings | None = None

    def check_together(self) -> None:
        """Raise ValueError for settings that do not go together."""
        strategy = self.strategy
        self.require("epochs", self.steps is None or self.epochs == 1, "1: a single step is a single pass")
        one_step = not strategy.one_step or self.steps == 1
        self.require("steps", one_step, f"1: {strategy.strategy} averages single steps")
        late = self.drop_outs + self.late_phones <= 1
        self.require("late_phones", late, f"at most 1 - `drop_outs` ({self.drop_outs})")
        planned = strategy.strategy != FTRL or self.rounds <= strategy.planned_rounds
        self.require(
            "rounds", planned, f"at most `planned_rounds` ({strategy.planned_rounds}), which the noise is made for"
        )
        for good, message in deploying_checks(self.deploy_every, strategy.strategy, self.masked is not None):
            if not good:
                raise ValueError(message)
        if self.masked is not None:
            self._require_masked(self.masked)

    @property
    def how_published(self) -> Publish:
        """How rounds publish their models."""
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
        fits = self.clients_per_round <= masked.cohort
        self.require("clients_per_round", fits, f"at most `cohort` ({masked.cohort})")
