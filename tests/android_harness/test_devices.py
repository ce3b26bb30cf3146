"""`phonograd devices` on a fake adb: table, JSON, exit codes; and which phones are ready."""

from pathlib import Path

import pytest

from phonograd.android_harness.adb.client import Adb, Timeouts
from phonograd.android_harness.errors import NoPhoneError
from phonograd.android_harness.phones.discovery import discover, ready_phones
from phonograd.android_harness.phones.readiness import Readiness
from tests.android_harness.answers import GALAXY_S7, MEDIATEK, PIXEL_6A
from tests.android_harness.fake_adb import LISTED, SERIAL, FakeAdb
from tests.support.command_line import Run

DESK = {SERIAL: LISTED, "S7": "device transport_id:4", "NEW": "unauthorized transport_id:5"}


@pytest.fixture
def desk(fake: FakeAdb, monkeypatch: pytest.MonkeyPatch) -> FakeAdb:
    """The adb on PATH; its phones answer with the text in folder/answers/SERIAL."""
    monkeypatch.setenv("PATH", f"{fake.folder}:/bin")
    fake.answers({SERIAL: PIXEL_6A, "S7": GALAXY_S7, "MTK": MEDIATEK})
    return fake


@pytest.fixture
def adb(desk: FakeAdb) -> Adb:
    return Adb(desk.tool, Timeouts(shell=5))


def attach(desk: FakeAdb, phones: dict[str, str]) -> None:
    desk.phones = phones
    desk.write()


def test_the_table_of_several_phones(phono: Run, desk: FakeAdb) -> None:
    attach(desk, DESK)
    outcome = phono("devices")
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert max(map(len, lines)) <= 120, outcome.out
    for text in ("FAKE01", "Google Pixel 6a", "Google Tensor", "4x Cortex-A55 1.8 GHz +", "2x Cortex-X1 2.8 GHz", "14"):
        assert text in outcome.out
    for text in ("5.8 GB RAM", "75.6 GB free", "85 %", "charging", "light", "41 °C", "SM-G930F", "exynos8890", "12 %"):
        assert text in outcome.out
    cells = [line.split("│") for line in lines if line.startswith("│")]
    assert [row[2].strip() for row in cells if row[1].strip()] == ["yes", "no", "no"]
    assert outcome.err.splitlines() == [
        "phone S7: its battery is at 12 %; 20 % is needed, even on a charger; charge it first",
        "phone NEW: it has not authorised this computer for USB debugging; unlock it and tap Allow on its screen; if "
        'nothing shows, "Revoke USB debugging authorisations" in its developer options and plug it in again',
    ]


def test_the_document_of_several_phones(phono: Run, desk: FakeAdb) -> None:
    attach(desk, DESK)
    document = phono("devices", "--json").document
    assert document["adb"] == {"path": str(desk.path), "version": "36.0.0-fake", "origin": "PATH"}
    pixel, galaxy, new = document["phones"]
    assert (pixel["serial"], pixel["state"], pixel["ready"], pixel["reason"], pixel["cure"]) == (
        SERIAL,
        "device",
        True,
        None,
        None,
    )
    assert pixel["facts"]["clusters"][2] == {
        "cores": [6, 7],
        "max_khz": 2802000,
        "part": "Cortex-X1",
    }
    assert pixel["facts"]["battery"] == {"percent": 85, "temperature_c": 29.1, "charging": True}
    assert (galaxy["ready"], galaxy["cure"]) == (False, "charge it first")
    assert (new["state"], new["facts"], new["ready"]) == ("unauthorized", None, False)


def test_chosen_phones(phono: Run, desk: FakeAdb) -> None:
    attach(desk, DESK)
    one_is_away = phono("devices", "--serial", "AWAY", "--serial", SERIAL, "--json")
    assert one_is_away.code == 0
    assert [phone["serial"] for phone in one_is_away.document["phones"]] == ["AWAY", SERIAL]
    assert "phone AWAY: adb does not list it; plug it in, turn USB debugging on" in one_is_away.err
    away = phono("devices", "--serial", "AWAY", "--json")
    assert away.code == 20
    assert '"state": "absent"' in away.out


def test_no_phone(phono: Run, desk: FakeAdb) -> None:
    attach(desk, {})
    outcome = phono("devices")
    assert (outcome.code, outcome.out) == (20, "Phones: none\n")
    assert outcome.err == (
        "phonograd: no phone is connected; turn on USB debugging on a phone, plug it in and tap Allow on its screen: "
        "phonograd docs first-phone\n"
    )


def test_no_phone_is_ready(phono: Run, desk: FakeAdb) -> None:
    attach(desk, {"NEW": "unauthorized", "MTK": "device", "OFF": "offline"})
    outcome = phono("devices")
    assert outcome.code == 20
    assert outcome.err.count("\n") == 1
    assert "no phone is ready: phone NEW: it has not authorised this computer" in outcome.err
    assert "; phone MTK: it is hot: thermal status severe, expected light or less; let it cool down;" in outcome.err
    assert "; phone OFF: adb sees it, but it does not answer; unplug it" in outcome.err


def test_without_adb(phono: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    outcome = phono("devices")
    assert outcome.code == 19
    assert "apt install adb" in outcome.err and ".[adb]" in outcome.err


def test_a_phone_that_disconnects_during_the_query(adb: Adb, desk: FakeAdb) -> None:
    attach(desk, {SERIAL: LISTED, "BAD": "device"})
    good, bad = discover(adb)
    assert good.ready
    assert (bad.facts, bad.ready) == (None, False)
    assert bad.reason is not None and "was lost while reading its properties" in bad.reason
    assert bad.cure is not None and "repeat the command" in bad.cure


def test_ready_phones(adb: Adb, desk: FakeAdb) -> None:
    attach(desk, DESK)
    ready, others = ready_phones(adb)
    assert ([phone.serial for phone in ready], [phone.serial for phone in others]) == ([SERIAL], ["S7", "NEW"])
    with pytest.raises(NoPhoneError, match="^phone AWAY: adb does not list it; plug it in, turn USB debugging on; adb"):
        ready_phones(adb, [SERIAL, "AWAY", "FAR"])


def test_phones_with_one_serial(phono: Run, adb: Adb, desk: FakeAdb) -> None:
    """Phones are named by their places; the serial, as adb's place, chooses among them."""
    desk.answers({"3": PIXEL_6A, "4": GALAXY_S7, "5": MEDIATEK})
    twins = {f"{SERIAL}|1": LISTED, f"{SERIAL}|2": LISTED.replace("1-2", "1-4").replace("id:3", "id:4")}
    attach(desk, {**twins, f"{SERIAL}|3": "device transport_id:5"})
    document = phono("devices", "--json").document
    assert [(phone["serial"], phone["facts"]["model"]) for phone in document["phones"]] == [
        (f"{SERIAL}@usb:1-2", "Pixel 6a"),
        (f"{SERIAL}@usb:1-4", "SM-G930F"),
        (f"{SERIAL}@transport_id:5", "22041216G"),
    ]
    for name in (f"{SERIAL}@usb:1-4", "transport_id:4"):
        assert [phone.serial for phone in discover(adb, serials=[name])] == [f"{SERIAL}@usb:1-4"]
    assert [phone.serial for phone in discover(adb, serials=[SERIAL])] == [
        phone["serial"] for phone in document["phones"]
    ]
    attach(desk, {f"{SERIAL}|2": "offline usb:1-4 transport_id:9"})  # the others were unplugged
    assert adb.state(f"{SERIAL}@usb:1-4") == "offline"


def test_the_environment_chooses_a_phone_for_work(
    phono: Run, adb: Adb, desk: FakeAdb, monkeypatch: pytest.MonkeyPatch
) -> None:
    attach(desk, {**DESK, "S7": LISTED})
    monkeypatch.setenv("ANDROID_SERIAL", SERIAL)
    ready, others = ready_phones(adb)
    assert ([phone.serial for phone in ready], others) == ([SERIAL], [])
    ready, others = ready_phones(adb, ["S7"], Readiness(min_battery_percent=10))
    assert ([phone.serial for phone in ready], others) == (["S7"], [])
    assert len(phono("devices", "--json").document["phones"]) == 3  # as with `adb devices`
    restored: list[str] = []
    monkeypatch.setattr("phonograd.android_harness.session.restore_phone", lambda _, serial: restored.append(serial))
    assert len(phono("devices", "--restore", "--json").document["phones"]) == 1
    assert restored == [SERIAL]
