"""What attacks found: one JSON document."""

from typing import Annotated, Literal

from phonograd.device_runtime.base.documents import Amount, Number, Positive, Record, about


class Exposure(Record, frozen=True):
    """How much a model knows of one secret (Carlini et al. 2019), in bits."""

    user: str
    insertions: Annotated[Positive, about("times that the secret is in the user's text")]
    rank: Annotated[Positive, about("of its likelihood among all secrets of its form; 1 is the most likely")]
    exposure: Annotated[Amount, about("log2 of the number of secrets, minus log2 of the rank")]
    extrapolated: Annotated[Amount, about("-log2 of the chance, by a skew-normal fit, that a secret is as likely")]
    before: Annotated[Amount, about("the exposure under the first model")]


class Canaries(Record, frozen=True):
    """Secrets that users' phones trained on. space: the number of secrets of their form, |R|."""

    space: Positive
    secrets: tuple[Exposure, ...]


class Estimate(Record, frozen=True):
    """A figure with its 95 % bootstrap interval over users."""

    value: Number
    low: Number
    high: Number


class Membership(Record, frozen=True):
    """Whether users' loss tells that they took part. A user's score is the nats a token by which it fell."""

    members: Positive
    others: Positive
    auc: Annotated[Estimate, about("the chance that a member's score is above another user's; 0.5 is guessing")]
    tpr: Annotated[Estimate, about("the share of members found if at most 1 % of others are taken for members")]
    member_score: Annotated[Number, about("the mean over members")]
    other_score: Number


class AttackRecord(Record, frozen=True):
    """Attacks on the last model of a simulation; null for one that was not asked for."""

    rounds: Positive
    epsilon: Annotated[float | None, about("spent; null if the strategy is not private, or without noise")]
    canaries: Canaries | None
    membership: Membership | None
    schema_version: Literal[1] = 1
