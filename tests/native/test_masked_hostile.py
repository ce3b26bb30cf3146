"""Phones of masked rounds and a hostile server: what they then do is leave, with their secrets gone."""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import (
    StateError,
    StorageError,
    TookPartError,
    UpdateError,
    UsageError,
)
from phonograd.device_runtime.masked.cohort import MaskedCohort
from phonograd.device_runtime.masked.phone import certify, new_identity, public_identity
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update
from tests.native.masked_phones import (
    SHAPES,
    Document,
    Fleet,
    NativePhone,
    message,
    mix_phones,
    of_all,
    open_cohort,
    shares_for,
    until_list,
    until_shares,
)
from tests.reference import masked as reference
from tests.reference.masked_phone import Opened, Phone


def refuses(phone: Any, reply: Document, reason: str) -> None:
    with pytest.raises(UpdateError, match=reason):
        phone.next(reply)
    assert phone.first() is None


def swap_keys(keys: list[Document], name: str, **changes: Any) -> list[Document]:
    return [one | changes if one["phone"] == name else one for one in keys]


def test_a_phone_refuses_a_hostile_cohort(trio: tuple[Fleet, dict[str, Any]], tmp_path: Path) -> None:
    _, phones = trio
    keys = [message(phone.first(), "keys") for phone in phones.values()]
    other = Fleet(tmp_path, number=2)
    stranger = message(other.phone("x", tmp_path / "a.grid").first(), "keys")
    refuses(phones["a"], {"cohort": swap_keys(keys, "b", masking=keys[2]["masking"])}, "signature of its keys")
    refuses(phones["b"], {"cohort": [*keys, stranger]}, "not of this round, model and settings")
    refuses(phones["c"], {"cohort": keys[:2]}, "2 phones: 3 to 64 expected")
    refuses(phones["d"], {"cohort": keys[:3]}, "phone d: is not in the cohort")
    refuses(
        phones["e"], {"cohort": [*keys, keys[0]]}, "phone a: has a key, self mask or draw that the cohort has already"
    )


def test_a_phone_refuses_what_another_one_copied(tmp_path: Path) -> None:
    """Copied commitments, and keys in another form, whose last bit means nothing."""
    phones, _ = mix_phones(Fleet(tmp_path), 9)
    keys = [message(phone.first(), "keys") for phone in phones.values()]
    thief, mine = phones["p001"], keys[0]
    flipped = f"{int(mine['masking'][62:], 16) | 0x80:02x}"
    copies = [{"draw": mine["draw"]}, {"self": mine["self"]}, {"masking": mine["masking"][:62] + flipped}]
    for name, copied in zip(("p002", "p004", "p006"), copies, strict=True):
        false = keys[1] | copied
        false["signature"] = thief.sign(thief.cohort.keys_text(false))
        reason = "has a key, self mask or draw that the cohort has already|whose last bit is 0 expected"
        refuses(phones[name], {"cohort": swap_keys(keys, "p001", **false)}, reason)
    # Where the cohort has its own commitment, the draw of another one does not open it.
    for name in ("p000", "p008"):
        phones[name].next({"cohort": keys})
    told = {name: phone.draw.hex() for name, phone in phones.items() if isinstance(phone, Phone)}
    for name in ("p000", "p008"):
        own = message(phones[name].first(), "draws")["draw"]
        reply = {"draws": told | {name: own, "p001": own}}
        refuses(phones[name], reply, "phone p001: its draw is not the one that it announced")


def test_a_model_is_masked_once(tmp_path: Path) -> None:
    """Masked once also in a later round, after a restart, and if nobody asked for the update again."""
    fleet = Fleet(tmp_path)
    phones = {name: fleet.phone(name, fleet.grid(name, 1)) for name in "abc"}
    shares = until_shares(phones)[2]
    phones["a"].next({"members": sorted(shares), "shares": shares_for("a", shares)})
    phones["b"].next({"members": sorted(shares), "shares": shares_for("b", shares)})
    assert phones["b"].next({})[0] == "upload"
    for phone in phones.values():
        phone.phone.close()
    fleet.number = 5
    assert fleet.phone("a", tmp_path / "a.grid").first()[0] == "keys"  # it has signed, and made no update
    with pytest.raises(TookPartError, match="this phone has sent a masked update of model .* another model"):
        fleet.phone("b", tmp_path / "b.grid")
    later = Fleet(tmp_path, number=5, seed=8)
    assert later.phone("b", later.grid("b", 1)).first()[0] == "keys"


def test_what_is_not_on_disk_is_not_told(trio: tuple[Fleet, dict[str, Any]]) -> None:
    """A phone that a full disk stops signs no list that it could have forgotten after a kill."""
    fleet, phones = trio
    answer_list, kept = until_list(phones).answer_list, fleet.folder / "a.state" / "round.json"
    before = kept.read_bytes()
    kept.unlink()
    (kept / "in the way").mkdir(parents=True)
    with pytest.raises(StorageError):
        phones["a"].next(answer_list([*"abcde"]))
    with pytest.raises(StateError, match="an error came before; open the round again"):
        phones["a"].first()
    (kept / "in the way").rmdir()
    kept.rmdir()
    kept.write_bytes(before)
    phones["a"].phone.close()
    again = fleet.phone("a", fleet.folder / "a.grid")
    assert again.first()[0] == "list"
    assert message(again.next(answer_list([*"abcd"])), "agreement")


def test_a_servers_share_of_curious_phones_has_an_end(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.settings["curious"] = 0.05
    with pytest.raises(UsageError, match="`curious` 0.05: expected a number from 0.1 to 0.5"):
        fleet.grid("a", 1)


def test_a_share_of_the_phones_is_what_its_decimals_say(tmp_path: Path) -> None:
    """0.29 · 200 is below 58 in floating point, and 58 phones would then be one more than were counted with."""
    fleet = Fleet(tmp_path)
    fleet.settings |= {"cohort": 200, "curious": 0.29, "dropouts": 0.1}
    begun = Opened(fleet.number, fleet.base.sha256(), fleet.text)
    fixed = open_cohort(MaskedCohort, fleet).fix(
        [Phone(f"p{one}", begun, np.zeros(2), tmp_path).keys() for one in range(200)]
    )
    assert fixed.agree == (200 + 58) // 2 + 1
    assert (fixed.chance, fixed.threshold, fixed.agree) == reference.rule(200, 0.29, 0.1)


@pytest.mark.parametrize("last, far", [(0, 10**18 - 1), (0, 10**9 + 1), (7, 10**6 + 8)])
def test_a_rounds_number_that_is_far_away_is_not_remembered(tmp_path: Path, last: int, far: int) -> None:
    fleet = Fleet(tmp_path)
    grid = fleet.grid("a", 1)
    if last:
        fleet.number = last
        fleet.phone("a", grid).phone.close()
    fleet.number = far
    with pytest.raises(UpdateError, match=f"a round up to {10**9 if not last else last + 10**6} expected, found {far}"):
        fleet.phone("a", grid)
    fleet.number = last + 10**6 if last else 10**9
    assert fleet.phone("a", grid).first()[0] == "keys"


@pytest.mark.parametrize("curious, cut", [(0.0, True), (0.1, False)])
def test_no_list_leaves_two_phones_alone_with_each_other(curious: float, cut: bool) -> None:
    """A server that knows the graph calls dead who is a neighbour of either. cut: whether few neighbours would do."""
    count, random = 60, np.random.default_rng(1)

    def pairs(a: int, t: int, agree: int) -> int:
        """Graphs of 100 in which some pair can be cut off."""
        found = 0
        for _ in range(100):
            coins = np.triu(random.integers(0, 256, (count, count)) < a, 1)
            graph = coins | coins.T
            left = count - (graph[:, None, :] | graph[None, :, :]).sum(2)  # no neighbours of either
            found += bool((graph & (left + 2 >= agree)).any()) and t <= 1
        return found

    a, t, agree = reference.rule(count, curious, 0.3)
    assert pairs(a, t, agree) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "part_chance", lambda *given: 0.0)
        few = reference.rule.__wrapped__(count, curious, 0.3)
    assert few[0] < a
    assert (pairs(*few) > 50) == cut


def test_a_phone_has_a_least_cohort_of_its_own(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    phone = fleet.phone("a", fleet.grid("a", 1), min_cohort=50)
    others = [fleet.phone(name, fleet.grid(name, 2)) for name in "bcd"]
    keys = [message(one.first(), "keys") for one in (phone, *others)]
    refuses(phone, {"cohort": keys}, "4 phones in the cohort, at least 50 expected")


def test_only_the_vendors_phones_are_let_in(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    vendor, wrong = (new_identity(tmp_path / name) for name in ("vendor.key", "wrong.key"))
    grid = fleet.grid("a", 1)
    fleet.phone("a", grid).phone.close()
    identity = public_identity(tmp_path / "a.key")
    for key, good in (("vendor.key", True), ("wrong.key", False)):
        fleet.number += 1
        phone = fleet.phone("a", grid, certificate=certify(tmp_path / key, "a", identity), vendor=vendor)
        cohort = open_cohort(MaskedCohort, fleet, vendor)
        sent = message(phone.first(), "keys")
        phone.phone.close()
        if good:
            cohort.check_keys(sent)
            continue
        with pytest.raises(UpdateError, match="phone a: a certificate by the vendor"):
            cohort.check_keys(sent)
    assert wrong != vendor


def test_a_phone_that_was_refused_for_its_certificate_comes_again_with_another(tmp_path: Path) -> None:
    """Come again in the same round, with the same keys."""
    fleet = Fleet(tmp_path)
    vendor, grid = new_identity(tmp_path / "vendor.key"), fleet.grid("a", 1)
    sent = []
    for certificate in ("00" * 64, None):
        own = certificate or certify(tmp_path / "vendor.key", "a", public_identity(tmp_path / "a.key"))
        phone = fleet.phone("a", grid, certificate=own, vendor=vendor)
        sent.append(message(phone.first(), "keys"))
        phone.phone.close()
    open_cohort(MaskedCohort, fleet, vendor).check_keys(sent[1])
    assert sent[0] | {"certificate": ""} == sent[1] | {"certificate": ""}


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
    """The key is of low order, signed by its owner: no shares can be sealed for it."""
    phones, _ = mix_phones(Fleet(tmp_path), 4)
    keys = [message(phone.first(), "keys") for phone in phones.values()]
    hostile, sent = phones["p001"], keys[1]
    sent["sealing"] = "00" * 32
    sent["signature"] = hostile.sign(hostile.cohort.keys_text(sent))
    draws = {name: phones[name].draw.hex() for name in ("p001", "p003")}
    for name in ("p000", "p002"):
        draws[name] = message(phones[name].next({"cohort": keys}), "draws")["draw"]
    refuses(phones["p000"], {"draws": draws}, "phones p000 and p001: a public key of one of them is no key")
    assert {path.name for path in (tmp_path / "p000.state").iterdir()} == {"history.json"}


def test_a_phone_that_is_left_alone_with_others_masks_is_noticed(tmp_path: Path) -> None:
    """A server that knows the graph lists a phone's neighbours as dead, to be left with its masks alone."""
    fleet = Fleet(tmp_path)
    fleet.settings |= {"dropouts": 0.2}
    phones, _ = mix_phones(fleet, 60)
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
        phones[victim].next(found.answer_list(alive))
    other = next(phones[name] for name in alive if name != victim and isinstance(phones[name], NativePhone))
    with pytest.raises(UpdateError, match="of its neighbours are alive, at least"):
        other.next(found.answer_list(alive))


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
    answer_list = until_list(phones).answer_list
    refuses(phones["a"], answer_list(["b", "c", "d"]), "listed dead, although its update was accepted")
    refuses(phones["b"], answer_list(["a", "b", "c", "c"]), "phone c: listed twice")
    refuses(phones["c"], answer_list(["c", "d"]), "phone c: 1 of its neighbours are alive, at least 2 expected")
    refuses(phones["d"], answer_list(["a", "b", "c", "d", "x"]), "phone x: is not in the cohort")
    refuses(phones["e"], {"dead": ["a"]}, "`alive` expected")


def test_a_phone_refuses_a_list_of_phones_that_were_shown_others(trio: tuple[Fleet, dict[str, Any]]) -> None:
    _, phones = trio
    found = until_list(phones)
    listed, signatures = found.answer_list([*"abcde"]), found.signatures
    without_b = {name: text for name, text in signatures.items() if name != "b"}
    refuses(phones["a"], {**listed, "signatures": without_b}, "phone b: listed alive, but signed no members")
    shown_others = "phone e: its signature is not of these members: it was shown others"
    refuses(phones["b"], {**listed, "signatures": signatures | {"e": signatures["d"]}}, shown_others)
    refuses(phones["c"], {**found.answer_list([*"abcd"]), "signatures": signatures | {"e": "00" * 64}}, shown_others)
    assert message(phones["d"].next({**found.answer_list([*"acde"]), "signatures": without_b}), "agreement")


@pytest.mark.parametrize("steps, reason", [(1, "`steps` 1 expected"), (0, "no `steps` expected")])
def test_all_phones_of_a_round_take_the_same_steps(tmp_path: Path, steps: int, reason: str) -> None:
    """Otherwise a server could let all but one take a single step, and that one's update be most of the sum."""
    fleet = Fleet(tmp_path)
    fleet.settings["steps"] = steps
    trained = {name: fleet.base.read(name) for name in SHAPES}
    for one_step in (False, True):
        info = UpdateInfo(fleet.base.sha256(), 1, 100, "rows-f32", 0, steps=int(one_step))
        with contextlib.nullcontext() if one_step == bool(steps) else pytest.raises(UsageError, match=reason):
            write_update(tmp_path / "grid", fleet.base, trained, info, fleet.text)


def test_phones_that_are_shown_two_lists_answer_nobody(trio: tuple[Fleet, dict[str, Any]]) -> None:
    """Who is dead to one half and alive to the other would lose both secrets."""
    _, phones = trio
    answer_list = until_list(phones).answer_list
    halves = ({"a": phones["a"], "b": phones["b"], "c": phones["c"]}, {"d": phones["d"], "e": phones["e"]})
    signed = {}
    for half, alive in zip(halves, (["a", "b", "c"], ["a", "b", "c", "d", "e"]), strict=True):
        signed |= {
            name: message(sent, "agreement")["signature"] for name, sent in of_all(half, answer_list(alive)).items()
        }
    for name in phones:  # 3 of 5 must agree: at most one half can
        agree = 3 if name in "abc" else 2
        if agree < 3:
            refuses(phones[name], {"signatures": signed}, "2 phones agree on who is alive, 3 expected")
    refuses(phones["a"], {"signatures": dict.fromkeys(phones, signed["a"])}, "1 phones agree")


def test_a_phone_answers_once_and_gives_one_share_of_each(trio: tuple[Fleet, dict[str, Any]]) -> None:
    _, phones = trio
    answer_list = until_list(phones).answer_list
    gone = phones.pop("e")
    alive = sorted(phones)
    signatures = {
        name: message(one, "agreement")["signature"] for name, one in of_all(phones, answer_list(alive)).items()
    }
    answers = {name: message(one, "answer") for name, one in of_all(phones, {"signatures": signatures}).items()}
    for name, answer in answers.items():
        assert set(answer["shares"]) == {*"abcde"} - {name}
    # The list is settled: a second one, or a second request to unmask, gets nothing else.
    again = phones["a"].first()
    assert message(again, "answer") == answers["a"]
    assert phones["a"].next(answer_list([*alive, "e"])) is None
    with pytest.raises(UsageError, match="is done"):
        phones["a"].next({"signatures": signatures})
    del gone


def test_signatures_of_the_dead_are_not_counted(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    fleet.settings["dropouts"] = 0.4
    phones, _ = mix_phones(fleet, 5)
    listed = until_list(phones).answer_list(["p000", "p002", "p003", "p004"])
    hostile = phones.pop("p001")
    signed = {name: message(sent, "agreement")["signature"] for name, sent in of_all(phones, listed).items()}
    signed["p001"] = hostile.sign(phones["p003"].cohort.agree_text())
    few = {name: signed[name] for name in ("p000", "p001", "p002")}
    refuses(phones["p000"], {"signatures": few}, "2 phones agree on who is alive, 3 expected")
