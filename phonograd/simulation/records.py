"""What a simulation writes about itself, which a resumed run continues, and what attacks found, as JSON."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Annotated, Any, Literal

from phonograd.device_runtime.base.documents import Amount, Count, Number, Positive, Record, Sha256, about
from phonograd.pages import to_words
from phonograd.server_agg.aggregation.privacy.accountant import NEIGHBOURS
from phonograd.simulation.quality import Figure, Quality, spread


class RoundRecord(Record, frozen=True):
    """One round, and the model it ended with: that of the round before if too few updates were accepted.

    base_sha256: of the model that its phones trained from
    """

    number: Positive
    base_sha256: Sha256
    model_sha256: Sha256
    outcome: Literal["closed", "failed"]
    phones: Annotated[Count, about("phones that trained")]
    accepted: Count
    drop_outs: Count
    late: Annotated[Count, about("updates that were sent after their round had closed")]
    refused: Count
    repeated: Count
    diverged: Count
    bytes_up: Annotated[Count, about("of all updates that arrived, also refused and repeated ones")]
    bytes_down: Annotated[Count, about("of links to the base model, or of that model, for every phone that trained")]
    tokens: Count
    repeated_texts: Annotated[Count, about("phones whose text, or a part of it, was trained on in an earlier round")]
    loss_first: Annotated[Amount | None, about("nats a token in a phone's first step, the mean over phones")]
    loss_last: Amount | None
    seconds: Amount
    train_seconds: Annotated[Amount, about("of all phones together")]
    epsilon: Annotated[float | None, about("spent so far, in measured rounds; null if not private, or without noise")]
    quality: Quality | None
    link_bytes: Annotated[
        Count | None, about("of the link to the model; null if it is no smaller, or there is none")
    ] = None
    left_out: Annotated[Amount | None, about("L2 norm of what links left out, relative to the round's delta")] = None
    deployed: Annotated[bool, about("whether phones got its model; a failed round makes none")] = True


def deployed_number(rounds: Sequence[RoundRecord]) -> int:
    """The last of these rounds whose model phones got; 0: they have the first one."""
    return next((ended.number for ended in reversed(rounds) if ended.deployed), 0)


class Users(Record, frozen=True):
    """Users by their part in the simulation."""

    training: Positive
    testing: Count
    left_out: Annotated[Count, about("whose text is too short to fill a window")]


class SimulationRecord(Record, frozen=True):
    """A simulation so far. job: what must not change when it is resumed."""

    job: dict[str, Any]
    users: Users
    before: Quality
    rounds: tuple[RoundRecord, ...] = ()
    neighbours: Annotated[str, about("which two sets of users epsilon is about")] = NEIGHBOURS
    schema_version: Literal[1] = 1
    config: Annotated[dict[str, Any] | None, about("the configuration of the command that ran last")] = None

    @property
    def qualities(self) -> dict[int, Quality]:
        """The quality of the models that were evaluated, by round; 0 is the first one."""
        return {0: self.before} | {ended.number: ended.quality for ended in self.rounds if ended.quality is not None}

    def model_sha256(self, number: int) -> str:
        """The hash of the model after a round; 0 is the first one."""
        sha256: str = self.rounds[number - 1].model_sha256 if number else self.job["model"]
        return sha256


MB = 1e6
_FIGURES: tuple[Figure, ...] = ("perplexity_with_unknown", "top1", "kss")


def tables_of(record: SimulationRecord) -> dict[str, list[dict[str, Any]]]:
    """Tables by title: bytes, new users, general text. Each has a row for the model before the first round, and for
    each round whose model was measured.
    """
    up = [0, *accumulate(ended.bytes_up for ended in record.rounds)]
    down = [0, *accumulate(ended.bytes_down for ended in record.rounds)]
    rounds, of_users, of_general = [], [], []
    for number, quality in record.qualities.items():
        ended = record.rounds[number - 1] if number else None
        row: dict[str, Any] = {"round": number, "accepted": 0, "loss": None}
        if ended is not None:
            row |= {"accepted": ended.accepted, "loss": ended.loss_last}
        row |= {"MB up so far": up[number] / MB, "MB down so far": down[number] / MB}
        row["link, MB"] = ended.link_bytes / MB if ended and ended.link_bytes is not None else None
        row["link error, %"] = 100 * ended.left_out if ended and ended.left_out is not None else None
        rounds.append(row)
        if users := spread(quality.users, "perplexity"):
            row = {"round": number, "perplexity": users.pooled, "perplexity_error": users.error}
            row |= {"mean": users.mean, "p10": users.p10, "p90": users.p90}
            row |= {name: found.pooled for name in _FIGURES if (found := spread(quality.users, name))}
            of_users.append(to_words(row))
        if (general := quality.general) is not None:
            row = {"round": number, "perplexity": general.perplexity, "perplexity_error": general.perplexity_error}
            row |= {name: value for name in _FIGURES if (value := getattr(general, name)) is not None}
            of_general.append(to_words(row))
    tables = {"Simulated rounds": rounds, "New users": of_users, "General text": of_general}
    return {title: rows for title, rows in tables.items() if rows}


class Exposure(Record, frozen=True):
    """How much a model knows of one secret (Carlini et al. 2019), in bits. user: null for a control, which nobody
    wrote.
    """

    user: str | None
    insertions: Annotated[Count, about("times that the secret is in the user's text")]
    rank: Annotated[Positive, about("of its likelihood among all secrets of its form; 1 is the most likely")]
    exposure: Annotated[Amount, about("log2 of the number of secrets, minus log2 of the rank")]
    extrapolated: Annotated[Amount, about("-log2 of the chance, by a skew-normal fit, that a secret is as likely")]
    before: Annotated[Amount, about("the exposure under the first model")]

    @property
    def change(self) -> float:
        """The bits that rounds added to the exposure."""
        return self.exposure - self.before


class Estimate(Record, frozen=True):
    """A figure with its 95 % bootstrap interval over users or secrets."""

    value: Number
    low: Number
    high: Number


class ExposureChange(Record, frozen=True):
    """The secrets with one number of insertions: their exposure under the first and the last model, in bits."""

    insertions: Count
    secrets: Positive
    before: Annotated[Amount, about("the mean exposure under the first model")]
    exposure: Annotated[Amount, about("the mean exposure under the last model")]
    change: Annotated[Number, about("the mean of exposure minus before")]
    standard_error: Annotated[Amount | None, about("of that mean; null for one secret")]
    above_controls: Annotated[Estimate | None, about("the change minus the controls'; null for and without these")]


class Canaries(Record, frozen=True):
    """Secrets that users' phones trained on, and controls. space: the number of secrets of their form, |R|."""

    space: Positive
    secrets: tuple[Exposure, ...]
    changes: Annotated[tuple[ExposureChange, ...], about("by number of insertions, ascending")]


class Membership(Record, frozen=True):
    """Whether users' loss tells that they took part. A user's score is the nats a token by which it fell."""

    members: Positive
    others: Positive
    auc: Annotated[Estimate, about("the chance that a member's score is above another user's; 0.5 is guessing")]
    tpr: Annotated[Estimate, about("the share of members found if at most 1 % of others are taken for members")]
    member_score: Annotated[Number, about("the mean over members")]
    other_score: Number


class AuditRecord(Record, frozen=True):
    """What an audit in one run found (Steinke et al. 2023)."""

    rounds: Positive
    canaries: Annotated[Positive, about("users, each of whom might take part with chance 1/2")]
    took_part: Annotated[Count, about("canaries that might take part")]
    guesses: Annotated[Positive, about("canaries that were guessed to have taken part or not, fixed before")]
    right: Annotated[Count, about("guesses that are right")]
    delta: Annotated[float, about("of both epsilons")]
    confidence: Annotated[float, about("of the lower bound")]
    epsilon_at_least: Annotated[Amount, about("the lower bound of epsilon; 0 without one")]
    epsilon: Annotated[float | None, about("accounted for; null if the strategy is not private, or without noise")]
    neighbours: Annotated[str, about("which two sets of users epsilon is about")] = NEIGHBOURS
    schema_version: Literal[1] = 1


class AttackRecord(Record, frozen=True):
    """Attacks on the last model of a simulation; null for one that was not asked for."""

    rounds: Positive
    epsilon: Annotated[float | None, about("spent; null if the strategy is not private, or without noise")]
    canaries: Canaries | None
    membership: Membership | None
    neighbours: Annotated[str, about("which two sets of users epsilon is about")] = NEIGHBOURS
    schema_version: Literal[1] = 1
