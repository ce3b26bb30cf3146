"""The noise key of the open round, for several servers: the SHA-256 of two halves, one in the ledger, one in the store.

It is gone as soon as either half is. PostgreSQL's log, backups and dead rows keep a half that was deleted; so may a
bucket with versions; neither tells anything without the other. The half in the ledger is deleted by the transaction
that ends the round, the other one soon after it.

One key for all servers: whoever is first puts its half into the ledger, in a transaction. The other half was stored
before, at a name that follows from this one, so what the ledger has is never without it. If it is, ledger and store are
of different times: one of them was restored.
"""

import hashlib
import re
import secrets

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.aggregation.privacy.noise import KEY_BYTES
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.stores import ObjectStore
from phonograd.server_agg.storage.tables import Round

FOLDER = "noise"
NAME = re.compile(r"([0-9]+)-[0-9a-f]{64}\Z")  # only these are deleted
KEY, PLACE = b"phonograd-shared-noise-key-v1", b"phonograd-shared-noise-place-v1"


class SharedNoiseKeys:
    """The keys of the rounds in a ledger. Every method raises StorageError."""

    def __init__(self, ledger: Ledger, store: ObjectStore):
        self._ledger, self._store = ledger, store

    def get_or_create(self, number: int) -> bytes:
        """The key of open round `number`, the same at all servers, until the round ends."""
        half = self._half(number) or self._create(number)
        name = _place(number, half)
        if not self._store.has(name):
            self._half(number)  # the round may have ended
            raise StorageError(
                f"{name}: missing in the store, half of the noise key of round {number}: the ledger and the store are "
                "of different times; restore both of the same, or give up the round's updates and its key: phonograd "
                "rollback"
            )
        other = self._store.read(name)
        if len(other) != KEY_BYTES:
            raise StorageError(f"{name}: expected {KEY_BYTES} bytes in the store, found {len(other)}; restore it")
        return hashlib.sha256(KEY + bytes.fromhex(half) + other).digest()

    def delete_all_except(self, number: int) -> None:
        """Delete the stored halves of all rounds before `number`: of later ones, a server may be making some."""
        found = [(name, NAME.match(name)) for name in self._store.names(FOLDER)]
        self._store.delete(f"{FOLDER}/{name}" for name, match in found if match and int(match[1]) < number)

    def _half(self, number: int) -> str | None:
        with self._ledger.reading() as session:
            return _expect_open(session.get_one(Round, number)).noise_half

    def _create(self, number: int) -> str:
        half = secrets.token_bytes(KEY_BYTES).hex()
        self._store.write(secrets.token_bytes(KEY_BYTES), _place(number, half))
        with self._ledger.writing() as session:
            row = _expect_open(session.get_one(Round, number))
            kept = row.noise_half = row.noise_half or half
        if kept != half:
            self._store.delete([_place(number, half)])
        return kept


def _expect_open(row: Round) -> Round:
    if row.closed_at is not None:
        raise StorageError(f"round {row.number}: another server ended it, and its noise key is gone")
    return row


def _place(number: int, half: str) -> str:
    return f"{FOLDER}/{number}-{hashlib.sha256(PLACE + bytes.fromhex(half)).hexdigest()}"
