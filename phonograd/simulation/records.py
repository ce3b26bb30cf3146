"""What a simulation writes about itself: one JSON document, which a resumed run continues."""

from typing import Annotated, Any, Literal

from phonograd.device_runtime.base.documents import Amount, Count, Number, Positive, Record, Sha256, about


class Spread(Record, frozen=True):
    """A figure over users: the mean, and the 10th and 90th percentile."""

    mean: Number
    p10: Number
    p90: Number


class Scores(Record, frozen=True):
    """A model's scores on one text. KSS is null if it was not measured."""

    perplexity: Annotated[Amount, about("without unknown words")]
    perplexity_with_unknown: Amount
    top1: Amount
    kss: Number | None


class UserScores(Record, frozen=True):
    """A model's scores on the texts of users who never trained."""

    users: Positive
    perplexity: Spread
    perplexity_with_unknown: Spread
    top1: Spread
    kss: Spread | None


class Quality(Record, frozen=True):
    """How good a model is on general text and for new users; null without such texts."""

    general: Scores | None
    users: UserScores | None


class RoundRecord(Record, frozen=True):
    """One round, and the model it ended with: the base if too few updates were accepted."""

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
    schema_version: Literal[1] = 1
