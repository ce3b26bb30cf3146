"""Whether figures show what an experiment claims."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from phonograd.device_runtime.base.errors import ArtifactsError, PhonogradError
from phonograd.papers.experiment import Claim, Experiment, Rows
from phonograd.papers.result import Result


class ClaimError(PhonogradError):
    """A small run of an experiment does not show what it claims."""

    exit_code = 27


@dataclass(frozen=True)
class Checked:
    """A claim, whether the means over seeds show it, and how many of the seeds do."""

    claim: Claim
    holds: bool
    seeds: int

    def says(self, of: int) -> str:
        """The claim in words; with more than one seed, of how many it holds."""
        return self.claim.says if of == 1 else f"{self.claim.says} ({self.seeds} of {of} seeds)"


def checked(experiment: Experiment, result: Result) -> list[Checked]:
    """All claims that apply to this run. Raises ArtifactsError for one about figures that the run does not have."""
    claims = [claim for claim in experiment.claims if claim.small or not result.small]
    by_seed = [result.of_seed(index) for index in range(len(result.seeds))]
    return [
        Checked(
            claim,
            _holds(claim, result.means(), experiment.published),
            sum(_holds(claim, rows, experiment.published) for rows in by_seed),
        )
        for claim in claims
    ]


def require_all(name: str, claims: Sequence[Checked]) -> None:
    """Raise ClaimError for the first claim that does not hold."""
    for one in claims:
        if not one.holds:
            raise ClaimError(f"{name}: expected that {one.claim.says}; the figures above do not show it")


def _holds(claim: Claim, ours: Rows, published: Rows) -> bool:
    values = [_value(ours, row, claim, "measured") for row in claim.rows]
    if claim.within is not None:
        theirs = [_value(published, row, claim, "published") for row in claim.rows]
        return all(abs(one - other) <= claim.within for one, other in zip(values, theirs, strict=True))
    if claim.low is None and claim.high is None:
        return all(before < after for before, after in pairwise(values))
    low = float("-inf") if claim.low is None else claim.low
    high = float("inf") if claim.high is None else claim.high
    return all(low <= value <= high for value in values)


def _value(rows: Rows, row: str, claim: Claim, which: str) -> float:
    try:
        return rows[row][claim.figure]
    except KeyError:
        raise ArtifactsError(
            f"claim {claim.says!r}: a {which} figure {claim.figure!r} of row {row!r} expected, found rows "
            f"{', '.join(rows)}"
        ) from None
