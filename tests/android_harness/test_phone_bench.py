"""`phonograd phone-bench`, the command: what is refused before a phone is touched, what is printed, exit codes."""

import dataclasses
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from phonograd.android_harness.adb import tool
from phonograd.android_harness.adb.tool import AdbTool
from phonograd.android_harness.errors import NoPhoneError
from phonograd.android_harness.phones import discovery
from phonograd.android_harness.phones.facts import Phone
from phonograd.android_harness.report.document import schema, write_report
from phonograd.android_harness.timing import bench
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime import native_build
from tests.android_harness.fake_session import FakePhone, FakeSession, phone_of
from tests.android_harness.reports import phone, report
from tests.android_harness.small_artifacts import small_artifacts
from tests.support.command_line import Outcome, Run

LITTLE = ("--set", "training.cores=little", "--set", "training.threads=4")
UNAUTHORISED = Phone("SHY", "unauthorized", None, "it has not authorised this computer", "tap Allow")


@dataclasses.dataclass
class Desk:
    """Phones that lie there, and the artifacts to train; `looked` counts how often phones were looked for."""

    artifacts: Path
    phones: list[FakePhone] = dataclasses.field(default_factory=lambda: [FakePhone("A"), FakePhone("B")])
    others: list[Phone] = dataclasses.field(default_factory=list)
    looked: int = 0

    def ready(self, _adb: object, serials: tuple[str, ...], _rules: object) -> tuple[list[Phone], list[Phone]]:
        self.looked += 1
        known = [*(phone_of(phone.serial, model=f"Phone {phone.serial}") for phone in self.phones), *self.others]
        found = [phone for phone in known if not serials or phone.serial in serials]
        if not any(phone.ready for phone in found):
            raise NoPhoneError("no phone is ready")
        return [phone for phone in found if phone.ready], [phone for phone in found if not phone.ready]

    def open_session(self, _adb: object, serial: str, _settings: object) -> FakeSession:
        return FakeSession(next(phone for phone in self.phones if phone.serial == serial))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    place = Desk(small_artifacts(tmp_path / "artifacts").folder)
    on_desk: Callable[..., Any] = functools.partial(bench.run_phone_bench, open_session=place.open_session)
    monkeypatch.setattr(tool, "find_adb", lambda: AdbTool(Path("adb"), "36.0.0", "PATH"))
    monkeypatch.setattr(discovery, "ready_phones", place.ready)
    monkeypatch.setattr(bench, "run_phone_bench", on_desk)
    monkeypatch.setattr(native_build, "deliver_phone_binary", lambda out, progress: out.write_bytes(b"a program"))
    return place


@pytest.fixture
def phone_bench(capfd: pytest.CaptureFixture[str], desk: Desk) -> Run:
    """Run it on the desk's phones, without pauses."""

    def call(*arguments: object) -> Outcome:
        capfd.readouterr()
        line = ["phone-bench", desk.artifacts, "--set", "bench.cooldown_seconds=0", *arguments]
        code = run(phonograd, [*map(str, line)])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call


def test_the_schema_needs_no_phone_and_no_artifacts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(phonograd, ["phone-bench", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema()


def test_the_table_names_every_phone(phone_bench: Run) -> None:
    done = phone_bench()
    assert (done.code, done.err) == (0, "")
    assert "Phone A" in done.out
    assert "Phone B" in done.out


def test_the_first_failing_phones_code_is_the_commands(phone_bench: Run, desk: Desk) -> None:
    desk.phones[0].bug_in_sync, desk.phones[1].lost_in_epoch = True, 1
    done = phone_bench()
    assert done.code == 1
    assert done.err.splitlines() == ["phonograd: phone A: a bug: KeyError: 'a bug'", "phonograd: phone B: disconnected"]


def test_phones_that_are_not_ready_are_named_and_left_out(phone_bench: Run, desk: Desk) -> None:
    desk.others = [UNAUTHORISED]
    done = phone_bench("--json")
    assert done.code == 0
    assert done.err == "phone SHY: it has not authorised this computer; tap Allow; it is left out\n"
    named = phone_bench("--serial", "SHY", "--serial", "A")
    assert named.code == 20
    assert named.err == "phonograd: phone SHY: it has not authorised this computer; tap Allow\n"
    assert phone_bench("--serial", "A", "--quiet").err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--set", "training.cores=fast"], 2, "training.cores is 'fast'"),
        (["--max-slowdown", "10%"], 2, "--max-slowdown needs --compare"),
        (["--compare", "OLD", "--set", "report.fail_unsure=true"], 2, "report.fail_unsure needs --max-slowdown"),
        (["--compare", "OLD", "--max-slowdown", "10%", "--epochs", 2], 2, "needs --epochs 3 or more"),
        (
            ["--compare", "OLD", "--max-slowdown", "10%", *LITTLE],
            25,
            "threads was None, is 4; cores was big, is little; use its options",
        ),
        (["--compare", "missing.json"], 25, "missing.json: cannot be read"),
        (["--out", "/dev/null/r.json"], 11, "/dev/null/r.json: cannot write"),
        (["--html", "/dev/null/r.html"], 11, "no folder"),
    ],
)
def test_impossible_options_fail_before_phones_are_listed(
    phone_bench: Run, desk: Desk, tmp_path: Path, arguments: list[object], code: int, message: str
) -> None:
    write_report(tmp_path / "old.json", report(phone(), cooldown_seconds=0.0))
    done = phone_bench(*(tmp_path / "old.json" if one == "OLD" else one for one in arguments))
    assert done.code == code
    assert message in done.err
    assert done.err.count("\n") == 1
    assert desk.looked == 0


def test_a_page_without_matplotlib_fails_before_the_run(
    phone_bench: Run, desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = phone_bench("--html", tmp_path / "page.html")
    assert (done.code, ".[plots]" in done.err, desk.looked) == (10, True, 0)


def test_invalid_artifacts_fail_before_the_run(phone_bench: Run, desk: Desk) -> None:
    (desk.artifacts / "weights.safetensors").write_bytes(b"altered")
    assert phone_bench().code == 5
    assert desk.looked == 0


def test_a_slower_phone_fails_only_past_what_is_allowed(phone_bench: Run, desk: Desk, tmp_path: Path) -> None:
    old, new, page, trace = (tmp_path / name for name in ("old.json", "new.json", "page.html", "trace"))
    assert phone_bench("--out", old).code == 0
    document = json.loads(old.read_text("utf-8"))
    assert (document["comparison"], document["config"]["bench"]["cooldown_seconds"]) == (None, 0.0)
    desk.phones[1] = FakePhone("B", steps_seconds=(3.0,) * 6)
    compared = phone_bench("--compare", old)
    assert compared.code == 0, compared.err
    assert "Comparison with the old report" in compared.out
    outputs = ("--out", new, "--html", page, "--trace", trace)
    slow = phone_bench("--compare", old, "--max-slowdown", "10%", "--json", *outputs)
    assert slow.code == 24
    assert json.loads(slow.out) == json.loads(new.read_text("utf-8"))
    assert json.loads(new.read_text("utf-8"))["comparison"]["phones"][0]["time"]["basis"] == "epochs"
    assert "Comparison with the old report" in page.read_text("utf-8")
    assert json.loads(trace.read_text("utf-8"))["traceEvents"]
    assert "Phone B" in slow.err
    assert "Phone A" not in slow.err
    assert len(json.loads(slow.out)["phones"]) == 2
    assert phone_bench("--compare", old, "--max-slowdown", "60%").code == 0
    desk.phones[1] = FakePhone("B", lost_in_epoch=1)
    assert phone_bench("--compare", old, "--max-slowdown", "10%").code == 21


def test_a_phones_failure_names_the_option(phone_bench: Run, desk: Desk) -> None:
    desk.phones[0] = FakePhone("A", changes=lambda at_s: {"battery_percent": 80 if at_s < 5 else 3})
    done = phone_bench("--json")
    message = "phone A: battery at 3 %, expected at least 20 %; charge it, or lower phones.min_battery"
    assert json.loads(done.out)["phones"][0]["failure"]["message"] == message
    assert message in done.err
