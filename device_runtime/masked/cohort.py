"""The server's side of a masked round: what its cohort agreed on, and the sum of its updates. See phonograd.h."""

import json
from collections.abc import Collection, Mapping
from ctypes import POINTER, c_float, c_int32, cast
from ctypes import string_at as text_at
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.device_runtime.base.documents import Record
from phonograd.device_runtime.engine.c_abi import Handle, load_library
from phonograd.device_runtime.formats.tensor_file import Array

Message = Mapping[str, Any]


class About(Record, frozen=True):
    """Figures that follow from settings and a model.

    width: bits of a value of a masked update
    values: number of values of a masked update
    elements: size of the vector of deltas
    step: step of the grid
    noise: standard deviation of a phone's noise, in steps
    sensitivity: how far one phone can move the decoded sum over `weight_cap`, in L2, if it clips
    honest: phones of the smallest cohort that are in the sum for sure and don't work with the server
    """

    width: int
    values: int
    elements: int
    step: float
    noise: float
    sensitivity: float
    honest: int


def check_settings(settings: str, parameters: int = 0) -> About:
    """Check a round's settings, for a model of `parameters` weights that are not frozen.

    0: for no model; `width` has no noise then, and values, elements, step and noise mean nothing. Raises UsageError.
    """
    (found,) = load_library().call("pg_masked_check", settings, parameters)
    return About(**{name: getattr(found, name) for name in About.__struct_fields__})


class Fixed(Record, frozen=True):
    """Figures of a fixed cohort.

    cohort: its hash K; W once its draws are known
    chance: chance of two phones being neighbours, out of 256
    threshold: number of shares that give a secret
    agree: how many phones must agree on who is alive
    """

    cohort: str
    chance: int
    threshold: int
    agree: int


class Unmasked(Record, frozen=True):
    """The result of unmasking.

    wrong: phones whose shares did not fit
    weight: the sum of the phones' weights
    """

    wrong: tuple[str, ...]
    weight: int


class MaskedCohort(Handle):
    """The agreement of a cohort: pg_cohort, whose functions are called in this order. One thread at a time.

    Messages are FORMAT.md's. Raises UsageError for settings out of range; each check UpdateError, with the reason.
    """

    def __init__(self, number: int, base_sha256: str, settings: str, vendor: str | None):
        self._settings = settings
        super().__init__(load_library(), "cohort", number, base_sha256, settings, vendor)

    def about(self, parameters: int) -> About:
        """Return the figures for a model of `parameters` weights that are not frozen."""
        return check_settings(self._settings, parameters)

    def check_keys(self, message: Message) -> None:
        """Check a phone's message of keys."""
        self._check("keys", message["phone"], message)

    def fix(self, keys: Collection[Message]) -> Fixed:
        """The cohort is fixed: these messages, in any order."""
        return self._fix("cohort", list(keys))

    def check_draw(self, phone: str, message: Message) -> None:
        """Check that a phone's draw is the one that its keys announced."""
        self._check("draws", phone, message)

    def draws(self, draws: Mapping[str, str]) -> None:
        """The draws are fixed, of all that told theirs, by name: they say who is whose neighbour."""
        self._fix("draws", draws)

    def check_shares(self, phone: str, message: Message) -> None:
        """Check whom a phone's shares are for."""
        self._check("shares", phone, message)

    def members(self, names: Collection[str]) -> None:
        """The members are fixed, who sent shares."""
        self._fix("members", sorted(names))

    def check_members(self, phone: str, signature: str) -> None:
        """Check a phone's signature of the members."""
        self._check("members", phone, {"signature": signature})

    def list(self, alive: Collection[str], signatures: Mapping[str, str]) -> None:
        """Fix the list of the members whose update was accepted. signatures: the members', of the members, by name."""
        self._fix("alive", sorted(alive), signatures=signatures)

    def check_agreement(self, phone: str, signature: str) -> None:
        """Check a phone's signature of the list."""
        self._check("agreement", phone, {"signature": signature})

    def check_answer(self, phone: str, message: Message) -> None:
        """Check a phone's answer, as far as it alone shows."""
        self._check("answer", phone, message)

    def _check(self, kind: str, phone: str, message: Message) -> None:
        self._library.call("pg_cohort_check", self.handle, kind, phone, json.dumps(message))

    def _fix(self, what: str, fixed: object, **more: object) -> Fixed:
        (address,) = self._library.call("pg_cohort_fix", self.handle, what, json.dumps({what: fixed, **more}))
        return Fixed(**json.loads(text_at(address)))


class MaskedSum(Handle):
    """The sum of masked updates, in one uint32 for each value. One thread at a time; `threads` inside, 0: 2."""

    def __init__(self, values: int, width: int, threads: int = 0):
        self._values = values
        super().__init__(load_library(), "sum", values, width, threads)

    def add(self, cohort: MaskedCohort, path: Path) -> None:
        """Add a masked update that was not added yet. Raises UpdateError, with nothing changed, for a wrong file."""
        self._library.call("pg_sum_add", self.handle, cohort.handle, path)

    def add_grid(self, path: Path) -> None:
        """Add a grid update as its phone would mask it, with its noise and without masks: for simulations."""
        self._library.call("pg_sum_add_grid", self.handle, path)

    def unmask(self, cohort: MaskedCohort, answers: Mapping[str, Message]) -> Unmasked:
        """Take the masks out of the sum of all that are alive.

        Raises UpdateError, and the sum is of no use, if a secret can't be put together, or if no codes have this sum.
        """
        (address,) = self._library.call("pg_sum_unmask", self.handle, cohort.handle, json.dumps(answers))
        found = json.loads(text_at(address))
        return Unmasked(tuple(found["wrong"]), found["weight"])

    def values(self) -> Array:
        """A copy of the values, int32, once they are unmasked."""
        (address,) = self._library.call("pg_sum_values", self.handle)
        return np.ctypeslib.as_array(cast(address, POINTER(c_int32)), (self._values,)).copy()

    def decode(self, cohort: MaskedCohort, divisor: float, elements: int) -> Array:
        """The sum's deltas over `divisor`, float32 [elements], in place of the values: valid until close. Once."""
        (address,) = self._library.call("pg_sum_decode", self.handle, cohort.handle, divisor)
        return np.ctypeslib.as_array(cast(address, POINTER(c_float)), (elements,))
