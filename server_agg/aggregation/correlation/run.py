"""A run of dp-ftrl: what is fixed before its first round, and stands in the metadata of each of its models."""

from collections.abc import Mapping

import msgspec

from phonograd.device_runtime.base.documents import Amount, FieldError, Positive, Record, document_of, parse, read
from phonograd.device_runtime.base.errors import WeightsError
from phonograd.server_agg.aggregation.correlation.blt import Blt
from phonograd.server_agg.aggregation.correlation.optimise import optimise_blt
from phonograd.server_agg.aggregation.correlation.sensitivity import sensitivity
from phonograd.server_agg.aggregation.settings import StrategySettings

RUN = "dp_ftrl"  # metadata key of its models and buffers


class Run(Record, frozen=True):
    """The settings that decide its privacy, by their names, and the correlation of its noise, as of Blt.

    It is made once: a correlation that is computed again, by another version of SciPy, may be another one.
    """

    planned_rounds: Positive
    min_separation: Positive
    max_participations: Positive
    noise_multiplier: Amount
    clip_norm: Amount
    decays: tuple[Amount, ...]
    scales: tuple[Amount, ...]

    @property
    def blt(self) -> Blt:
        """The correlation."""
        return Blt(self.decays, self.scales)

    @property
    def sensitivity(self) -> float:
        """How far one phone can move the run, as of `sensitivity`."""
        column = self.blt.coefficients(self.planned_rounds)
        return sensitivity(column, self.min_separation, self.max_participations)

    @property
    def noise_std(self) -> float:
        """Standard deviation of Z, in units of the sum of clipped deltas: z x S x sensitivity."""
        return self.noise_multiplier * self.clip_norm * self.sensitivity

    @property
    def text(self) -> str:
        """The run as JSON, for metadata; every bit of its numbers is kept."""
        return msgspec.json.encode(document_of(self)).decode()

    def require(self, settings: StrategySettings) -> None:
        """Raise WeightsError, naming the first difference, unless the settings are still those of the run."""
        for name in ("noise_buffers", *_FIXED):
            before = len(self.decays) if name == "noise_buffers" else getattr(self, name)
            if (now := getattr(settings, name)) != before:
                raise WeightsError(
                    f"`{name}` is {now}, expected {before}, with which the run of dp-ftrl began: its noise and its "
                    "epsilon hold for no other; keep it, or start another run"
                )


_FIXED = ("planned_rounds", "min_separation", "max_participations", "noise_multiplier", "clip_norm")


def begin_run(settings: StrategySettings) -> Run:
    """A new run. Raises MissingExtraError without SciPy."""
    rounds, separation, participations = settings.planned_rounds, settings.min_separation, settings.max_participations
    blt = optimise_blt(rounds, separation, participations, settings.noise_buffers)
    noise, bound = float(settings.noise_multiplier), float(settings.clip_norm)
    return Run(rounds, separation, participations, noise, bound, blt.decays, blt.scales)


def run_in(metadata: Mapping[str, str], what: str) -> Run | None:
    """The run that a model is of; None if of none. what: to name it. Raises WeightsError for a damaged one."""
    if (text := metadata.get(RUN)) is None:
        return None
    try:
        run = read(Run, parse(text))
        _ = run.blt
    except (FieldError, ValueError) as error:
        raise WeightsError(f"{what}: {RUN}: {error}; restore the file") from error
    return run
