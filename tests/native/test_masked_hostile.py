"""Phones of masked rounds and a hostile server: what they then do is leave, with their secrets gone."""

from pathlib import Path
from typing import Any

import pytest

from phonograd.device_runtime.base.errors import UpdateError, UsageError
from phonograd.device_runtime.masked.cohort import MaskedCohort
from phonograd.device_runtime.masked.phone import certify, new_identity, public_identity
from tests.native.masked_phones import (
    Document,
    Fleet,
    NativePhone,
    message,
    mixed,
    of_all,
    opened,
    shares_for,
    until_list,
    until_shares,
)
from tests.reference import masked as reference


def refuses(phone: Any, reply: Document, reason: str) -> None:
    with pytest.raises(UpdateError, match=reason):
        phone.next(reply)
    assert phone.first() is None


def swapped(keys: list[Document], name: str, **changes: Any) -> list[Document]:
    return [one | changes if one["phone"] == name else one for one in keys]


def test_a_phone_refuses_a_hostile_cohort(trio: tuple[Fleet, dict[str, Any]], tmp_path: Path) -> None:
    _, phones = trio
    keys = [message(phone.first(), "keys") for phone in phones.values()]
    other = Fleet(tmp_path, number=2)
    stranger = message(other.phone("x", tmp_path / "a.grid").first(), "keys")
    refuses(phones["a"], {"cohort": swapped(keys, "b", masking=keys[2]["masking"])}, "signature of its keys")
    refuses(phones["b"], {"cohort": [*keys, stranger]}, "not of this round, model and settings")
    refuses(phones["c"], {"cohort": keys[:2]}, "2 phones: 3 to 64 expected")
    refuses(phones["d"], {"cohort": keys[:3]}, "phone d: is not in the cohort")
    refuses(
        phones["e"], {"cohort": [*keys, keys[0]]}, "phone a: has a key, self mask or draw that the cohort has already"
    )


def test_a_phone_has_a_least_cohort_of_its_own(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    phone = fleet.phone("a", fleet.grid("a", 1), min_cohort=50)
    others = [fleet.phone(name, fleet.grid(name, 2)) for name in "bcd"]
    keys = [message(one.first(), "keys") for one in (phone, *others)]
    refuses(phone, {"cohort": keys}, "4 phones in the cohort, at least 50 expected")


def test_a_phone_of_another_model_or_other_settings_is_refused(tmp_path: Path) -> None:
    fleet, other = Fleet(tmp_path), Fleet(tmp_path)
    other.settings["clip"] = 0.4
    keys = message(other.phone("b", other.grid("b", 1)).first(), "keys")
    with pytest.raises(
        UpdateError, match="phone b: the signature of its keys is not of this round, model and settings"
    ):
        opened(MaskedCohort, fleet).check_keys(keys)


def test_only_the_vendors_phones_are_let_in(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    vendor, wrong = (new_identity(tmp_path / name) for name in ("vendor.key", "wrong.key"))
    grid = fleet.grid("a", 1)
    fleet.phone("a", grid).phone.close()
    identity = public_identity(tmp_path / "a.key")
    for key, good in (("vendor.key", True), ("wrong.key", False)):
        fleet.number += 1
        phone = fleet.phone("a", grid, certificate=certify(tmp_path / key, "a", identity), vendor=vendor)
        cohort = opened(MaskedCohort, fleet, vendor)
        sent = message(phone.first(), "keys")
        phone.phone.close()
        if good:
            cohort.check_keys(sent)
            continue
        with pytest.raises(UpdateError, match="phone a: a certificate by the vendor"):
            cohort.check_keys(sent)
    assert wrong != vendor


def test_phones_are_known_by_their_first_key(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    phones = {name: fleet.phone(name, fleet.grid(name, 1)) for name in "abc"}
    until_list(phones)
    (tmp_path / "b.key").unlink()
    for name in "abc":
        phones[name].phone.close()
    (tmp_path / "b.state" / "history.json").unlink()
    later = Fleet(tmp_path, number=2, seed=8)
    again = {name: later.phone(name, later.grid(name, 1)) for name in "abc"}
    keys = [message(phone.first(), "keys") for phone in again.values()]
    refuses(again["a"], {"cohort": keys}, "phone b has another identity than before")


def test_a_phone_refuses_draws_that_are_none(trio: tuple[Fleet, dict[str, Any]]) -> None:
    _, phones = trio
    keys = [message(phone.first(), "keys") for phone in phones.values()]
    draws = {name: message(sent, "draws")["draw"] for name, sent in of_all(phones, {"cohort": keys}).items()}
    refuses(phones["a"], {"draws": draws | {"b": draws["c"]}}, "phone b: its draw is not the one that it announced")
    refuses(phones["b"], {"draws": {name: draws[name] for name in "acd"}}, "this phone's draw is missing")
    refuses(phones["c"], {"draws": {name: draws[name] for name in "cd"}}, "2 phones told their draws, at least 3")


def test_a_phone_leaves_if_another_has_a_key_that_is_none(tmp_path: Path) -> None:
    """Of low order, signed by its owner: no shares can be sealed for it."""
    phones, _ = mixed(Fleet(tmp_path), 4)
    keys = [message(phone.first(), "keys") for phone in phones.values()]
    hostile, sent = phones["p001"], keys[1]
    sent["sealing"] = "00" * 32
    sent["signature"] = hostile.signed(hostile.cohort.keys_text(sent))
    draws = {name: phones[name].draw.hex() for name in ("p001", "p003")}
    for name in ("p000", "p002"):
        draws[name] = message(phones[name].next({"cohort": keys}), "draws")["draw"]
    refuses(phones["p000"], {"draws": draws}, "phones p000 and p001: a public key of one of them is no key")
    assert {path.name for path in (tmp_path / "p000.state").iterdir()} == {"history.json"}


def test_a_phone_that_is_left_alone_with_others_masks_is_noticed(tmp_path: Path) -> None:
    """A server that knows the graph lists a phone's neighbours as dead, to be left with its masks alone."""
    fleet = Fleet(tmp_path)
    fleet.settings |= {"curious": 0.02, "dropouts": 0.4}
    phones, _ = mixed(fleet, 60)
    found = until_list(phones)
    cohort = found.cohort(reference.Cohort, fleet)
    facts = cohort.fix(found.keys)
    cohort.draws(found.draws)
    assert facts.chance < 200
    victim = "p000"
    neighbours = cohort.neighbours(victim)
    dead = neighbours[: max(0, len(neighbours) - facts.threshold + 1)]
    alive = [name for name in phones if name not in dead]
    with pytest.raises(UpdateError, match="of its neighbours are alive, at least"):
        phones[victim].next(found.listed(alive))
    other = next(phones[name] for name in alive if name != victim and isinstance(phones[name], NativePhone))
    with pytest.raises(UpdateError, match="of its neighbours are alive, at least"):
        other.next(found.listed(alive))


def test_a_phone_refuses_hostile_members(trio: tuple[Fleet, dict[str, Any]]) -> None:
    _, phones = trio
    _, _, shares = until_shares(phones)
    everybody, mine = sorted(shares), {name: shares_for(name, shares) for name in phones}
    refuses(phones["a"], {"members": ["b", "c", "d"], "shares": mine["a"]}, "this phone is no member")
    refuses(phones["b"], {"members": [*everybody, "x"], "shares": mine["b"]}, "phone x: is not in the cohort")
    refuses(phones["c"], {"members": ["c", "d"], "shares": mine["c"]}, "phone c: 1 of its neighbours are members, at")
    # A share that does not open is its sender's fault: the phone goes on, and answers without it.
    broken = mine["d"] | {"a": mine["d"]["b"]}
    assert phones["d"].next({"members": everybody, "shares": broken})[0] == "members"


def test_a_phone_refuses_a_list_that_is_none(trio: tuple[Fleet, dict[str, Any]]) -> None:
    _, phones = trio
    listed = until_list(phones).listed
    refuses(phones["a"], listed(["b", "c", "d"]), "listed dead, although its update was accepted")
    refuses(phones["b"], listed(["a", "b", "c", "c"]), "phone c: listed twice")
    refuses(phones["c"], listed(["c", "d"]), "phone c: 1 of its neighbours are alive, at least 2 expected")
    refuses(phones["d"], listed(["a", "b", "c", "d", "x"]), "phone x: is not in the cohort")
    refuses(phones["e"], {"dead": ["a"]}, "`alive` expected")


def test_phones_that_are_shown_two_lists_answer_nobody(trio: tuple[Fleet, dict[str, Any]]) -> None:
    """Who is dead to one half and alive to the other would lose both secrets."""
    _, phones = trio
    listed = until_list(phones).listed
    halves = ({"a": phones["a"], "b": phones["b"], "c": phones["c"]}, {"d": phones["d"], "e": phones["e"]})
    signed = {}
    for half, alive in zip(halves, (["a", "b", "c"], ["a", "b", "c", "d", "e"]), strict=True):
        signed |= {name: message(sent, "agreement")["signature"] for name, sent in of_all(half, listed(alive)).items()}
    for name in phones:  # 3 of 5 must agree: at most one half can
        agree = 3 if name in "abc" else 2
        if agree < 3:
            refuses(phones[name], {"signatures": signed}, "2 phones agree on who is alive, 3 expected")
    refuses(phones["a"], {"signatures": dict.fromkeys(phones, signed["a"])}, "1 phones agree")


def test_a_phone_answers_once_and_gives_one_share_of_each(trio: tuple[Fleet, dict[str, Any]]) -> None:
    _, phones = trio
    listed = until_list(phones).listed
    gone = phones.pop("e")
    alive = sorted(phones)
    signatures = {name: message(one, "agreement")["signature"] for name, one in of_all(phones, listed(alive)).items()}
    answers = {name: message(one, "answer") for name, one in of_all(phones, {"signatures": signatures}).items()}
    for name, answer in answers.items():
        assert set(answer["shares"]) == {*"abcde"} - {name}
    # The list is settled: a second one, or a second request to unmask, gets nothing else.
    again = phones["a"].first()
    assert message(again, "answer") == answers["a"]
    assert phones["a"].next(listed([*alive, "e"])) is None
    with pytest.raises(UsageError, match="is done"):
        phones["a"].next({"signatures": signatures})
    del gone
