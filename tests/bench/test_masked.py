import dataclasses
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from phonograd.bench.contestants import BenchError
from phonograd.bench.masked import MaskedBenchConfig, bench_masked
from phonograd.bench.peers import own_masked
from phonograd.bench.peers.cohort import Beside, Meter, Sampled
from phonograd.bench.synthetic import random_weights
from phonograd.bench.worker import MaskedJob
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.formats.tensor_file import save_tensors
from phonograd.device_runtime.masked.cohort import MaskedCohort, MaskedSum
from phonograd.export.presets import preset_named

SHORT = MaskedBenchConfig("tiny", phones=(4, 5), dead=(0, 20), support=4, most=6, whole=4)
ONE = dataclasses.replace(SHORT, phones=(5,), dead=(20,), most=5)
KINDS = {"keys", "shares", "unmasking"}
FAKE = "tests.bench.fake_secagg"


@pytest.fixture(autouse=True)
def peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phonograd.bench.masked.FLOWER_PEER", FAKE)


@pytest.fixture
def both_fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phonograd.bench.masked.OWN_PEER", FAKE)


def test_cohorts_of_both_and_two_more_of_ours(
    in_this_process: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = bench_masked(SHORT)
    own, flower, thin = "phonograd", "Flower SecAgg+", "phonograd, support 1/4"
    assert [(one["name"], one["phones"], one["dead"]) for one in result["contestants"]] == [
        (own, 4, 0), (flower, 4, 0), (own, 5, 0), (flower, 5, 0), (own, 5, 1), (flower, 5, 1), (thin, 5, 1),
        (own, 6, 1),
    ]  # fmt: skip
    assert (result["left_out"], result["disagreements"]) == ({}, [])
    assert [one["counted"] for one in result["contestants"] if one["name"] == flower] == [
        [], ["unmasking", "memory"], ["unmasking", "memory"],
    ]  # fmt: skip
    for one in result["contestants"]:
        if one["name"] == flower:
            continue
        assert (one["difference"], one["counted"], one["phones_run"]) == (0, [], one["phones"] - one["dead"])
        assert set(one["phone_seconds"]) == set(one["up_bytes"]) | {"encoding"} == KINDS | {"update", "encoding"}
        assert set(one["server_seconds"]) == {"messages", "adding", "unmasking"}
        assert min(one["up_bytes"].values()) > 0
        assert min(one["down_bytes"].values()) > 0
        assert set(one["down_bytes"]) == KINDS
        assert one["own_rss_bytes"] >= 0
    bytes_up = {(one["name"], one["phones"]): one["up_bytes"]["update"] for one in result["contestants"]}
    assert bytes_up[thin, 5] < bytes_up[own, 5] / 2
    assert list(tmp_path.iterdir()) == []


def of_three(folder: Path) -> MaskedJob:
    save_tensors(folder / "base", random_weights(preset_named("tiny").model, 0))
    return MaskedJob("", str(folder / "base"), str(folder), 3, 0, {"support": 1})


def test_a_sum_that_is_not_the_plain_one_is_seen(
    in_this_process: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    values = MaskedSum.values
    monkeypatch.setattr(MaskedSum, "values", lambda self: values(self) - 2 * (np.arange(self._values) == 5))
    assert own_masked.run(of_three(tmp_path))["difference"] == 2


def test_one_masked_update_is_on_disk_at_a_time(
    in_this_process: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    held = []
    add = MaskedSum.add

    def counting(self: MaskedSum, cohort: MaskedCohort, path: Path) -> None:
        held.append(len([*tmp_path.glob(f"phone*/{path.name}")]))
        add(self, cohort, path)

    monkeypatch.setattr(MaskedSum, "add", counting)
    own_masked.run(of_three(tmp_path))
    assert held == [1, 1, 1]


@pytest.mark.parametrize(("wrong", "code"), [("", 0), ("off", 16)])
def test_the_command_saves_and_fails_when_a_sum_is_wrong(
    both_fake: None,
    in_this_process: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    wrong: str,
    code: int,
) -> None:
    monkeypatch.setenv("FAKE_SECAGG", wrong)
    line = ["bench", "masked", "--preset", "tiny", "--phones", "4", "--dead", "0", "--support", "1", "--most", "4"]
    saved = tmp_path / "r.json"
    assert run(phonograd, [*line, "--flower-python", sys.executable, "--save", str(saved), "--json"]) == code
    out, err = capsys.readouterr()
    document = json.loads(saved.read_text())
    assert json.loads(out).keys() | {"command", "day", "commit"} == document.keys()
    assert document["command"] == f"phonograd {' '.join(line)} --flower-python FLOWER-PYTHON"
    assert ("the sum of Flower SecAgg+, 4 phones, 0 of them dead, is off by 0.5" in err) == (code == 16)


def test_without_flower_the_table_says_how_to_get_it(
    both_fake: None, in_this_process: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phonograd.bench.masked.FLOWER_PEER", "phonograd.bench.peers.no_such_flower")
    result = bench_masked(ONE)
    assert {one["name"] for one in result["contestants"]} == {"phonograd", "phonograd, support 1/4"}
    assert list(result["left_out"]) == ["Flower SecAgg+"]
    assert result["left_out"]["Flower SecAgg+"].startswith(
        "No module named 'phonograd.bench.peers.no_such_flower'; pip install flwr"
    )


@pytest.mark.parametrize(
    ("option", "value"), [("--phones", "2"), ("--dead", "31"), ("--support", "2"), ("--most", "2")]
)
def test_what_no_round_can_have_is_refused(option: str, value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(phonograd, ["bench", "masked", option, value]) == 2
    assert f"Invalid value for '{option}'" in capsys.readouterr().err


@pytest.mark.long
def test_server_and_phones_have_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    own, flower, _ = bench_masked(ONE)["contestants"]
    assert (own["difference"], own["phones_run"], flower["versions"]) == (0, 4, {"fake": "1"})
    monkeypatch.setattr("phonograd.bench.masked.OWN_PEER", FAKE)
    with pytest.raises(BenchError, match="Flower SecAgg.: /no/python cannot be run"):
        bench_masked(dataclasses.replace(ONE, flower_python="/no/python"))


def test_phones_beside_raise_what_their_process_raised() -> None:
    with Beside(list, (3, 4)) as beside:
        assert beside.call("index", 4) == 1
        with pytest.raises(ValueError, match="not in list"):
            beside.call("index", 5)


def test_calls_that_did_not_run_are_counted_at_the_seconds_of_those_that_did(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100, 5))
    monkeypatch.setattr("phonograd.bench.peers.cohort.time.process_time", lambda: next(clock))
    double = Sampled(lambda number: 2 * number, 2, lambda last, number: (last, number))
    assert [double(1), double(2), double(3)] == [2, 4, (4, 3)]
    assert double.missing_seconds == 5
    double(4)
    assert double.missing_seconds == 10
    assert Sampled(str, 2, str).missing_seconds == 0


def test_a_phone_is_charged_by_kind_and_medians_are_of_those_asked_for() -> None:
    meter = Meter()
    for phone, seconds in enumerate((1.0, 2.0, 4.0)):
        meter.add(phone, "keys", seconds, up=10)
        meter.add(phone, "keys", seconds, down=3)
    assert meter.medians([0, 2]) == {
        "phone_seconds": {"keys": 5.0}, "up_bytes": {"keys": 10}, "down_bytes": {"keys": 3},
    }  # fmt: skip
