"""The outputs of `phonograd phone-bench`, and its checks before any phone is used."""

import json
import sys
from pathlib import Path

import pytest

from phonograd.android_harness.errors import RegressionError, ReportError
from phonograd.android_harness.report.document import read_report, write_report
from phonograd.android_harness.timing.settings import PhoneBenchSettings
from phonograd.commands.phone_reports import Outputs
from phonograd.console import Console
from phonograd.device_runtime.base.errors import MissingExtraError, PhonogradError, StorageError, UsageError
from tests.android_harness.reports import phone, report

LIKE_OLD = PhoneBenchSettings(epochs=3)
NEW = report(phone(step_seconds=2.5, seed=1))


@pytest.fixture
def old(tmp_path: Path) -> Path:
    write_report(tmp_path / "old.json", report(phone(), phone("gone")))
    return tmp_path / "old.json"


def test_all_outputs_carry_the_comparison(old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = Outputs.checked(tmp_path / "new.json", tmp_path / "new.html", tmp_path / "trace", old, "10%", LIKE_OLD)
    outputs.write(Console(as_json=True, quiet=True), NEW)
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((tmp_path / "new.json").read_text("utf-8"))
    assert document["comparison"]["phones"][0]["time"]["basis"] == "epochs"
    assert read_report(tmp_path / "new.json") == NEW
    assert json.loads((tmp_path / "trace").read_text("utf-8"))["traceEvents"]
    assert "SM-A546B (gone)" not in (tmp_path / "new.html").read_text("utf-8")  # two lines in a table
    assert "only in the old report" in (tmp_path / "new.html").read_text("utf-8")
    with pytest.raises(RegressionError):
        outputs.judge()


def test_tables_have_the_verdict(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = Outputs.checked(None, None, None, old, "0.1", LIKE_OLD)
    outputs.write(Console(as_json=False, quiet=True), NEW)
    assert "slower" in capsys.readouterr().out


def test_without_an_old_report_nothing_is_judged(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = Outputs.checked(None, None, None, None, None, LIKE_OLD)
    outputs.write(Console(as_json=True, quiet=True), NEW)
    assert json.loads(capsys.readouterr().out)["comparison"] is None
    outputs.judge()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"max_slowdown": "10%", "old": None}, UsageError, "needs --compare"),
        ({"max_slowdown": "10"}, UsageError, "expected a share such as 10% or 0.1"),
        ({"fail_unsure": True}, UsageError, "--fail-unsure needs --max-slowdown"),
        ({"max_slowdown": "10%", "settings": PhoneBenchSettings(epochs=2)}, UsageError, "needs `epochs` 3 or more"),
        (
            {"max_slowdown": "10%", "settings": PhoneBenchSettings(epochs=3, cores="little", threads=4)},
            ReportError,
            "threads was None, is 4; cores was big, is little; use its options",
        ),
        ({"old": Path("missing.json")}, ReportError, "missing.json: cannot be read"),
        ({"out": Path("/dev/null/new.json")}, StorageError, "no folder"),
        ({"html": Path("/dev/null/new.html")}, StorageError, "no folder"),
    ],
)
def test_impossible_options_fail_before_the_run(
    old: Path, options: dict[str, object], error: type[PhonogradError], said: str
) -> None:
    settings = {
        "out": None,
        "html": None,
        "trace": None,
        "old": old,
        "max_slowdown": None,
        "settings": LIKE_OLD,
        **options,
    }
    with pytest.raises(error, match=said):
        Outputs.checked(**settings)  # type: ignore[arg-type]


def test_a_page_without_matplotlib_fails_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "matplotlib", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"phonograd\[plots\]"):
        Outputs.checked(None, tmp_path / "page.html", None, None, None, LIKE_OLD)
