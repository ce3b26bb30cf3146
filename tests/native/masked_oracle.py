"""What a server of masked rounds can compute from all that it got: which sums of updates, and whether they are allowed.

Each masked update is an equation: the update, and the masks that the server can't derive, are its unknowns. Eliminating
the masks leaves the sums that the server learns.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from phonograd.device_runtime.formats.tensor_file import Array
from tests.native.hostile_server import HostileRound, Upload
from tests.reference.masked import agree, derive, stream, value_at

Update = tuple[str, str]  # of which phone, and which model
SELF, MASKING = 1, 0
PRIME = 2**31 - 1


@dataclass(frozen=True)
class Learned:
    """A sum that the server computed: how often each update is in it, and its values modulo 2^width."""

    updates: dict[Update, int]
    values: Array
    width: int


class Oracle:
    """Knows one round's messages, and the secrets of the phones that work with the server."""

    def __init__(self, round_: HostileRound):
        self.round = round_
        self.secrets: tuple[dict[str, bytes], dict[str, bytes]] = ({}, {})  # MASKING, SELF
        for name, helper in round_.helpers.items():
            self.secrets[MASKING][name], self.secrets[SELF][name] = helper.masking, helper.self_mask
        for name, answer in round_.sent["answer"].items():
            self.secrets[SELF][name] = bytes.fromhex(answer["self"])
        for name in round_.phones:
            for kind in (MASKING, SELF):
                secret = self._join_shares(name, kind)
                if secret is not None:
                    self.secrets[kind][name] = secret

    def _join_shares(self, name: str, kind: int) -> bytes | None:
        """A phone's secret from the shares of it that the server has, if they are enough."""
        cohort = self.round.cohorts.get(name)
        if name not in self.round.sent["shares"] or cohort is None:
            return None
        holders = cohort.holders(name)
        shares = {x: share for x, holder in enumerate(holders, 1) if (share := self._share(name, holder, kind))}
        some = dict(list(shares.items())[: cohort.t])
        if len(some) < cohort.t:
            return None
        secret = value_at(0, some)
        return secret if cohort.is_secret(name, secret, kind == SELF) else None

    def _share(self, name: str, holder: str, kind: int) -> bytes | None:
        round_ = self.round
        if holder in round_.helpers:
            return self._open_share(name, holder, kind)
        answer = round_.sent["answer"].get(holder)
        if answer is None or name not in answer["shares"]:
            return None
        said = SELF if name in round_.cohorts[holder].alive else MASKING
        return bytes.fromhex(answer["shares"][name]) if said == kind else None

    def _open_share(self, name: str, holder: str, kind: int) -> bytes | None:
        cohort, helper = self.round.cohorts[name], self.round.helpers[holder]
        key = derive(agree(helper.sealing, cohort.keys[name]["sealing"]), cohort.id, "phonograd-seal-1", name, holder)
        sealed = bytes.fromhex(self.round.sent["shares"][name]["shares"][holder])
        try:
            piece = ChaCha20Poly1305(key).decrypt(bytes(12), sealed, None)
        except InvalidTag:  # it was sealed for a key that the server put in the accomplice's place
            return None
        return piece[1:33] if kind == MASKING else piece[33:]

    def equation(self, upload: Upload) -> tuple[dict[object, int], Array]:
        """The masks in an update that stay unknown, with their signs, and its values without the others."""
        cohort, name, count = upload.cohort, upload.phone, len(upload.values)
        assert cohort.grid is not None
        width, values, unknown = cohort.grid.width, upload.values.astype(np.uint32), dict[object, int]()
        if name in self.secrets[SELF]:
            values = values - stream(derive(self.secrets[SELF][name], cohort.id, "phonograd-self-1"), width, count)
        else:
            unknown["self", name, self.round.number] = 1
        for other in cohort.of_cohort:
            if not cohort.are_neighbours(name, other):
                continue
            if name in self.secrets[MASKING]:
                values = values - cohort.mask(name, other, self.secrets[MASKING][name], count, width)
            elif other in self.secrets[MASKING]:
                values = values + cohort.mask(other, name, self.secrets[MASKING][other], count, width)
            else:
                unknown[cohort.id, frozenset((name, other))] = 1 if name.encode() < other.encode() else -1
        return unknown, values


def sums_learned(rounds: Iterable[HostileRound]) -> list[Learned]:
    """The simplest sums that the rounds' messages give, of which all others are made."""
    equations = [(upload, *Oracle(one).equation(upload)) for one in rounds for upload in one.uploads]
    masks = sorted({mask for _, unknown, _ in equations for mask in unknown}, key=repr)
    updates = sorted({(upload.phone, upload.base) for upload, _, _ in equations})
    first, second = len(masks), len(masks) + len(updates)
    rows = np.zeros((len(equations), second + len(equations)), np.int64)
    for row, (upload, unknown, _) in enumerate(equations):
        for mask, sign in unknown.items():
            rows[row, masks.index(mask)] = sign
        rows[row, first + updates.index((upload.phone, upload.base))] = rows[row, second + row] = 1
    found = []
    for row in reduce_rows(rows, second):
        if row[:first].any() or not row[first:second].any():
            continue
        grid = equations[0][0].cohort.grid
        assert grid is not None
        parts = zip(row[second:], equations, strict=True)
        values = sum(int(factor) * equation.astype(np.int64) for factor, (_, _, equation) in parts)
        of_updates = {one: int(factor) for one, factor in zip(updates, row[first:second], strict=True) if factor}
        found.append(Learned(of_updates, np.asarray(values) % (1 << grid.width), grid.width))
    return found


def reduce_rows(rows: Array, columns: int) -> Array:
    """Return the rows in reduced echelon form by their first columns, modulo a prime, as numbers from -PRIME / 2."""
    rows, done = rows % PRIME, 0
    for column in range(columns):
        pivots = np.flatnonzero(rows[done:, column])
        if not len(pivots):
            continue
        rows[[done, done + pivots[0]]] = rows[[done + pivots[0], done]]
        rows[done] = rows[done] * pow(int(rows[done, column]), -1, PRIME) % PRIME
        factors = rows[:, column].copy()
        factors[done] = 0
        rows = (rows - factors[:, None] * rows[done]) % PRIME
        done += 1
    return np.where(rows > PRIME // 2, rows - PRIME, rows)


def leaks(learned: Sequence[Learned], least: int) -> list[Learned]:
    """The sums that no server may learn: not of whole updates, of fewer than `least`, of one that another has too."""
    seen: dict[Update, int] = {}
    for one in learned:
        for update in one.updates:
            seen[update] = seen.get(update, 0) + 1
    return [
        one
        for one in learned
        if len(one.updates) < least
        or set(one.updates.values()) != {1}
        or any(seen[update] > 1 for update in one.updates)
    ]
