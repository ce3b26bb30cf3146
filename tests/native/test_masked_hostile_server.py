"""A hostile server, whose choices hypothesis draws: of what it gets it can compute no sums but those that it may know.

Each mend is taken out of a copy of the native sources, and out of the reference's phones: then the same server wins.
"""

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, find, given, settings

from phonograd.device_runtime.engine.c_abi import NativeLibrary
from phonograd.device_runtime.masked import phone as native_phone
from phonograd.device_runtime.native_build import build_host_library
from phonograd.device_runtime.native_build.targets import NATIVE
from tests.native.hostile_server import HONEST, MOST, HostileRound, Isolating, Plan, World, plans, run
from tests.native.masked_oracle import Learned, leaks, sums_learned
from tests.reference import masked
from tests.reference.masked_phone import Memory, Opened, Phone

Patch = tuple[str, str, str]  # file in src/masked, a text in it, and what takes its place


class UnsignedCohort(masked.Cohort):
    """Nobody looks at its members' signatures."""

    def check_members(self, phone: str, signature: str) -> None:
        pass


class UncountedCohort(UnsignedCohort):
    """Nor counts a member's neighbours."""

    def members(self, names: Any) -> None:
        t, self.t = self.t, 0
        super().members(names)
        self.t = t


class Unsigned(Phone):
    cohort_kind = UnsignedCohort


class Uncounted(Phone):
    cohort_kind = UncountedCohort


class Forgetful(Memory):
    """Takes part with any model again."""

    def begin(self, opened: Opened) -> None:
        self.bases.clear()
        super().begin(opened)


@dataclass(frozen=True)
class Variant:
    """Phones without a mend: patches of native ones, and the reference's. small: t is the least that is safe, as if
    most phones might be lost, so that few have to be called dead.
    """

    patches: tuple[Patch, ...] = ()
    kind: type[Phone] = Phone
    memory: type[Memory] = Memory
    small: bool = False


SMALL = ("graph.cpp", "    double enough = 0;\n", "    if (a == kAlways) t = c + 1;\n    double enough = 0;\n")
SIGNED = ("cohort.cpp", "  if (is_signed(phones_[phone].identity, membership_,", '  if (true || is_signed("", "",')
COUNTED = ("cohort.cpp", '  require_neighbours(members, "are members");\n', "")
BASES = ("phone.cpp", "  if (has_sent()) {", "  if (false && has_sent()) {")
MENDED = Variant()
SMALL_MENDED = Variant((SMALL,), small=True)
UNSIGNED = Variant((SIGNED,), Unsigned)
SMALL_UNSIGNED = Variant((SMALL, SIGNED), Unsigned, small=True)
UNCOUNTED = Variant((SIGNED, COUNTED), Uncounted)
FORGETFUL = Variant((BASES,), memory=Forgetful)


@contextlib.contextmanager
def phones_of(variant: Variant, folder: Path, **given: Any) -> Iterator[World]:
    """A world of such phones, every other one of them native."""
    with pytest.MonkeyPatch.context() as patch:
        if variant.patches:
            library = NativeLibrary(build_host_library(root=patch_copy(variant, folder / "native")).path)
            patch.setattr(native_phone, "load_library", lambda: library)
        if variant.small:
            patch.setattr(masked, "rule", small_rule)
        yield World(folder, lambda index: index % 2 == 0, variant.kind, variant.memory, **given)


def patch_copy(variant: Variant, copy: Path) -> Path:
    """Copy the native sources, without the mend."""
    shutil.copytree(NATIVE, copy, ignore=shutil.ignore_patterns("lib"))
    for file, old, new in variant.patches:
        path = copy / "src" / "masked" / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file}: expected once: {old}"
        path.write_text(text.replace(old, new))
    return copy


def small_rule(phones: int, curious: float, _dropouts: float) -> tuple[int, int, int]:
    c = int(curious * phones)
    return 256, c + 1, (phones + c) // 2 + 1


def learned_in(world: World, rounds: list[HostileRound]) -> list[Learned]:
    """What the server learned; each sum is the true one."""
    models = {fleet.base.sha256(): place for place, fleet in enumerate(world.fleets)}
    learned = sums_learned(rounds)
    for one in learned:
        values = [world.values[models[base]][world.names.index(phone)] for phone, base in one.updates]
        true = sum(factor * value for factor, value in zip(one.updates.values(), values, strict=True))
        np.testing.assert_array_equal(one.values, true % (1 << one.width))
    return learned


def least(plan: Plan) -> int:
    """Honest phones of the smallest sum that is allowed."""
    return 3 - plan.accomplices


def search(world: World, draws: int) -> None:
    """Fail at the first plan by which the server learns more than it may."""

    @settings(max_examples=draws, database=None)
    @given(plans())
    def learns_sums_alone(plan: Plan) -> None:
        assert not leaks(learned_in(world, run(world.begin(), plan)), least(plan))

    learns_sums_alone()


@pytest.mark.long
def test_of_lists_that_hypothesis_draws_none_gives_an_update_away(tmp_path: Path) -> None:
    with phones_of(MENDED, tmp_path) as world:
        search(world, 8)


def test_an_honest_round_gives_its_sum_away_and_no_other(tmp_path: Path) -> None:
    """The oracle solves what it should."""
    with phones_of(MENDED, tmp_path) as world:
        plan = Plan(MOST, 2, HONEST, HONEST, HONEST, HONEST)
        learned = learned_in(world, run(world.begin(), plan))
        assert [len(one.updates) for one in learned] == [10]


SPARSE = {"count": 60, "settings": {"cohort": 60, "curious": 0.1, "dropouts": 0.2}}


def isolate(world: World, dead: int) -> list[Learned]:
    """The sums that a server learns that shows one phone members of its own, `dead` of them neighbours."""
    plan = Plan(world.count, 0, HONEST, HONEST, replace(HONEST), replace(HONEST))
    return learned_in(world, [Isolating(world.begin(), plan, world.names[0], dead).run()])


@pytest.mark.long
def test_members_of_its_own_give_no_phone_away(tmp_path: Path) -> None:
    """Neither without neighbours, which the phone itself refuses, nor with t that others are told are dead."""
    with phones_of(MENDED, tmp_path, **SPARSE) as world:
        t = masked.rule(60, 0.1, 0.2)[1]
        assert [isolate(world, dead) for dead in (0, t)] == [[], []]


@pytest.mark.long
@pytest.mark.parametrize("variant, dead", [(UNCOUNTED, 0), (UNSIGNED, 8)], ids=["alone", "with the dead"])
def test_without_signatures_they_do(tmp_path: Path, variant: Variant, dead: int) -> None:
    with phones_of(variant, tmp_path, **SPARSE) as world:
        assert world.names[0] in [
            phone for one in isolate(world, dead) if len(one.updates) == 1 for phone, _ in one.updates
        ]


@pytest.mark.long
def test_with_the_smallest_thresholds_none_gives_an_update_away(tmp_path: Path) -> None:
    with phones_of(SMALL_MENDED, tmp_path) as world:
        search(world, 60)


@pytest.mark.long
@pytest.mark.parametrize("variant", [SMALL_UNSIGNED, FORGETFUL], ids=["signature", "model"])
def test_without_a_mend_the_search_finds_an_update(tmp_path: Path, variant: Variant) -> None:
    with phones_of(variant, tmp_path) as world:
        found = find(
            plans(),
            lambda plan: bool(leaks(learned_in(world, run(world.begin(), plan)), least(plan))),
            settings=settings(max_examples=200, phases=[Phase.generate], database=None),
        )
    assert found
