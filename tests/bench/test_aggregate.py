import dataclasses
import json
import tempfile
from pathlib import Path

import pytest

from phonograd.bench.aggregate import AggregateBenchConfig, bench_aggregate
from phonograd.bench.contestants import BenchError
from phonograd.cli import phonograd
from phonograd.console import run

SHORT = AggregateBenchConfig("tiny", counts=(2, 5), distinct=3, rounds=2)
ONE = dataclasses.replace(SHORT, counts=(2,), rounds=1)


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phonograd.bench.aggregate.FLOWER_PEER", "tests.bench.fake_aggregator")
    monkeypatch.setattr("phonograd.bench.aggregate.UPDATES_PEER", "phonograd.bench.peers.fold")


@pytest.fixture
def no_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    for peer in ("FLOWER_PEER", "UPDATES_PEER"):
        monkeypatch.setattr(f"phonograd.bench.aggregate.{peer}", "phonograd.bench.peers.no_such_flower")


def test_the_fold_and_its_peer_average_the_same_updates(
    peer: None, in_this_process: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    result = bench_aggregate(dataclasses.replace(SHORT, codecs=("full-f32", "rows-f32")))
    names = ("fold full-f32", "fold rows-f32", "flower", "flower, fold full-f32", "flower, fold rows-f32")
    assert [(one["name"], one["updates"]) for one in result["contestants"]] == [(n, c) for c in (2, 5) for n in names]
    assert result["disagreements"] == []
    assert result["left_out"] == {}
    full, rows, flower = result["contestants"][:3]
    assert [one["difference"] for one in result["contestants"][3:5]] == [0, 0]
    # rows-f32 is lossless, so its fold is the same to the bit; the peer adds up in float32.
    assert (full["difference"], rows["difference"]) == (0, 0)
    assert 0 < flower["difference"] < 1e-7
    assert rows["update_bytes"] < full["update_bytes"] == flower["update_bytes"]
    assert (full["ratio"], full["ratio_with_loading"]) == (1, 1)
    for one in result["contestants"]:
        assert one["aggregate_seconds"] > 0
        assert 0 <= one["own_rss_bytes"] < one["peak_rss_bytes"]
    assert list(tmp_path.iterdir()) == []


def test_without_the_peer_the_table_says_how_to_get_it(no_peer: None, in_this_process: None) -> None:
    result = bench_aggregate(SHORT)
    assert [(one["name"], one["updates"]) for one in result["contestants"]] == [
        ("fold full-f32", 2),
        ("fold full-f32", 5),
    ]
    assert list(result["left_out"]) == ["flower", "flower, fold full-f32"]
    for reason in result["left_out"].values():
        assert reason.startswith(
            "No module named 'phonograd.bench.peers.no_such_flower'; best in an environment of its own, in a"
        )
        assert "--flower-python" in reason


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("nan", "tensor decoder.bias: a weight is not finite"),
        ("another model", "have different tensors"),
    ],
)
def test_an_average_of_something_else_is_refused(
    peer: None, in_this_process: None, monkeypatch: pytest.MonkeyPatch, wrong: str, message: str
) -> None:
    monkeypatch.setenv("FAKE_AGGREGATOR", wrong)
    with pytest.raises(BenchError, match=message):
        bench_aggregate(ONE)


@pytest.mark.long
def test_contestants_have_processes_of_their_own(peer: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {one["difference"] < 1e-7 for one in bench_aggregate(ONE)["contestants"]} == {True}
    monkeypatch.setenv("FAKE_AGGREGATOR", "fails")
    with pytest.raises(BenchError, match="flower exited with code 1: fell over"):
        bench_aggregate(ONE)
    with pytest.raises(BenchError, match="flower: /no/python cannot be run"):
        bench_aggregate(dataclasses.replace(ONE, flower_python="/no/python"))


def test_the_command_saves_and_fails_when_averages_differ(
    peer: None,
    in_this_process: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = ["bench", "aggregate", "--preset", "tiny", "--updates", "2", "--rounds", "1"]
    for wrong, code in (("", 0), ("off", 16)):
        monkeypatch.setenv("FAKE_AGGREGATOR", wrong)
        assert run(phonograd, [*line, "--save", str(tmp_path / "r.json"), "--json"]) == code
        out, err = capsys.readouterr()
        shown, saved = json.loads(out), json.loads((tmp_path / "r.json").read_text())
        assert shown.keys() | {"command", "day", "commit"} == saved.keys()
        assert bool(saved["disagreements"]) == (code == 16) == ("flower over 2 updates is off by 0.25" in err)
        assert saved["command"] == "phonograd bench aggregate --preset tiny --updates 2 --rounds 1"
