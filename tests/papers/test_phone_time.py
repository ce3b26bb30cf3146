"""Paper P's epoch on phones: projections as saved, and the reports of phone-bench in their folder."""

from pathlib import Path

import pytest

from phonograd.android_harness.report.document import write_report
from phonograd.android_harness.result import PhoneBenchReport
from phonograd.device_runtime.base.errors import StateError
from phonograd.papers import run
from phonograd.papers.experiment import Rows
from phonograd.papers.kinds import phone_time
from phonograd.papers.kinds.phone_time import FULL, SAMPLED
from tests.android_harness.reports import PAPERS, SMALL, both_layers, lost_phone, phone, report


@pytest.fixture
def phones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "phones"
    folder.mkdir()
    monkeypatch.setattr(phone_time, "PHONES", folder)
    return folder


def rows(tmp_path: Path) -> Rows:
    return run.run("p-time", tmp_path / "work").means()


def test_reports_are_rows_beside_the_projections(tmp_path: Path, phones: Path) -> None:
    projected = rows(tmp_path)
    assert len(projected) >= 6 and all(row.endswith(", projected") for row in projected)
    little, big = (projected[f"{core}, fp32, projected"] for core in ("cortex-a53", "neoverse-v1"))
    assert big[SAMPLED] < big[FULL] < little[FULL]
    one = both_layers(epochs=3)
    write_report(phones / "a54.json", report(one))
    found = rows(tmp_path)
    seconds = sorted(epoch.seconds for epoch in one.with_output_layer("full").timed)
    assert found["a54, measured"] == pytest.approx({FULL: seconds[1], SAMPLED: seconds[1] / 2.5})
    assert found.items() >= projected.items()


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (
            report(phone(), workload=SMALL),
            "found phones: 1, timed output layers: 1, 1-layer LSTM of 32, 500 words, 1,000 tokens",
        ),
        (report(lost_phone()), f"found phones: 1, timed output layers: 0, {PAPERS.model}"),
        (report(phone("a"), phone("b")), "found phones: 2"),
    ],
)
def test_other_reports_are_refused(tmp_path: Path, phones: Path, wrong: PhoneBenchReport, found: str) -> None:
    write_report(phones / "a54.json", wrong)
    with pytest.raises(StateError, match=rf"a54\.json: a report of one phone .*{found}"):
        rows(tmp_path)
