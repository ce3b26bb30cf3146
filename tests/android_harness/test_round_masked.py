"""Masked rounds on phones that are folders, against a real server: what comes out, what stays, and who fails."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from phonograd.android_harness.rounds.settings import MaskingSettings, PhoneTraining, RoundSettings
from phonograd.commands.phone_round import check
from phonograd.commands.phone_round_tables import tables_of
from phonograd.device_runtime.client.server_client import current_round
from tests.android_harness.round_place import MASKED, Bench, desk, give_texts, loss, ready, serving
from tests.reference.masked_phone import certificate_of, identity_of
from tests.support.phone_command import Place, make_place

NAMES = ("p1", "p2", "p3")
FEW = MaskingSettings(min_cohort=3)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def masked(
    request: pytest.FixtureRequest, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    """Three phones at a server whose rounds are masked; with settings of the test's, if it has some."""
    monkeypatch.setattr("phonograd.server_agg.masked.round.POLLS", 120)
    give_texts(tmp_path, *NAMES)
    more = replace(MASKED["masked"], **getattr(request, "param", {}))
    with serving(place, tmp_path / "state", **{**MASKED, "masked": more}) as server:
        yield Bench(place, tmp_path, desk(tmp_path, *NAMES), server, token=server.owner.token)


def test_a_masked_round_and_the_next(masked: Bench) -> None:
    first = masked.run(
        masking=FEW, training=PhoneTraining(codec="rot-q4"), wait_seconds=60.0
    )  # whose codec does not count
    assert [phone.drop_out for phone in first.phones] == [None] * 3
    check(first, RoundSettings(masked.updates, min_phones=3))
    assert (first.masked, first.closed) == (True, True)
    assert first.model_after not in (None, first.model_before)
    for name, phone in zip(NAMES, first.phones, strict=True):
        assert list(phone.seconds) == ["push", "train", "mask"]
        assert (phone.update.codec, phone.update.nbytes) == ("masked", phone.receipt.bytes)
        (pulled,) = masked.phones[name].pulled
        assert "/state/" in pulled  # and never the grid update
    assert not masked.updates.exists()
    assert first.ledger.round["keys_up_bytes"] > 0
    ((_, phones), (_, cells)) = tables_of(first)
    assert "push + train + mask, s" in phones[0]
    assert {"keys", "shares", "unmasking"} <= {row["figure"] for row in cells}

    second = masked.run(masking=FEW, wait_seconds=60.0)
    assert (second.round, len(second.uploaded), second.model_before) == (2, 3, first.model_after)
    assert [phone.identity for phone in second.phones] == [phone.identity for phone in first.phones]
    assert len({phone.identity for phone in first.phones}) == 3
    for left in masked.left_on_phones():
        assert {name.rpartition("/")[2] for name in left} == {"identity.key", "history.json"}


@pytest.mark.parametrize("masked", [{"stage_seconds": 4.0}], indirect=True)
def test_a_phone_that_is_lost_after_its_keys(masked: Bench) -> None:
    """The others wait for it, and are told why their round failed; in the next one all take part."""
    p2 = masked.phones["p2"]
    p2.hooks["train"] = lambda: p2.faults.update(push=loss())  # so that it never gets the cohort
    report = masked.run(masking=FEW)
    ends = [(phone.drop_out.stage, phone.drop_out.exit_code) for phone in report.phones if phone.drop_out]
    assert ends == [("mask", 8), ("mask", 21), ("mask", 8)]
    for phone in (report.phones[0], report.phones[2]):
        assert "round 1" in phone.drop_out.message
    assert [(phone.update, phone.receipt) for phone in report.phones] == [(None, None)] * 3
    assert not masked.updates.exists()
    assert [phone.pulled for phone in masked.phones.values()] == [[], [], []]
    p2.faults.clear()
    assert current_round(masked.server.url).round == 2


VENDOR = Ed25519PrivateKey.from_private_bytes(bytes(32))


@pytest.mark.parametrize("masked", [{"vendor": identity_of(VENDOR)}], indirect=True)
def test_phones_with_certificates(masked: Bench) -> None:
    vendor = identity_of(VENDOR)
    without = masked.run(masking=MaskingSettings(vendor=vendor, min_cohort=3))
    for name, phone in zip(NAMES, without.phones, strict=True):
        assert (phone.drop_out.stage, phone.drop_out.exit_code, phone.training) == ("mask", 2, None)
        assert f"phonograd keys sign VENDOR_KEY_FILE {name} {phone.identity}" in phone.drop_out.message
    made = {phone.name: certificate_of(VENDOR, phone.name, phone.identity or "") for phone in without.phones}
    assert len(masked.run(masking=MaskingSettings(certificates=made, vendor=vendor, min_cohort=3)).uploaded) == 3


def test_fewer_phones_than_this_side_wants(masked: Bench) -> None:
    report = masked.run()  # at least 50
    for phone in report.phones:
        assert (phone.drop_out.stage, phone.drop_out.exit_code) == ("mask", 7)
        assert "3 phones in the cohort, at least 50 expected; it leaves the round" in phone.drop_out.message


@pytest.mark.parametrize("masked", [{"stage_seconds": 86_400.0}], indirect=True)  # hours between its questions
def test_an_interrupt_while_a_phone_waits_for_the_others(masked: Bench) -> None:
    waits = threading.Event()
    masked.progress = lambda _serial, _stage, _done, _total, note="": note.startswith("waiting") and waits.set()
    masked.stop_signal = lambda: 15 if waits.is_set() else 0
    masked.attached = ready("p1")
    (phone,) = masked.run(masking=FEW).phones
    assert (phone.drop_out.stage, phone.drop_out.exit_code) == ("mask", 130)
    assert "interrupted while it waited for other phones" in phone.drop_out.message
    assert not any(name.startswith("run/") for name in masked.phones["p1"].files())  # with the grid update


def test_a_vendors_key_that_is_none() -> None:
    with pytest.raises(ValueError, match="`vendor` is 'x', expected a public key"):
        MaskingSettings(vendor="x")
