"""Masked rounds that go wrong: what a phone must not send is refused and the others go on; what can't be fails."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.masked.round import MaskedRound
from phonograd.server_agg.refusals import (
    InvalidMessageError,
    InvalidUpdateError,
    LateUpdateError,
    MalformedUpdateError,
    NotOfCohortError,
    OtherMessageError,
    RoundFailedError,
    RoundFullError,
)
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import cohorts
from tests.reference.masked import write_masked
from tests.server_agg.coordinators import send
from tests.server_agg.masked_fleet import STAGE_SECONDS, Fleet, masked_settings
from tests.server_agg.masked_rounds import a_round, check_failed, check_model, open_masked
from tests.server_agg.workshop import Clock, Workshop

TEN = [f"phone{one}" for one in range(10)]


def message_of(fleet: Fleet, name: str) -> tuple[str, dict[str, Any]]:
    kind, body = fleet.requests[name]
    return kind, {key: value for key, value in body.items() if key != "round" and (kind == "keys" or key != "phone")}


def test_a_wrong_signature_is_refused_and_the_others_go_on(workshop: Workshop, state: Path) -> None:
    clock, vendor = Clock(), Ed25519PrivateKey.generate()
    pinned = vendor.public_key().public_bytes_raw().hex()
    with open_masked(workshop, state, masked_settings(3, masked={"vendor": pinned}), clock=clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 4, vendor=vendor)
        _, keys = message_of(fleet, "phone3")
        _, others = message_of(fleet, "phone0")
        for wrong in (
            {**keys, "signature": others["signature"]},
            {**keys, "masking": "00" * 32},
            {**keys, "certificate": ""},
            {**keys, "certificate": others["certificate"]},
            {**keys, "phone": "phone9"},
        ):
            with pytest.raises(InvalidMessageError, match="signature|certificate"):
                coordinator.masked_message("keys", wrong["phone"], 1, wrong)
        fleet.run({"phone3": "keys"}, random.Random(0), clock)
        check_model(coordinator, fleet, ["phone0", "phone1", "phone2"], workshop)


def test_the_first_message_stands(workshop: Workshop, state: Path) -> None:
    clock = Clock()
    with open_masked(workshop, state, clock=clock) as coordinator:
        fleet, other = Fleet(coordinator, workshop, 3), Fleet(coordinator, workshop, 3, seed=1)
        assert not fleet.deliver("phone0")
        kind, message = message_of(other, "phone0")
        with pytest.raises(OtherMessageError, match="another message of its keys, which stands"):
            coordinator.masked_message(kind, "phone0", 1, message)  # type: ignore[arg-type]
        fleet.to("answer")
        kind, message = message_of(fleet, "phone0")
        assert coordinator.masked_message("answer", "phone0", 1, message) == {}
        with pytest.raises(OtherMessageError, match="another message of its answer"):
            coordinator.masked_message("answer", "phone0", 1, {**message, "shares": {}})
        fleet.run({}, random.Random(0), clock)
        check_model(coordinator, fleet, list(fleet.phones), workshop)


def test_a_key_that_another_phone_has_is_refused(workshop: Workshop, state: Path) -> None:
    with open_masked(workshop, state) as coordinator:
        fleet = Fleet(coordinator, workshop, 3)
        fleet.deliver("phone0")
        for secret in ("sealing", "masking"):
            thief = Fleet(coordinator, workshop, 3).phones["phone1"]
            setattr(thief, secret, fleet.phones["phone0"].sealing)
            with pytest.raises(InvalidMessageError, match="phone1: keys of its own expected, found one that comes twi"):
                coordinator.masked_message("keys", "phone1", 1, thief.keys())
        thief = Fleet(coordinator, workshop, 3).phones["phone1"]
        thief.masking = thief.sealing
        with pytest.raises(InvalidMessageError, match="comes twice"):
            coordinator.masked_message("keys", "phone1", 1, thief.keys())


def test_a_phone_that_comes_late_takes_part_in_the_next_cohort(workshop: Workshop, state: Path) -> None:
    with open_masked(workshop, state) as coordinator:
        fleet = Fleet(coordinator, workshop, 4)
        assert coordinator.participation("phone3") is None
        fleet.to("shares", ["phone0", "phone1", "phone2"])
        with pytest.raises(NotOfCohortError, match="phone3: not awaited in round 1, which is sharing") as refusal:
            fleet.deliver("phone3")
        assert refusal.value.retry_seconds == coordinator.round.retry_seconds
        assert "not awaited" in str(coordinator.participation("phone3"))
        with pytest.raises(NotOfCohortError):
            coordinator.masked_message("list", "phone3", 1, {})
        with pytest.raises(NotOfCohortError):
            coordinator.masked_message("shares", "phone3", 1, {"shares": {}})
        with pytest.raises(NotOfCohortError):  # nor before its time
            coordinator.masked_message("answer", "phone0", 1, {"self": "", "shares": {}})


def test_a_full_private_cohort_takes_no_more_while_it_waits_for_the_deadline(workshop: Workshop, state: Path) -> None:
    settings = masked_settings(3)
    with open_masked(workshop, state, settings) as coordinator:
        fleet = Fleet(coordinator, workshop, 4)
        masked = coordinator.round.aggregator.stages
        assert isinstance(masked, MaskedRound)
        masked.facts.early = False  # as in a private round
        assert [fleet.deliver(name) for name in TEN[:3]] == [False] * 3
        with pytest.raises(RoundFullError, match="its cohort is full"):
            fleet.deliver("phone3")


def test_messages_of_another_round_are_refused(workshop: Workshop, state: Path) -> None:
    clock = Clock()
    with open_masked(workshop, state, clock=clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 3)
        replayed = fleet.phones["phone0"].keys()
        with pytest.raises(OtherMessageError, match="round 7: not here; round 1 is open"):
            coordinator.masked_message("keys", "phone0", 7, replayed)
        fleet.run({}, random.Random(0), clock)
        with pytest.raises(InvalidMessageError, match="signature"):
            coordinator.masked_message("keys", "phone0", 2, replayed)
        with pytest.raises(RoundFailedError, match=r"round 1: over \(full\); take part in round 2"):
            coordinator.masked_message("keys", "phone0", 1, replayed)
        Fleet(coordinator, workshop, 3, seed=1).to("upload")
        old, path = fleet.phones["phone0"], workshop.folder / "old.safetensors"
        write_masked(path, old.values + 1, 12, workshop.base_sha256, 1, old.cohort.hash)
        with pytest.raises(LateUpdateError, match="the update is of round 1, which is closed"):
            send(coordinator, path, "phone0")


def test_a_round_that_is_not_masked_takes_no_message(workshop: Workshop, state: Path) -> None:
    with open_masked(workshop, state, ServerSettings()) as coordinator:
        assert coordinator.current.masked is None
        with pytest.raises(OtherMessageError, match="expected a masked round"):
            coordinator.masked_message("keys", "phone0", 1, {})


def test_shares_for_others_are_refused(workshop: Workshop, state: Path) -> None:
    clock = Clock()
    with open_masked(workshop, state, clock=clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 3)
        fleet.to("draws")
        with pytest.raises(InvalidMessageError, match="phone0: .*draw"):
            coordinator.masked_message("draws", "phone0", 1, {"draw": "00" * 32})
        fleet.to("shares")
        _, message = message_of(fleet, "phone0")
        shares = message["shares"]
        lists = ({}, {"phone1": shares["phone1"]}, {**shares, "phone0": "00" * 81}, {**shares, "stranger": "00" * 81})
        for hostile in lists:
            with pytest.raises(InvalidMessageError, match="phone0: .*share"):
                coordinator.masked_message("shares", "phone0", 1, {**message, "shares": hostile})
        fleet.to("agreement")
        _, agreement = message_of(fleet, "phone1")
        with pytest.raises(InvalidMessageError, match="phone0: .*sign"):
            coordinator.masked_message("agreement", "phone0", 1, agreement)
        fleet.to("answer")
        _, answer = message_of(fleet, "phone0")
        with pytest.raises(InvalidMessageError, match="phone0: .*share"):
            coordinator.masked_message("answer", "phone0", 1, {**answer, "shares": {"phone0": "00" * 32}})
        with pytest.raises(InvalidMessageError, match="phone0: .*mask"):
            coordinator.masked_message("answer", "phone0", 1, {**answer, "self": "00" * 32})
        fleet.run({}, random.Random(0), clock)
        check_model(coordinator, fleet, list(fleet.phones), workshop)


def test_only_a_members_masked_update_is_taken(workshop: Workshop, state: Path) -> None:
    clock = Clock()
    with open_masked(workshop, state, 10, clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 10)
        with pytest.raises(NotOfCohortError):  # of no phone, before its time
            send(coordinator, workshop.update(0), "phone0")
        fleet.to("shares")
        for name in TEN[:9]:
            fleet.deliver(name)
        clock.now += STAGE_SECONDS + 1
        fleet.to("upload", TEN[:9])
        for name in ("phone9", "stranger"):
            with pytest.raises(NotOfCohortError, match=f"{name}: not awaited in round 1, which is uploading"):
                send(coordinator, workshop.update(0), name)
        with pytest.raises(MalformedUpdateError, match="this round takes masked updates alone"):
            send(coordinator, workshop.update(0), "phone0")
        phone, path = fleet.phones["phone0"], workshop.folder / "hostile.safetensors"
        for values, width, cohort in (
            (phone.values, 12, "00" * 32),
            (phone.values, 11, phone.cohort.hash),
            (phone.values[:-1], 12, phone.cohort.hash),
        ):
            write_masked(path, values, width, workshop.base_sha256, 1, cohort)
            with pytest.raises(InvalidUpdateError, match="expected"):
                send(coordinator, path, "phone0")
        fleet.to("list", TEN[1:9])
        clock.now += STAGE_SECONDS + 1
        coordinator.tick()
        with pytest.raises(NotOfCohortError, match="which is agreeing"):
            fleet.deliver("phone0")
        fleet.run({"phone0": "upload", "phone9": "shares"}, random.Random(0), clock)
        check_model(coordinator, fleet, TEN[1:9], workshop)


def test_an_update_that_is_complete_after_the_list_was_fixed_does_not_count(workshop: Workshop, state: Path) -> None:
    clock = Clock()
    with open_masked(workshop, state, 10, clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 10)
        fleet.to("upload")
        path = fleet.requests["phone0"][1]
        upload = coordinator.create_upload(UploadMetadata("phone0", path.stat().st_size))
        shutil.copy(path, coordinator.folder.upload(upload.id))
        for name in TEN[1:]:
            fleet.deliver(name)
        clock.now += STAGE_SECONDS + 1
        with pytest.raises(NotOfCohortError, match="phone0: not awaited in round 1, which is agreeing"):
            coordinator.ingest(upload.id, sha256_of_file(path), path.stat().st_size)
        fleet.run({"phone0": "upload"}, random.Random(0), clock)
        check_model(coordinator, fleet, TEN[1:], workshop)


@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        ("shares", "sharing: at least 7 phones expected, 6 got through"),
        ("upload", "uploading: at least 7 phones expected, 6 got through"),
        ("agreement", "agreeing: at least 6 phones expected, 5 got through"),
        ("answer", "secret"),
    ],
)
def test_too_few_phones_fail_the_round(workshop: Workshop, state: Path, stage: str, reason: str) -> None:
    """Four are lost before a stage, or five: it takes 6 of 10 to agree, and 6 holders for a secret."""
    clock, lost = Clock(), 4 if stage in ("shares", "upload") else 5
    with open_masked(workshop, state, 10, clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 10)
        fleet.run(dict.fromkeys(TEN[:lost], stage), random.Random(0), clock)
        check_failed(coordinator, reason, workshop.base_sha256)
        with pytest.raises(RoundFailedError, match="round 1: failed: .*; take part in round 2"):
            coordinator.masked_message("keys", "phone9", 1, fleet.phones["phone9"].keys())


def test_shares_that_do_not_fit_are_left_out(workshop: Workshop, state: Path) -> None:
    clock = Clock()
    with open_masked(workshop, state, 10, clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 10)
        fleet.to("upload")
        for name in TEN[1:]:
            fleet.deliver(name)
        clock.now += STAGE_SECONDS + 1
        fleet.to("answer", TEN[1:])
        kind, message = fleet.requests["phone1"]
        assert kind == "answer"  # nobody waited for the dead to agree
        fleet.requests["phone1"] = kind, {**message, "shares": dict.fromkeys(message["shares"], "5a" * 32)}
        fleet.run({"phone0": "upload"}, random.Random(0), clock)
        check_model(coordinator, fleet, TEN[1:], workshop)


def test_a_rollback_ends_the_round(workshop: Workshop, state: Path) -> None:
    clock = Clock()
    with open_masked(workshop, state, clock=clock) as coordinator:
        fleet = Fleet(coordinator, workshop, 3)
        fleet.to("list")
        coordinator.rollback(0)
        with pytest.raises(RoundFailedError, match=r"round 1: over \(rollback\)"):
            fleet.deliver("phone0")
        with coordinator.ledger.reading() as session:
            assert not cohorts.has_messages(session, 1)
        Fleet(coordinator, workshop, 3).run({}, random.Random(0), clock)
        assert a_round(coordinator.ledger, 2).ending == "full"


def test_a_start_with_other_settings_waits_for_the_cohort(workshop: Workshop, state: Path) -> None:
    with open_masked(workshop, state) as coordinator:
        text = coordinator.current.masked
    with open_masked(workshop, state, masked_settings(4, 3)) as coordinator:
        assert coordinator.current.masked != text  # nobody had come
        text = coordinator.current.masked
        Fleet(coordinator, workshop, 3).deliver("phone0")
    with open_masked(workshop, state, ServerSettings(end_privacy=True)) as coordinator:
        assert coordinator.current.masked == text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"bits": 5}, "`bits` 5: expected 4, 8 or 16"),  # as the library says: tests/native has the others
        ({"clip": float("nan")}, "`clip` is nan, expected a finite number"),
        ({"distributed_noise": -1.0}, "`distributed_noise` is -1.0"),
        ({"distributed_noise": 1.0, "weight_cap": 2}, "`weight_cap` is 2, expected 1 with `distributed_noise`"),
        ({"distributed_noise": 1e300}, "`distributed_noise` .*: expected a number"),
        ({"stage_seconds": 0.0}, "`stage_seconds` is 0.0"),
        ({"vendor": "xyz"}, "`vendor` is 'xyz', expected a public key"),
        ({"bits": 16, "weight_cap": 328}, "sums of 32 bits, at most 31 expected; lower `bits`, `weight_cap` or `coho"),
    ],
)
def test_settings_out_of_range_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskedSettings(**given)


def test_the_widest_sum_that_fits_is_taken() -> None:
    assert MaskedSettings(bits=16, weight_cap=327).about().width == 31


def test_noise_too_wide_for_the_model_is_refused_before_the_state_is_made(workshop: Workshop, state: Path) -> None:
    server = masked_settings(3, masked={"bits": 16, "support": 64, "distributed_noise": 1e4})
    with pytest.raises(UsageError, match="`distributed_noise` of .* steps of the grid, .* lower `bits`"):
        Coordinator(workshop.artifacts, state, server)
    assert not state.exists()


MASKED = MaskedSettings(cohort=10, min_cohort=3)


@pytest.mark.parametrize(
    ("strategy", "more", "message"),
    [
        *(
            ({"strategy": name}, {}, f"`strategy` is '{name}', expected one of fedavg, fedsgd, dp-fedavg, dp-fedsgd")
            for name in ("median", "transfer")
        ),
        ({}, {"rules": RoundRules(clients_per_round=9)}, r"`clients_per_round` is 9, expected `cohort` \(10\)"),
        ({}, {"rules": RoundRules(max_clients=10)}, "and no `max_clients`"),
        ({}, {"rules": RoundRules(late="next")}, "`late` is 'next', expected 'drop' with `masked`"),
        ({}, {"ledger": "postgresql://a@b/c", "store": "s3://b"}, "`ledger` is set, expected none with `masked`"),
        ({"weighting": "tokens"}, {}, "`weighting` is 'tokens', expected 'equal' with `weight_cap` 1"),
        ({"strategy": "dp-fedavg", "clip_norm": 3.0}, {}, r"`clip_norm` is 3, expected `clip` \(15\)"),
        ({"strategy": "dp-fedavg", "token_cap": 9}, {}, r"`token_cap` is 9, expected `weight_cap` \(1\)"),
        ({"strategy": "dp-fedavg", "adaptive_clip": 0.5}, {}, "`per_layer` or `adaptive_clip` is set"),
    ],
)
def test_what_needs_single_updates_is_refused(strategy: dict[str, Any], more: dict[str, Any], message: str) -> None:
    rules = more.pop("rules", RoundRules(deadline_seconds=60.0))
    if strategy.get("strategy") in ("dp-fedavg",):
        rules = RoundRules(deadline_seconds=60.0)
    with pytest.raises(ValueError, match=message):
        ServerSettings(
            rules=rules, strategy=StrategySettings(**{"weighting": "equal"} | strategy), masked=MASKED, **more
        )
