"""The result of `phonograd phone-round`, with the fields of its JSON document: schema phonograd.round, version 1.

Seconds are wall time by this machine's clock unless a name says otherwise. docs/phone-round.md describes the fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from phonograd.android_harness.errors import PhoneRunError
from phonograd.android_harness.result import KeptAwake, OutputLayer, PowerState
from phonograd.device_runtime.base.documents import Amount, Count, FieldError, Number, Positive, Sha256, read
from phonograd.device_runtime.client.server_client import UploadReceipt

SCHEMA = "phonograd.round"
SCHEMA_VERSION = 1
# Paper P: upload of each phone per round.
PAPER_MIB_PER_PHONE = 174.43

# A phone's stages in a round, in this order; in a masked round, mask in place of pull and upload. At the end its update
# was accepted, or it dropped out.
Stage = Literal["ready", "place", "text", "push", "train", "pull", "upload", "mask"]
End = Literal["accepted", "out"]


@dataclass(frozen=True)
class DropOut:
    """Why a phone's update did not reach the server: the stage, one line, and the error's exit code."""

    stage: Stage
    message: str
    exit_code: int


class Training(msgspec.Struct, frozen=True):
    """One epoch on a phone, as phonograd-phone reported it; `seconds` is the sum of its steps by the phone's clock."""

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
    output_layer: OutputLayer
    duty: Number
    nice: int
    rest_seconds: Amount


class PulledUpdate(msgspec.Struct, frozen=True):
    """An update pulled from a phone; `kept` is its path on this machine until the server has it."""

    codec: str
    nbytes: Count
    sha256: Sha256
    kept: str | None = None


def read_training(report: Mapping[str, Any]) -> tuple[Training, PulledUpdate]:
    """What phonograd-phone's report says. Raises PhoneRunError if a field is missing or wrong."""
    try:
        return read(Training, report), read(PulledUpdate, report.get("update"))
    except FieldError as error:
        raise PhoneRunError(f"phonograd-phone's report has a missing or wrong field ({error})") from error


@dataclass
class PhoneRound:
    """One phone's part of the round, which fills in as it goes on; None: the phone dropped out earlier.

    `seconds` by stage: push, train, pull and upload, or mask. `power_before` and `power` are the states of screen, doze
    and battery saver before and while it trained, `kept_awake` what was changed for that. `identity` is its public key
    in masked rounds, hex. `remark` is an error that did not cost the update.
    """

    serial: str
    name: str
    model: str | None
    seed: int
    seconds: dict[str, float] = field(default_factory=dict)
    pushed_bytes: int | None = None
    power_before: PowerState | None = None
    power: PowerState | None = None
    kept_awake: KeptAwake | None = None
    identity: str | None = None
    training: Training | None = None
    update: PulledUpdate | None = None
    receipt: UploadReceipt | None = None
    drop_out: DropOut | None = None
    remark: str | None = None

    @property
    def ended(self) -> bool:
        """Whether the server has its update, or it dropped out."""
        return self.receipt is not None or self.drop_out is not None


@dataclass(frozen=True)
class ServerLedger:
    """The server's ledger of the round and its phones, with the server's field names (docs/server.md)."""

    round: Mapping[str, Any]
    phones: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True)
class RoundReport:
    """The result of a round that began at `created` (ISO 8601, UTC).

    model_before, model_after: hex SHA-256; after is None if the round is still open or the server did not say. closed:
    None if the server did not answer. downloaded_bytes: of the model, 0 if it was cached. update_bytes: of the accepted
    updates of these phones. ledger: None if the server did not give it; ledger_missing says why. interrupted: number of
    the signal that stopped the round, 0 for none. paper_mib_per_phone: upload of a phone in paper P.
    masked: whether phones masked their updates.
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
    masked: bool = False
    paper_mib_per_phone: float = PAPER_MIB_PER_PHONE

    @property
    def uploaded(self) -> tuple[PhoneRound, ...]:
        """The phones whose update the server accepted."""
        return tuple(phone for phone in self.phones if phone.receipt is not None)

    @property
    def dropped_out(self) -> tuple[PhoneRound, ...]:
        """The phones that dropped out."""
        return tuple(phone for phone in self.phones if phone.receipt is None)

    def document(self) -> dict[str, Any]:
        """The JSON document."""
        return {"schema": SCHEMA, "schema_version": SCHEMA_VERSION, **msgspec.to_builtins(self)}
