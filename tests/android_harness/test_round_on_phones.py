"""`phonograd phone-round` on stand-in phones, against a live server."""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.server_client import download_model
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from tests.android_harness.round_place import MASKED, serving
from tests.phone.stand_in import AdbServer, StandInPhone
from tests.support.phone_command import Place, make_place, text_of
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.standin

IMPATIENT = ("--set", "round.patience_seconds=1", "--set", "phones.heartbeat_timeout=77")
# One that qemu trains at once.
MODEL = LanguageModelConfig("lstm", vocabulary=600, embedding=8, hidden=8, layers=1)
WORK = "data/local/tmp/phonograd"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return make_place(tmp_path_factory.mktemp("place"), MODEL)


@contextmanager
def start_round(folder: Path, place: Place, url: str, *options: object) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "phonograd", "phone-round", place.artifacts.folder, "--server", url, "--json"]
    with subprocess.Popen(
        [*map(str, command), *map(str, options)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def run_round(folder: Path, place: Place, url: str, *options: object) -> tuple[int, Any, str]:
    with start_round(folder, place, url, *options) as process:
        return await_end(process)


def await_end(process: "subprocess.Popen[str]") -> tuple[int, Any, str]:
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, json.loads(out) if out else None, err


def name_of(phone: StandInPhone) -> str:
    return phone.serial.replace(":", "_")


def give_texts(phones: list[StandInPhone], tokens: int = 200) -> None:
    """Each phone's own text, on the phone."""
    for seed, phone in enumerate(phones):
        folder = phone.root / WORK
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "user.txt").write_bytes(text_of(seed, tokens))


def files_on(phone: StandInPhone) -> set[str]:
    folder = phone.root / WORK
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_round_of_two_phones_and_the_next(
    adb_server: AdbServer, two_phones: list[StandInPhone], place: Place, tmp_path: Path
) -> None:
    give_texts(two_phones)
    with serving(place, tmp_path / "state", clients_per_round=2) as server:
        code, first, err = run_round(tmp_path, place, server.url, "--keep", "--codec", "rot-q4")
        assert (code, first["schema"], first["schema_version"]) == (0, "phonograd.round", 1), err
        assert [phone["drop_out"] for phone in first["phones"]] == [None] * 2
        assert {phone["model"] for phone in first["phones"]} == {phone.spec.model for phone in two_phones}
        assert (first["closed"], first["config"]["training"]["codec"]) == (True, "rot-q4")
        bytes_by_name = {phone["name"]: phone["receipt"]["bytes"] for phone in first["phones"]}
        in_ledger = {entry["phone"]: entry["useful_bytes"] for entry in first["ledger"]["phones"]}
        assert {name: in_ledger[name] for name in bytes_by_name} == bytes_by_name
        assert first["update_bytes"] == first["ledger"]["round"]["useful_bytes"]
        out = tmp_path / "out.safetensors"
        assert download_model(server.url, out).sha256 == first["model_after"]

        second = run_round(tmp_path, place, server.url)[1]
        assert second["model_before"] == first["model_after"]
        model_bytes = out.stat().st_size
        for phone in second["phones"]:  # the new model, and a manifest that names it
            assert model_bytes < phone["pushed_bytes"] < model_bytes + 10_000
    for phone in two_phones:
        assert files_on(phone) == {"user.txt"}
        assert phone.processes() == []


def test_a_masked_round(adb_server: AdbServer, three_phones: list[StandInPhone], place: Place, tmp_path: Path) -> None:
    """Only the keys stay on the phones, readable by adb's user alone."""
    give_texts(three_phones)
    with serving(place, tmp_path / "state", **MASKED) as server:
        code, report, err = run_round(tmp_path, place, server.url, "--set", "masked.min_cohort=3")
        assert code == 0, err
        assert (report["masked"], report["closed"]) == (True, True)
        assert [phone["drop_out"] for phone in report["phones"]] == [None] * 3
        assert report["model_after"] not in (None, report["model_before"])
        assert report["update_bytes"] == report["ledger"]["round"]["useful_bytes"]
    for phone in three_phones:
        files = {path for path in (phone.root / WORK).rglob("*") if path.is_file()}
        assert {path.name for path in files} == {"user.txt", "identity.key", "history.json"}
        assert {path.stat().st_mode & 0o777 for path in files if path.name != "user.txt"} == {0o600}


def test_the_server_stops_answering(adb_server: AdbServer, phone: StandInPhone, place: Place, tmp_path: Path) -> None:
    """The update stays, and the command that is printed sends it later."""
    give_texts([phone], 1_000)
    with (
        serving(place, tmp_path / "state") as server,
        start_round(tmp_path, place, server.url, *IMPATIENT) as process,
    ):
        until(lambda: any("phonograd-phone train" in line for line in phone.processes()))
        assert any("timeout=77.0" in line for line in phone.processes())  # the phone is as patient as this machine
        server.stop()
        code, report, err = await_end(process)
        assert (code, report["closed"], report["phones"][0]["drop_out"]["stage"]) == (9, None, "upload"), err
        assert files_on(phone) == {"user.txt"}
        (line,) = [line for line in err.splitlines() if "trained but not uploaded: phonograd upload" in line]
        server.start()
        words = shlex.split(line.partition(": phonograd ")[2])
        later = subprocess.run(
            [sys.executable, "-m", "phonograd", *words, "--json"], cwd=tmp_path, capture_output=True, check=False
        )
        assert json.loads(later.stdout)["phone"] == name_of(phone), later.stderr


def test_texts_pushed_from_this_machine(
    adb_server: AdbServer, phone: StandInPhone, place: Place, tmp_path: Path
) -> None:
    """Pushed, trained on, and removed; the phone's own text is not used."""
    (texts := tmp_path / "texts").mkdir()
    with serving(place, tmp_path / "state", clients_per_round=1) as server:
        code, report, err = run_round(tmp_path, place, server.url, "--texts", texts)
        assert (code, report["phones"][0]["drop_out"]["exit_code"]) == (3, 3)
        assert f"{name_of(phone)}.txt expected" in err
        (texts / f"{name_of(phone)}.txt").write_bytes(text_of(1, 200))
        mixed = ("--set", f"text.rehearsal={place.general}", "--set", "text.user_share=0.5")
        options = ("--texts", texts, *mixed, "--keep")
        phone.fall_asleep()
        code, report, err = run_round(tmp_path, place, server.url, *options)
        assert (code, report["closed"]) == (0, True), err
        assert report["phones"][0]["power_before"] == {"screen_on": False, "dozing": True, "battery_saver": True}
        assert report["phones"][0]["power"] == {"screen_on": True, "dozing": False, "battery_saver": False}
        assert (phone.rest["wakefulness"], phone.rest["low_power"]) == ("Asleep", "1")
        training = report["phones"][0]["training"]
        assert training["user_tokens"] / training["tokens"] == pytest.approx(0.5, abs=0.01)
    files = files_on(phone)
    assert {"phonograd-phone", "artifacts/weights.safetensors", "rehearsal.txt"} <= files
    assert not any("/text.txt" in name or "update" in name for name in files)
    assert sha256_of_file(phone.root / WORK / "artifacts/weights.safetensors") == place.artifacts.weights_sha256
