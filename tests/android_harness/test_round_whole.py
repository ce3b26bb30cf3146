"""Whole rounds against a real server, on phones that are folders: what comes out, and what is left behind."""

import dataclasses
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from phonograd.android_harness.errors import PhoneBusyError, PhoneRunError, PhoneStorageError
from phonograd.android_harness.phones.facts import Phone
from phonograd.android_harness.rounds.result import RoundReport
from phonograd.android_harness.rounds.settings import PhoneTraining, RoundSettings
from phonograd.commands.phone_round import RoundShortError, check
from phonograd.device_runtime.base.errors import (
    ServerUnreachableError,
    StoppedError,
    TextError,
    UsageError,
    WeightsError,
)
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.server_client import download_model, upload_update
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.storage.folder_claim import LEDGER, claim
from phonograd.server_agg.storage.ledger import Ledger
from tests.android_harness.round_place import Bench, desk, give_texts, loss, ready, serving
from tests.android_harness.small_artifacts import small_artifacts
from tests.support.phone_command import Place, make_place, text_of

ROOT = Path(__file__).parents[2]
FTRL = {
    "strategy": "dp-ftrl",
    "planned_rounds": 6,
    "min_separation": 3,
    "max_participations": 2,
    "noise_buffers": 2,
    "deadline_seconds": 1e6,
    "clients_per_round": 2,
}
SERIALS = ("p1", "p2", "127.0.0.1:5555")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("place"))


@pytest.fixture
def bench(place: Place, tmp_path: Path) -> Iterator[Bench]:
    give_texts(tmp_path, "p1", "p2", "127.0.0.1_5555")
    with serving(place, tmp_path / "state", clients_per_round=3) as server:
        yield Bench(place, tmp_path, desk(tmp_path, *SERIALS), server, token=server.owner.token)


def by_serial(report: RoundReport) -> dict[str, Any]:
    return {phone.serial: phone for phone in report.phones}


def test_a_round_and_the_next(bench: Bench, tmp_path: Path) -> None:
    seen: list[str] = []
    bench.progress = lambda serial, stage, *_: seen.append(f"{serial} {stage}")
    for phone in bench.phones.values():
        phone.keep = True
    first = bench.run()
    check(first, RoundSettings(bench.updates, min_phones=3))
    with pytest.raises(RoundShortError, match="3 of 3 phones uploaded, at least 4 expected: attach more phones") as few:
        check(first, RoundSettings(bench.updates, min_phones=4))
    assert few.value.exit_code == 20
    assert (first.round, first.closed, first.model_before) == (1, True, bench.place.artifacts.weights_sha256)
    assert first.downloaded_bytes == 0  # the artifacts have it
    assert [phone.name for phone in first.phones] == ["p1", "p2", "127.0.0.1_5555"]
    assert {f"{phone.serial} {stage}" for phone in first.phones for stage in ("push", "train", "upload")} <= set(seen)
    for phone in first.phones:
        assert (phone.drop_out, phone.remark) == (None, None)
        assert list(phone.seconds) == ["push", "train", "pull", "upload"]
        assert phone.training.steps > 0
        assert phone.receipt.bytes == phone.update.nbytes
    assert len({phone.seed for phone in first.phones}) == 3
    assert not bench.updates.exists()
    assert first.update_bytes == first.ledger.round["useful_bytes"]
    assert {entry["phone"]: entry["useful_bytes"] for entry in first.ledger.phones if entry["phone"]} == {
        phone.name: phone.receipt.bytes for phone in first.phones
    }

    out = tmp_path / "out.safetensors"
    assert download_model(bench.server.url, out).sha256 == first.model_after
    assert expected_average(bench, first) == pytest.approx(load_tensors(out)["decoder.weight"], abs=1e-6)

    for phone in bench.phones.values():
        phone.pushed.clear()
        phone.keep = False
    second = bench.run()
    assert (second.round, second.model_before, second.closed) == (2, first.model_after, True)
    assert 0 < second.downloaded_bytes <= second.model_bytes  # links, if they are smaller
    fetched = {entry["phone"]: entry["model_bytes"] + entry["sent_link_bytes"] for entry in second.ledger.phones}
    assert fetched["p1"] == second.downloaded_bytes  # who fetches says who it is
    for phone in bench.phones.values():
        assert phone.pushed == ["artifacts/manifest.json", "artifacts/weights.safetensors", "run/text.txt"]
    assert {phone.seed for phone in first.phones}.isdisjoint(phone.seed for phone in second.phones)
    assert bench.left_on_phones() == [set(), set(), set()]


def expected_average(bench: Bench, report: RoundReport) -> Any:
    """The token-weighted mean of what the same commands train here."""
    total, sums = 0, 0.0
    for phone in report.phones:
        text, out = bench.folder / "texts" / f"{phone.name}.txt", bench.folder / f"{phone.name}.trained"
        line = ("train", bench.place.artifacts.folder, "--user", text, "--seed", phone.seed, "--out", out)
        tokens = bench.place.run(*line).only("report")["tokens"]
        assert phone.training is not None
        assert tokens == phone.training.tokens
        total, sums = total + tokens, sums + tokens * load_tensors(out)["decoder.weight"].astype(np.float64)
    return sums / total


def test_drop_outs_are_named_and_the_others_go_on(bench: Bench) -> None:
    phones = bench.phones
    phones["p1"].faults["leave"] = loss()  # its update was pulled, and counts
    phones["p2"].faults["train"] = loss()
    (bench.folder / "texts" / "127.0.0.1_5555.txt").unlink()
    report = bench.run()
    p1, p2, third = report.phones
    assert (p1.drop_out, p1.receipt and p1.receipt.accepted) == (None, 1)
    assert "after its update was pulled: phone p2: disconnected" in p1.remark
    assert (p2.drop_out.stage, p2.drop_out.exit_code) == ("train", 21)
    assert "disconnected while phonograd-phone train ran" in p2.drop_out.message
    assert (third.drop_out.stage, third.drop_out.exit_code) == ("text", 3)
    assert "127.0.0.1:5555.txt or 127.0.0.1_5555.txt expected" in third.drop_out.message
    assert (report.closed, report.model_after) == (False, None)
    check(report, RoundSettings(bench.updates))
    with pytest.raises(
        RoundShortError, match=r"1 of 3 phones uploaded, at least 2 expected: p2: phone p2: disconnected"
    ) as raised:
        check(report, RoundSettings(bench.updates, min_phones=2))
    assert raised.value.exit_code == 21
    assert bench.left_on_phones() == [set(), set(), set()]
    check_document(report)


def check_document(report: RoundReport) -> None:
    """Every field of the JSON document stands in docs/phone-round.md, and it is JSON."""
    document = json.loads(json.dumps(report.document(), allow_nan=False))
    assert (document["schema"], document["schema_version"]) == ("phonograd.round", 1)
    assert document["settings"]["silence_seconds"] == 300.0  # the name of version 1
    documented = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "phone-round.md").read_text("utf-8")))
    p1, p2, _ = document["phones"]
    objects = (document, document["settings"], document["ledger"], p1, p1["training"], p1["update"], p1["receipt"])
    for fields in (*objects, p1["seconds"], p2["drop_out"]):
        assert set(fields) <= documented


def test_every_stage_can_fail(bench: Bench) -> None:
    phones = bench.phones
    phones["p1"].faults["enter"] = PhoneBusyError("phone p1: another phonograd (me@there) is using it")
    phones["p2"].faults["push"] = PhoneStorageError("phone p2: 9 MB of free space needed")
    phones["127.0.0.1:5555"].faults["pull"] = PhoneRunError("phone 127.0.0.1:5555: update: another SHA-256")
    bench.attached = [*ready(*SERIALS), Phone("p4", "unauthorized", None, "not authorised", "tap Allow on the phone")]
    report = bench.run()
    assert [(phone.drop_out.stage, phone.drop_out.exit_code) for phone in report.phones] == [
        ("push", 22),
        ("push", 11),
        ("pull", 23),
        ("ready", 20),
    ]
    assert "not authorised; tap Allow on the phone" in report.phones[3].drop_out.message
    assert (report.update_bytes, report.closed, report.ledger) == (0, None, None)
    with pytest.raises(RoundShortError) as raised:
        check(report, RoundSettings(bench.updates))
    assert raised.value.exit_code == 22
    assert not bench.updates.exists()


def test_text_on_the_phone_is_trained_and_left_alone(bench: Bench) -> None:
    text = text_of(7, 200)
    (bench.phones["p1"].folder / "user.txt").write_bytes(text)
    report = bench.run(texts=None)
    p1, p2, _ = report.phones
    assert p1.receipt is not None
    assert (bench.phones["p1"].folder / "user.txt").read_bytes() == text
    assert bench.left_on_phones() == [{"user.txt"}, set(), set()]
    assert (p2.drop_out.stage, p2.drop_out.exit_code) == ("train", 3)
    assert "put the user's text on the phone" in p2.drop_out.message


def test_settings_reach_the_phone(bench: Bench) -> None:
    bench.attached = ready("p1")
    of_text = {"rehearsal": bench.place.general, "user_share": 0.4, "learning_rate": 0.1}
    training = PhoneTraining(codec="rot-q4", **of_text, threads=1, cores="all", precision="bf16-emulated")
    (phone,) = bench.run(training=training).phones
    assert (phone.training.precision, phone.training.threads) == ("bf16-emulated", 1)
    assert phone.training.user_tokens / phone.training.tokens == pytest.approx(0.4, abs=0.01)
    assert phone.update.codec == "rot-q4"
    bench.attached = ready("p2")
    (phone,) = bench.run(training=PhoneTraining(cores="all", output_sample=20, duty=0.9)).phones
    assert (phone.receipt.accepted, phone.training.output_layer.kind) == (2, "sampled")
    assert 20 < phone.training.output_layer.words < bench.place.artifacts.manifest.model.vocabulary
    assert (phone.training.duty, phone.training.rest_seconds > 0) == (0.9, True)


def test_a_round_that_closes_meanwhile(bench: Bench) -> None:
    """Three other phones fill the round while p1 trains: its update is stale, and kept."""

    def others() -> None:
        update = bench.folder / "others.update"
        text, folder = bench.folder / "texts" / "p2.txt", bench.place.artifacts.folder
        assert bench.place.run("train", folder, "--user", text, "--update", update).code == 0
        for name in ("a", "b", "c"):
            upload_update(bench.server.url, update, name)

    bench.attached = ready("p1")
    bench.phones["p1"].hooks["pull"] = others
    (phone,) = bench.run().phones
    assert (phone.drop_out.stage, phone.drop_out.exit_code) == ("upload", 8)
    assert "the update is of round 1, which is closed" in phone.drop_out.message
    assert UpdateFile(Path(phone.update.kept)).info.round == 1


def test_the_server_never_answers_again(bench: Bench) -> None:
    bench.attached = ready("p1")
    bench.phones["p1"].hooks["leave"] = bench.server.stop
    report = bench.run(patience_seconds=1.0)
    (phone,) = report.phones
    assert (phone.drop_out.stage, phone.drop_out.exit_code) == ("upload", 9)
    kept = bench.updates / "round-1" / "p1.update"
    assert (phone.update.kept, sha256_of_file(kept)) == (str(kept), phone.update.sha256)
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ServerUnreachableError, match="1 updates are not at the server: .* kept in"):
        check(report, RoundSettings(bench.updates))
    bench.server.start()
    assert upload_update(bench.server.url, kept, "p1").accepted == 1


def test_an_interrupt_ends_the_phones_and_keeps_what_was_pulled(bench: Bench) -> None:
    """p1's update is here, and the server is not; p2 trains: then comes the signal."""
    signals: list[int] = []
    bench.phones["p1"].hooks["leave"] = bench.server.stop
    bench.stop_signal = lambda: signals[0] if signals else 0

    def trains() -> None:
        while not (bench.updates / "round-1" / "p1.update").exists():
            time.sleep(0.05)
        time.sleep(0.3)
        signals.append(15)

    bench.phones["p2"].hooks["train"] = trains
    (bench.folder / "texts" / "p2.txt").write_bytes(text_of(5, 20_000))
    bench.attached = ready("p1", "p2")
    report = bench.run(patience_seconds=600.0)
    p1, p2 = report.phones
    assert (p1.drop_out.stage, p1.drop_out.exit_code, Path(p1.update.kept).is_file()) == ("upload", 130, True)
    assert (p2.drop_out.stage, p2.drop_out.exit_code, p2.update) == ("train", 130, None)
    assert bench.left_on_phones() == [set(), set(), set()]
    with pytest.raises(StoppedError, match="0 updates are at the server") as raised:
        check(report, RoundSettings(bench.updates))
    assert raised.value.exit_code == 143


def test_each_phone_with_its_own_token(place: Place, tmp_path: Path) -> None:
    state = tmp_path / "state"
    give_texts(tmp_path, "p1", "p2")
    tokens = {name: enrol(state, name, role) for name, role in (("p1", "phone"), ("p2", "phone"), ("boss", "admin"))}
    with serving(place, state, clients_per_round=3, security=SecuritySettings(auth="tokens")) as server:
        bench = Bench(place, tmp_path, desk(tmp_path, "p1", "p2"), server, tokens=tokens)
        first = bench.run()
        assert len(first.uploaded) == 2
        assert first.ledger is None
        assert "an administrator's token expected" in first.ledger_missing
        bench.tokens = {name: tokens[name] for name in ("p1",)}
        with pytest.raises(UsageError, match="phone p2: it has no token; make one: phonograd tokens add p2"):
            bench.run()
        bench.tokens, bench.token, bench.attached = None, tokens["p1"], ready("p2")  # not its own
        (phone,) = bench.run().phones
        assert (phone.drop_out.stage, phone.drop_out.exit_code) == ("place", 8)
        assert "whose token this is, expected; found another" in phone.drop_out.message
        bench.attached, bench.token, bench.tokens = [], tokens["boss"], {**tokens, "p3": enrol(state, "p3", "phone")}
        report = bench.run(names={"p2": "p3"})  # p1 has had its turn
        assert [phone.name for phone in report.uploaded] == ["p3"]
        assert (report.closed, report.ledger.round["accepted"]) == (True, 3)


def test_a_phone_counts_its_rounds_of_dp_ftrl_itself(place: Place, tmp_path: Path) -> None:
    state = tmp_path / "state"
    give_texts(tmp_path, "p1")
    tokens = {"p1": enrol(state, "p1", "phone")}
    with serving(place, state, **FTRL) as server:
        bench = Bench(place, tmp_path, desk(tmp_path, "p1"), server, tokens=tokens)
        assert len(bench.run().uploaded) == 1
        kept = bench.phones["p1"].folder / "runs" / quote(server.url, safe="") / "phone-p1.json"
        assert list(json.loads(kept.read_text()).values()) == [[1]]


def enrol(state: Path, name: str, role: str) -> str:
    claim(state)
    ledger = Ledger(state / LEDGER)
    try:
        return PhoneRegistry(ledger).add(name, role, "never", "test").token
    finally:
        ledger.close()


def test_errors_before_any_phone_is_used(bench: Bench, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="both would have the name p1"):
        bench.run(names={"p2": "p1"})
    with pytest.raises(TextError, match="folder with a text for each phone not found"):
        bench.run(texts=tmp_path / "none")
    with pytest.raises(TextError, match="file of general text not found"):
        bench.run(training=PhoneTraining(rehearsal=tmp_path / "none"))
    other = small_artifacts(tmp_path / "other")
    bench.place = dataclasses.replace(bench.place, artifacts=other)
    with pytest.raises(WeightsError, match="give the artifacts that the server was started with"):
        bench.run()
    assert bench.left_on_phones() == [set(), set(), set()]
    bench.server.stop()
    with pytest.raises(ServerUnreachableError):
        bench.run()


def test_a_downloaded_model_is_not_downloaded_again(bench: Bench) -> None:
    bench.run()
    bench.attached = ready("p1")
    assert bench.run().downloaded_bytes > 0
    bench.phones["p1"].pushed.clear()
    again = bench.run()
    (phone,) = again.phones
    assert (again.downloaded_bytes, bench.phones["p1"].pushed) == (0, [])  # it has had its turn, and trains nothing
    assert (phone.drop_out.stage, phone.drop_out.exit_code) == ("place", 8)
    assert "phone p1 cannot take part in the round" in phone.drop_out.message
    (cached,) = (bench.folder / "cache").glob("*/*/*.safetensors")
    cached.write_bytes(b"damaged")
    assert bench.run().downloaded_bytes > 0
