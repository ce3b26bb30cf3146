"""What the report consists of: records of rounds, their phones, and models."""

from typing import Annotated, Final, Literal

from phonograd.device_runtime.base.documents import Count, Record, Sha256, about

REPORT_VERSION: Final = 5


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
    """Bytes by what became of them and by kind, and requests. See RoundReport."""

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
    asked_bytes: Count
    keys_up_bytes: Count
    keys_down_bytes: Count
    shares_up_bytes: Count
    shares_down_bytes: Count
    unmasking_up_bytes: Count
    unmasking_down_bytes: Count
    requests: Count
    setups: Count
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
    """The stage that a masked round is in, or ended in; and how many phones got through those before it."""

    stage: str
    through: dict[str, int]


class RoundReport(Figures, frozen=True, kw_only=True):
    """One round. Sizes in bytes, times in seconds (since 1970 for `_at`).

    closing_at: since when it is or was `closing`, if its model takes minutes. reason: why it failed, if it did.
    accepted, repeated, rejected (those of a failed round too), late, unfinished: updates by outcome;
    late_folded: accepted updates trained from an earlier round's model. useful_bytes: bodies of accepted updates;
    retried_bytes: sent again, lost in transit or refused unread; rejected_, late_, unfinished_bytes: of those updates.
    With keys_, shares_ and unmasking_up_bytes, the messages of masked rounds, they add up to up_body_bytes; _down_bytes
    are the answers to those messages, in down_body_bytes.
    up_header_bytes, down_header_bytes, down_body_bytes: everything else on the wire; model_bytes, sent_link_bytes: of
    the latter, whole models and links; sent_links: by codec; asked_bytes: of these, what nginx or the store was to
    send, by what was asked for. up_tcp_bytes, down_tcp_bytes: what TCP carried of all
    requests, TLS included; None where the kernel does not tell.
    phone_up_, phone_down_: bytes that a phone sent, or was sent, headers included: the median, the 90th percentile and
    the most, by nearest rank, over the phones that sent some of an update, or that asked for a model or links.
    setups: requests that began or resumed an upload (paper P argues by their number too). seconds_to_model: from the
    first byte of the first accepted update to the new model.
    base_bytes: the file of the round's base model. model_ratio: how many times less than that file a phone sent, which
    is what the codec saves. phone_ratio, round_ratio: how many times less than paper P's phone and round upload, of its
    own model.
    epsilon: privacy spent up to the round, by the smaller of two bounds; epsilon_rdp: by Renyi divergences alone,
    what most papers report; None where the round has no finite one; neighbours: what two sets of users differ in that
    both are about. epsilon_infinite_phones: phones for which epsilon
    is infinite, up to the round: their updates are in a model that was published without noise.
    publish: the codec of the link to the round's model; link_bytes: its file, None if it would be no smaller than the
    model. distance: how far the model is from an uncompressed one, the L2 norm of the residual relative to the round's
    delta; 0 if lossless.
    quality: by metric, as evaluators reported it of the round's model.
    cohort: of a masked round, once its cohort is fixed.
    """

    round: Count
    base_sha256: Sha256
    base_bytes: Count
    model_sha256: Sha256 | None
    strategy: str
    weighting: str
    clients_per_round: Count
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
    """What each round cost, and all of them."""

    version: Literal[5]
    paper: Paper
    rounds: list[RoundReport]
    totals: Totals


class PhoneCost(TrafficFigures, frozen=True, kw_only=True):
    """What a phone cost in one round; bytes by kind as in RoundReport."""

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
