import dataclasses
import json
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from phonograd.bench.capacity.bench import bench_capacity
from phonograd.bench.capacity.parts import DISK, EVENT_LOOP, LEDGER, PARTS, REST, Part, parts_of
from phonograd.bench.capacity.plan import COMMITTING, CPU, FILES, NETWORK, Limit, limits_of, plan_for
from phonograd.bench.capacity.profiled_server import Counters
from phonograd.bench.capacity.rates import Rate
from phonograd.bench.capacity.rounds_of_phones import CLOSING, DOWNLOAD, ROUND, UPLOAD, PhonesRun, run_phones
from phonograd.bench.capacity.settings import CapacityConfig, Demand, Prices
from phonograd.bench.contestants import BenchError
from phonograd.bench.results import Document, render, result_of
from phonograd.bench.synthetic import random_weights, write_synthetic_artifacts, write_synthetic_updates
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.base.settings import fields_of
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.export.presets import preset_named
from tests.support.command_line import keys

SHORT = CapacityConfig("tiny", phones=4, small_phones=6, profiled=4, rounds=2, at_once=2)
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


COMMIT = Rate("ledger commits", "commits", True, 0.0125, 1)
LIMITS = (Limit("", 50.0), Limit("", 60.0))


def test_a_plan_is_arithmetic_on_what_was_measured() -> None:
    plan = plan_for(8_640_000, MEASURED, LIMITS, Demand(peak=4.0, load=0.5))
    assert plan.peak_phones_per_second == 400
    assert plan.services == 16  # 50 phones/s are the lowest limit, 25 are planned for
    assert plan_for(8_700_000, MEASURED, LIMITS, Demand(peak=4.0, load=0.5)).services == 17
    assert plan.cores == pytest.approx(400 * 0.03 / 0.5)
    assert plan.memory_bytes == 16 * 500_000_000
    assert plan.disk_bytes == pytest.approx(16 * 6 * 200e6 + 30 * 8_640_000 * 1000)
    assert plan.store_bytes == pytest.approx(16 * 6 * 200e6 + 8_640_000 * 300_000)
    assert (plan.down_bytes, plan.gigabits_up, plan.gigabits_down) == pytest.approx((2e6, 0.96, 6.4))


@pytest.mark.parametrize(
    "run, files, lowest",
    [
        ({"cpu_seconds": 30.0}, 0.001, (CPU, 1000 / 30)),
        ({"cpu_seconds": 1.0}, 0.001, (COMMITTING, 1 / (2 * 0.0125))),
        ({"cpu_seconds": 1.0}, 0.05, (FILES, 20.0)),
        ({"cpu_seconds": 1.0, "link_bytes": 25e6}, 0.001, (NETWORK, 5.0)),
        ({"cpu_seconds": 1.0, "update_bytes": 125_000_000}, 0.001, (NETWORK, 1.0)),
    ],
)
def test_the_lowest_limit_comes_first(run: dict[str, float], files: float, lowest: tuple[str, float]) -> None:
    measured = dataclasses.replace(MEASURED, **run)  # type: ignore[arg-type]
    limits = limits_of(measured, [Part(DISK, 0.0, files)], [COMMIT], Demand(gigabits=1.0))
    assert limits[0].name == lowest[0]
    assert limits[0].phones_per_second == pytest.approx(lowest[1])
    assert [limit.phones_per_second for limit in limits] == sorted(limit.phones_per_second for limit in limits)


def test_the_parts_are_all_of_the_process_and_of_one_phone() -> None:
    before = {EVENT_LOOP: [2.0, 0.0], "": [5.0, 0.0]}
    after = {EVENT_LOOP: [3.0, 0.0], LEDGER: [0.5, 4.0], "": [7.0, 0.0]}
    parts = {part.name: (part.cpu, part.wall) for part in parts_of(before, after, 10)}
    assert list(parts) == list(PARTS)
    assert (parts[EVENT_LOOP], parts[LEDGER]) == ((0.1, 0.0), (0.05, 0.4))
    assert parts[REST] == pytest.approx((0.05, 0.0))


def test_a_part_within_another_is_not_counted_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "thread_time", lambda: now[0])
    monkeypatch.setattr(time, "perf_counter", lambda: 10 * now[0])
    counters = Counters()
    with counters.part(LEDGER):
        now[0] += 1
        with pytest.raises(KeyError), counters.part(DISK):
            now[0] += 2
            raise KeyError
        now[0] += 4
    now[0] += 8  # in no part
    with counters.part(DISK):
        now[0] += 16
    told = counters.so_far()
    assert (told[LEDGER], told[DISK]) == ([5.0, 50.0], [18.0, 180.0])


def test_every_price_is_in_the_sum() -> None:
    free = Demand(prices=Prices(0, 0, 0, 0, 0, 0))
    plan = plan_for(1_000_000, MEASURED, LIMITS, free)
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
        one = replace(free, prices=replace(free.prices, **{name: 1.0}))
        assert plan_for(1_000_000, MEASURED, LIMITS, one).dollars_a_month == pytest.approx(dollars), name
    assert set(expected) == {*fields_of(Prices)}


def test_few_phones_need_one_server_and_many_rounds_send_the_model() -> None:
    few = plan_for(10, MEASURED, LIMITS, Demand())
    assert (few.services, few.cores) == (1, 1)
    often = plan_for(10, MEASURED, LIMITS, Demand(rounds_a_day=1000))
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
    names = ["receiving", "decoding, checking and folding", "ledger commits", "/metrics", "sending models"]
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
    counted = {part["name"]: part for part in result["parts"] if part["model"] == "tiny"}
    assert set(counted) == set(PARTS)
    assert all(counted[name]["cpu"] > 0 for name in PARTS if name != REST)
    assert all(counted[name]["wall"] > 0 for name in PARTS if name not in (REST, EVENT_LOOP))
    assert sorted(limit["name"] for limit in result["limits"]) == sorted((CPU, COMMITTING, FILES, NETWORK))
    assert [plan["phones"] for plan in result["plans"]] == [10_000, 1_000_000, 100_000_000]
    assert list(place.iterdir()) == []
    # Of so little work the kernel may count no CPU time at all.
    unseen = [{**rate, "seconds": 0.0} if rate["name"] == "sending models" else rate for rate in result["rates"]]
    page = render({"capacity.json": {**result, "rates": unseen, "command": "c"}})
    assert "| sending models | MB | 0 | - |" in page
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
    with pytest.raises(ValueError, match=r"`phones` is 1, expected at least one for each of `rounds` \(2\)"):
        replace(SHORT, phones=1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**6, 10**6 - 1, 1))  # type: ignore[attr-defined]
    with pytest.raises(BenchError, match="bytes expected to be free, found 1; set TMPDIR"):
        bench_capacity(SHORT)
    assert list(tmp_path.iterdir()) == []


def a_result() -> Document:
    plans = (plan_for(10, MEASURED, LIMITS, Demand()),)
    about = {"versions": {}, "preset": "tiny", "codec": "top-rows", "rates": (), "limits": LIMITS}
    about["parts"] = [{"model": "tiny", "name": LEDGER, "cpu": 0.001, "wall": 0.0}]
    return result_of("capacity", 1, **about, runs=(MEASURED,), demand=Demand(), plans=plans)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[CapacityConfig] = []
    monkeypatch.setattr(
        "phonograd.bench.capacity.bench.bench_capacity", lambda config, say: asked.append(config) or a_result()
    )
    line = ["bench", "capacity", "--preset", "tiny", "--phones", "4", "--small-phones", "6", "--rounds", "2"]
    line += [*keys(prices="core=1 sent=0"), "--set", "at_once=2", "--set", "profiled=4"]
    assert run(phonograd, [*line, "--save", str(tmp_path / "r.json"), "--quiet"]) == 0
    assert asked == [replace(SHORT, demand=Demand(prices=Prices(core=1.0, sent=0.0)))]
    out, _ = capsys.readouterr()
    assert "A service of tiny" in out
    assert "Where a phone's time goes" in out
    assert "What limits a server" in out
    assert json.loads((tmp_path / "r.json").read_text())["runs"][0]["phones"] == 1000
