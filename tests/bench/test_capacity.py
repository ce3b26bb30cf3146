import dataclasses
import json
import shutil
import tempfile
from pathlib import Path

import pytest

from phonograd.bench.capacity.bench import bench_capacity
from phonograd.bench.capacity.plan import plan_for
from phonograd.bench.capacity.rounds_of_phones import CLOSING, DOWNLOAD, ROUND, UPLOAD, PhonesRun, run_phones
from phonograd.bench.capacity.settings import CapacityConfig, Demand, Prices
from phonograd.bench.contestants import BenchError
from phonograd.bench.results import Document, render, result_of
from phonograd.bench.synthetic import random_weights, write_synthetic_artifacts, write_synthetic_updates
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.export.presets import preset_named

SHORT = CapacityConfig("tiny", phones=4, small_phones=6, rounds=2, at_once=2)
MEASURED = PhonesRun(
    model="m",
    model_bytes=200_000_000,
    update_bytes=300_000,
    link_bytes=2e6,
    phones=1000,
    at_once=16,
    rounds=10,
    seconds=20.0,
    cpu_seconds=30.0,
    ledger_bytes=1_000_000,
    idle_rss_bytes=1,
    round_rss_bytes=(1,),
    peak_rss_bytes=500_000_000,
    requests=(),
)


def test_a_plan_is_arithmetic_on_what_was_measured() -> None:
    plan = plan_for(8_640_000, MEASURED, Demand(peak=4.0, load=0.5))
    assert plan.peak_phones_per_second == 400
    assert plan.services == 16  # 50 phones/s were measured, 25 are planned for
    assert plan.cores == pytest.approx(400 * 0.03 / 0.5)
    assert plan.memory_bytes == 16 * 500_000_000
    assert plan.disk_bytes == pytest.approx(16 * 6 * 200e6 + 30 * 8_640_000 * 1000)
    assert plan.store_bytes == pytest.approx(16 * 6 * 200e6 + 8_640_000 * 300_000)
    assert (plan.down_bytes, plan.gigabits_up, plan.gigabits_down) == pytest.approx((2e6, 0.96, 6.4))


def test_every_price_is_in_the_sum() -> None:
    free = Demand(prices=Prices(0, 0, 0, 0, 0, 0))
    plan = plan_for(1_000_000, MEASURED, free)
    assert plan.dollars_a_month == 0
    expected = {
        "core": 730 * plan.cores,
        "memory": 730 * plan.memory_bytes / 1e9,
        "disk": plan.disk_bytes / 1e9,
        "store": plan.store_bytes / 1e9,
        "sent": 30 * 1_000_000 * plan.down_bytes / 1e9,
        "puts": 30 * 1_000_000 / 1e6,
    }
    for name, dollars in expected.items():
        one = dataclasses.replace(free, prices=dataclasses.replace(free.prices, **{name: 1.0}))
        assert plan_for(1_000_000, MEASURED, one).dollars_a_month == pytest.approx(dollars), name
    assert set(expected) == {field.name for field in dataclasses.fields(Prices)}


def test_few_phones_need_one_server_and_many_rounds_send_the_model() -> None:
    few = plan_for(10, MEASURED, Demand())
    assert (few.services, few.cores) == (1, 1)
    often = plan_for(10, MEASURED, Demand(rounds_a_day=1000))
    assert often.down_bytes == MEASURED.model_bytes
    assert often.store_bytes < few.store_bytes  # a round has fewer updates


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def result(place: Path) -> Document:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        return bench_capacity(SHORT)


@pytest.mark.long
def test_all_that_is_promised_is_measured(result: Document, place: Path) -> None:
    names = ["receiving", "checking", "folding", "ledger commits", "/metrics", "sending models"]
    assert [rate["name"] for rate in result["rates"]] == names
    assert all(rate["seconds"] >= 0 and rate["runs"] > 0 for rate in result["rates"])
    assert [(one["phones"], one["rounds"], len(one["round_rss_bytes"])) for one in result["runs"]] == [
        (6, 2, 2),
        (4, 2, 2),
    ]
    for one in result["runs"]:
        counts = {request["kind"]: request["count"] for request in one["requests"]}
        per_round = one["phones"] // 2
        assert counts == {ROUND: one["phones"], DOWNLOAD: per_round, UPLOAD: one["phones"] - 2, CLOSING: 2}
        assert all(0 < request["median"] <= request["p99"] <= request["slowest"] for request in one["requests"])
        assert one["update_bytes"] > 0
        assert 0 < one["link_bytes"] < one["model_bytes"]
        assert 0 < max(one["round_rss_bytes"]) <= one["peak_rss_bytes"]
    assert [plan["phones"] for plan in result["plans"]] == [10_000, 1_000_000, 100_000_000]
    assert list(place.iterdir()) == []
    page = render({"capacity.json": {**result, "command": "c"}})
    assert "## Capacity: tiny, updates by top-rows" in page
    assert "| 100,000,000 |" in page


@pytest.mark.long
def test_an_answer_that_was_not_expected_ends_the_run(tmp_path: Path) -> None:
    model = preset_named("tiny").model
    for name, seed in (("artifacts", 0), ("other", 1)):
        write_synthetic_artifacts(tmp_path / name, model, random_weights(model, seed))
    write_synthetic_updates(tmp_path / "other" / WEIGHTS, {"top-rows": tmp_path / "update"}, 0, 100)
    with pytest.raises(BenchError, match="status 200 expected for GET /v1/models/|status 201 expected for POST"):
        run_phones(tmp_path / "artifacts", [tmp_path / "update"], tmp_path / "state", "tiny", 2, 1, 1)


def test_what_cannot_be_measured_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BenchError, match="at least 2 phones expected, one for each round, found 1"):
        bench_capacity(dataclasses.replace(SHORT, phones=1))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6 - 1, 1))  # type: ignore[attr-defined]
    with pytest.raises(BenchError, match="bytes expected to be free, found 1; set TMPDIR"):
        bench_capacity(SHORT)
    assert list(tmp_path.iterdir()) == []


def a_result() -> Document:
    plans = (plan_for(10, MEASURED, Demand()),)
    about = {"versions": {}, "preset": "tiny", "codec": "top-rows", "rates": ()}
    return result_of("capacity", 1, **about, runs=(MEASURED,), demand=Demand(), plans=plans)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[CapacityConfig] = []
    monkeypatch.setattr(
        "phonograd.bench.capacity.bench.bench_capacity", lambda config, say: asked.append(config) or a_result()
    )
    line = ["bench", "capacity", "--preset", "tiny", "--phones", "4", "--small-phones", "6", "--rounds", "2"]
    line += ["--at-once", "2", "--price", "core=1", "--price", "sent=0"]
    assert run(phonograd, [*line, "--save", str(tmp_path / "r.json"), "--quiet"]) == 0
    assert asked == [dataclasses.replace(SHORT, demand=Demand(prices=Prices(core=1.0, sent=0.0)))]
    out, _ = capsys.readouterr()
    assert "A service of tiny" in out
    assert json.loads((tmp_path / "r.json").read_text())["runs"][0]["phones"] == 1000


@pytest.mark.parametrize("price", ["gold=1", "core", "core=-1", "core=nan", "core=inf"])
def test_a_price_that_is_none(price: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(phonograd, ["bench", "capacity", "--price", price]) == 2
    assert "expected NAME=DOLLARS, each of core, memory, disk, store, sent, puts at most once" in " ".join(
        capsys.readouterr().err.split()
    )
