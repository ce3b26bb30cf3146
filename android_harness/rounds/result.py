"""What `phonograd phone-round` found, as its JSON document has it: schema phonograd.round, 1 (docs/phone-round.md).

Seconds are wall time, of this machine's clock unless a name says otherwise; bytes are bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from phonograd.android_harness.result import PowerState
from phonograd.device_runtime.base.documents import Amount, Count, Number, Positive, Sha256
from phonograd.device_runtime.client.server_client import UploadReceipt

SCHEMA = "phonograd.round"
SCHEMA_VERSION = 1
# Paper P: what each phone uploads a round.
PAPER_MIB_PER_PHONE = 174.43

# What a phone does in a round, in this order; at the end it has an update accepted, or is out.
Stage = Literal["ready", "place", "text", "push", "train", "pull", "upload"]
End = Literal["accepted", "out"]


@dataclass(frozen=True)
class DropOut:
    """Why a phone's update is not at the server: in which stage, one line, and the exit code of such an error."""

    stage: Stage
    message: str
    exit_code: int


class Training(msgspec.Struct, frozen=True):
    """One epoch on a phone, as phonograd-phone reported it; `seconds` are those of its steps, by the phone's clock."""

    steps: Count
    tokens: Count
    user_tokens: Count
    seconds: Amount
    loss_first: Number
    loss_last: Number
    peak_rss_bytes: Count
    kernels: str
    precision: str
    threads: Positive


class PulledUpdate(msgspec.Struct, frozen=True):
    """An update that came from a phone; `kept` is its path on this machine while the server does not have it."""

    codec: str
    nbytes: Count
    sha256: Sha256
    kept: str | None = None


@dataclass(frozen=True)
class PhoneRound:
    """One phone's part in the round; None: it did not come to that.

    `seconds` by stage: push, train, pull, upload. `pushed_bytes` went over the cable; `power_before` is how its screen,
    doze and battery saver were, `power` how they were while it trained; `remark` is what went wrong without costing the
    update.
    """

    serial: str
    name: str
    model: str | None
    seed: int
    seconds: Mapping[str, float]
    pushed_bytes: int | None
    power_before: PowerState | None
    power: PowerState | None
    training: Training | None
    update: PulledUpdate | None
    receipt: UploadReceipt | None
    drop_out: DropOut | None
    remark: str | None


@dataclass(frozen=True)
class ServerLedger:
    """The server's own account of the round, in its names (docs/server.md): the round, and its phones."""

    round: Mapping[str, Any]
    phones: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class RoundReport:
    """A whole round, from `created` (ISO 8601, UTC) on.

    model_before, model_after: hex SHA-256; after is None where the round is open still or the server did not say.
    closed: None if it could not be asked any more. downloaded_bytes: of the model, 0 if it was here. update_bytes: of
    the accepted updates of these phones. ledger: None where the server did not give it; then ledger_missing says why.
    interrupted: the signal that ended it early, 0 for none. paper_mib_per_phone: what a phone uploads in paper P.
    """

    created: str
    server: str
    round: int
    clients_per_round: int
    model_before: str
    model_bytes: int
    downloaded_bytes: int
    closed: bool | None
    model_after: str | None
    settings: Mapping[str, object]
    phones: tuple[PhoneRound, ...]
    update_bytes: int
    ledger: ServerLedger | None
    ledger_missing: str | None
    interrupted: int
    paper_mib_per_phone: float = PAPER_MIB_PER_PHONE

    @property
    def uploaded(self) -> tuple[PhoneRound, ...]:
        """The phones whose update the server accepted."""
        return tuple(phone for phone in self.phones if phone.receipt is not None)

    @property
    def dropped_out(self) -> tuple[PhoneRound, ...]:
        """The others."""
        return tuple(phone for phone in self.phones if phone.receipt is None)

    def document(self) -> dict[str, Any]:
        """The JSON document."""
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **msgspec.to_builtins(self)}
