"""Records of the report: rounds, their phones, and models."""

from typing import Annotated, Final, Literal

from phonograd.device_runtime.base.documents import Count, Record, Sha256, about

REPORT_VERSION: Final = 6


class CodecBytes(Record, frozen=True):
    """Accepted updates of one codec and the bytes of their bodies."""

    updates: Count
    bytes: Count


class SentLinks(Record, frozen=True):
    """Requests that were answered with links of one codec, and the bytes of these bodies.

    Several that follow each other count to the newest one's codec.
    """

    requests: Count
    bytes: Count


class TrafficFigures(Record, frozen=True, kw_only=True):
    """Bytes by outcome and by kind, and requests. See RoundReport."""

    useful_bytes: Count
    retried_bytes: Count
    rejected_bytes: Count
    late_bytes: Count
    unfinished_bytes: Count
    up_body_bytes: Count
    up_header_bytes: Count
    down_body_bytes: Count
    down_header_bytes: Count
    model_bytes: Count
    sent_link_bytes: Count
    redirected_bytes: Count
    keys_up_bytes: Count
    keys_down_bytes: Count
    shares_up_bytes: Count
    shares_down_bytes: Count
    unmasking_up_bytes: Count
    unmasking_down_bytes: Count
    requests: Count
    upload_starts: Count
    up_tcp_bytes: Count | None
    down_tcp_bytes: Count | None


class Figures(TrafficFigures, frozen=True, kw_only=True):
    """The traffic of a round or of all rounds, and updates by outcome. See RoundReport."""

    accepted: Count
    late_folded: Count
    repeated: Count
    rejected: Count
    late: Count
    unfinished: Count


class CohortStages(Record, frozen=True):
    """The stage that a masked round is in, or ended in; and how many phones got through each earlier one."""

    stage: str
    through: dict[str, int]


class RoundReport(Figures, frozen=True, kw_only=True):
    """One round. Sizes in bytes, times in seconds (since 1970 for `_at`).

    Course:
    closing_at: start of `closing`, if its model takes minutes
    reason: why it failed, if it did
    seconds_to_model: from the first byte of the first accepted update to the new model
    cohort: of a masked round, once its cohort is fixed

    Updates by outcome:
    accepted, repeated, late, unfinished
    rejected: includes the updates of a failed round
    late_folded: accepted updates trained from an earlier round's model

    Bytes; these and the _up_bytes of masked rounds' messages (keys, shares, unmasking) add up to up_body_bytes:
    useful_bytes: bodies of accepted updates
    retried_bytes: sent again, lost in transit or refused unread
    rejected_bytes, late_bytes, unfinished_bytes: of those updates

    Other bytes on the wire:
    up_header_bytes, down_header_bytes, down_body_bytes: the rest; down_body_bytes has the messages' _down_bytes
    model_bytes, sent_link_bytes: whole models and links in down_body_bytes; sent_links: the latter by codec
    redirected_bytes: bytes of these that nginx or the store was to send, by what was asked for
    up_tcp_bytes, down_tcp_bytes: what TCP carried, TLS included; None where the kernel does not tell

    Phones:
    phone_up_, phone_down_: median, 90th percentile (nearest rank) and most bytes, headers included, over the phones
        that sent some of an update, or that asked for a model or links
    upload_starts: requests that began or resumed an upload (paper P argues by their number too)
    model_ratio: the base model's file (base_bytes) over what a phone sent: what the codec saves
    phone_ratio, round_ratio: paper P's upload, of its own model, over a phone's and the round's

    Privacy spent up to the round:
    epsilon: the smaller of two bounds; None if infinite
    epsilon_rdp: by Renyi divergences alone, what most papers report; None if infinite
    neighbours: how two sets of users differ that both epsilons compare
    epsilon_infinite_phones: phones with infinite epsilon: a model with their updates was published without noise

    The round's model:
    deploy_every: rounds after which phones get a model, the mean of what these rounds made
    deployed: whether phones got this one; None if the round made none
    publish: the codec of the link to it
    link_bytes: the link's file; None if it would be no smaller than the model
    distance: L2 norm of the residual of its compression relative to the round's delta; 0 if lossless
    quality: by metric, as evaluators reported it
    """

    round: Count
    base_sha256: Sha256
    base_bytes: Count
    model_sha256: Sha256 | None
    strategy: str
    weighting: str
    clients_per_round: Count
    deploy_every: Count
    deployed: bool | None
    opened_at: float
    closing_at: float | None
    closed_at: float | None
    ending: str | None
    reason: str | None
    rolled_back: bool
    phone_up_p50_bytes: Count | None
    phone_up_p90_bytes: Count | None
    phone_up_max_bytes: Count | None
    phone_down_p50_bytes: Count | None
    phone_down_p90_bytes: Count | None
    phone_down_max_bytes: Count | None
    codecs: dict[str, CodecBytes]
    sent_links: dict[str, SentLinks]
    mean_bytes_per_phone: float | None
    seconds_to_model: float | None
    model_ratio: float | None
    phone_ratio: float | None
    round_ratio: float | None
    epsilon: float | None
    epsilon_rdp: float | None
    neighbours: str | None
    epsilon_infinite_phones: Count
    publish: str
    link_bytes: Count | None
    distance: float | None
    quality: dict[str, float]
    cohort: CohortStages | None


class Totals(Figures, frozen=True, kw_only=True):
    """Sums over all rounds, of the figures that RoundReport has under these names."""

    rounds_closed: Count


class Paper(Record, frozen=True):
    """Paper P's upload, of its own model."""

    mib_per_phone: float
    gib_per_round: float


class Report(Record, frozen=True):
    """The cost of each round, and of all of them."""

    version: Literal[6]
    paper: Paper
    rounds: list[RoundReport]
    totals: Totals


class PhoneCost(TrafficFigures, frozen=True, kw_only=True):
    """The cost of a phone in one round; bytes by kind as in RoundReport."""

    phone: Annotated[str | None, about("null: requests that named no phone.")]
    state: Annotated[str | None, about("What became of its update.")]
    codec: str | None
    reason: str | None


class ModelEntry(Record, frozen=True):
    """A model that the server has sent out."""

    sha256: Sha256
    round: Count
    parent_sha256: Sha256 | None
    bytes: Count
    created_at: Annotated[float, about("Seconds since 1970, UTC.")]
    kept: Annotated[bool, about("Whether its file can still be fetched.")]
    quality: Annotated[dict[str, float], about("Value by metric.")]
