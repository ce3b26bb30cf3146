"""`phonograd-phone`: its events, files and exit codes; tests/native/test_round_abi.py holds its bits to `phonograd`."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from phonograd import __version__, open_predictor
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.seeds import seed_of
from phonograd.device_runtime.update.update_file import UpdateFile
from tests.support.phone_command import STEPS, TRAINING, Place, text_of, until_step


def test_codec_costs_are_the_bytes_of_the_files_that_would_be_written(place: Place, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(text_of(3, 120))
    line = ("train", place.artifacts.folder, "--user", tmp_path / "short", "--seed", 5, "--threads", 1)
    report = place.run(*line, "--codec-costs").only("report")
    assert "update" not in report
    assert [cost["codec"] for cost in report["codecs"]] == [codec for codec in CODECS if "+" not in codec]
    for cost in report["codecs"]:
        place.run(*line, "--codec", cost["codec"], "--update", tmp_path / "update")
        assert cost["nbytes"] == (tmp_path / "update").stat().st_size, cost
        assert cost["seconds"] > 0
    assert "codecs" not in place.run(*line).only("report")


def test_a_phones_seed_follows_from_base_round_and_name(place: Place, tmp_path: Path) -> None:
    base, update = place.artifacts.weights_sha256, tmp_path / "update"
    for options in (("--phone", "p1"), ("--phone", "p1", "--round", 12), ("--phone", "2.p_1-A")):
        done = place.train("--codec", "rot-q1", *options, "--update", update)
        expected = seed_of(base, 12 if "--round" in options else 1, options[1])
        assert done.only("start")["seed"] == done.only("report")["seed"] == expected
        with UpdateFile(update) as sent:
            assert (sent.info.seed, sent.info.base_sha256) == (expected, base)


def test_training_from_a_later_rounds_model(place: Place, tmp_path: Path) -> None:
    assert place.train("--out", tmp_path / "later").code == 0
    done = place.train("--weights", tmp_path / "later", "--phone", "p1", "--update", tmp_path / "update")
    seed = done.only("report")["seed"]
    assert seed == seed_of(sha256_of_file(tmp_path / "later"), 1, "p1")
    assert seed != seed_of(place.artifacts.weights_sha256, 1, "p1")
    with UpdateFile(tmp_path / "update") as update:
        assert update.info.base_sha256 == sha256_of_file(tmp_path / "later")


def test_without_a_name_the_seed_is_random_and_reported(place: Place, tmp_path: Path) -> None:
    """Two draws of 56 bits."""
    seeds = set()
    for _ in range(2):
        line = ("train", place.artifacts.folder, "--user", place.user, "--codec", "top-rows")
        seeds.add(place.run(*line, "--update", tmp_path / "update").only("report")["seed"])
        with UpdateFile(tmp_path / "update") as update:
            assert update.info.seed in seeds
    assert len(seeds) == 2


def test_a_run_without_a_name_goes_on_with_the_seed_of_its_state(place: Place, tmp_path: Path) -> None:
    line = ("train", place.artifacts.folder, "--user", place.user, "--rehearsal", place.general)
    kept = ("--state", tmp_path / "state", "--save-every", 2)
    stopped = until_step(place.line(*line, *kept), 9, signal.SIGTERM)
    seed, step = stopped.only("start")["seed"], stopped.only("interrupted")["step"]  # the step that the signal met
    resumed = place.run(*line, *kept, "--out", tmp_path / "resumed")
    assert (resumed.only("start")["seed"], resumed.only("start")["resumed_at"]) == (seed, step)
    assert place.run(*line, "--seed", seed, "--out", tmp_path / "whole").code == 0
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "whole").read_bytes()


def test_events_of_an_epoch(place: Place, tmp_path: Path) -> None:
    done = place.train("--state", tmp_path / "state", "--save-every", 15, "--update", tmp_path / "update")
    assert (done.code, done.err) == (0, "")
    names = [event["event"] for event in done.events]
    steps = ["step"] * 15
    assert names == ["start", *steps, "saved", *steps, "saved", *steps[:10], "report"]
    start, report = done.events[0], done.events[-1]
    assert start["version"] == __version__
    job = set(start) - {"event", "version", "load_seconds"}
    assert {key: start[key] for key in job} == {key: report[key] for key in job}
    assert {"backend", "kernels", "precision", "threads", "tokens", "learning_rate", "clip_norm"} <= job
    told = [event for event in done.events if event["event"] == "step"]
    assert [event["step"] for event in told] == list(range(1, STEPS + 1))
    assert [event["loss"] for event in told] == report["losses"]
    for event in told:
        assert sum(event["phases"].values()) <= event["seconds"]
        assert event["tokens_per_s"] == pytest.approx(TRAINING.minibatch * TRAINING.bptt / event["seconds"])
    saved = [event for event in done.events if event["event"] == "saved"]
    assert [(event["step"], event["nbytes"] > 10_000) for event in saved] == [(15, True), (30, True)]
    with UpdateFile(tmp_path / "update") as update:
        assert update.info.base_sha256 == place.artifacts.weights_sha256
        assert (update.info.tokens, update.info.round) == (report["tokens"], 1)


def test_a_token_file_is_the_stream_itself(place: Place, tmp_path: Path) -> None:
    vocabulary = Vocabulary.load(place.artifacts.path(VOCABULARY))
    vocabulary.encode(read_messages(place.user)).astype("<i4").tofile(tmp_path / "tokens")
    assert place.train("--out", tmp_path / "text").code == 0
    line = ("train", place.artifacts.folder, "--tokens", tmp_path / "tokens", "--seed", 0, "--out", tmp_path / "ids")
    report = place.run(*line).only("report")
    assert (report["user_tokens"], report["general_tokens"], report["user_share"]) == (report["tokens"], 0, 1.0)
    assert (tmp_path / "text").read_bytes() == (tmp_path / "ids").read_bytes()


def test_evaluation_is_pythons(place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert place.train("--out", tmp_path / "later").code == 0
    (tmp_path / "other").write_bytes(text_of(4, 250))
    line = ("eval", place.artifacts.folder, "--text", place.user, "--text", tmp_path / "other", "--kss")
    line += ("--weights", tmp_path / "later")
    ours = place.run(*line)
    assert [event["event"] for event in ours.events] == ["evaluation"] * 2
    assert run(phonograd, [*map(str, line), "--json"]) == 0
    for found, expected in zip(ours.events, json.loads(capfd.readouterr().out), strict=True):
        for key, value in expected.items():
            assert found[key] == (pytest.approx(value, rel=1e-6) if "perplexity" in key else value), key
    assert place.run("eval", place.artifacts.folder, "--text", place.user).only("evaluation")["kss"] is None


@pytest.mark.parametrize(("context", "prefix"), [("", ""), ("w1 w2\nW3 nonsense", "w"), ("w7", "W1"), ("w7", "zz")])
def test_suggestions_are_the_predictors(place: Place, context: str, prefix: str) -> None:
    found = place.run("predict", place.artifacts.folder, *_option("--context", context), *_option("--prefix", prefix))
    with open_predictor(place.artifacts) as predictor:
        predictor.feed(context)
        expected = predictor.suggest(prefix)
    assert [entry["word"] for entry in found.only("suggestions")["words"]] == [one.word for one in expected]
    shares = [entry["probability"] for entry in found.only("suggestions")["words"]]
    assert shares == pytest.approx([one.probability for one in expected])


def test_prediction_weights_are_written_and_used(tmp_path: Path, place: Place) -> None:
    out = tmp_path / "int8.safetensors"
    written = place.run("quantize", place.artifacts.folder, "--out", out).only("quantized")
    assert written["path"] == str(out)
    assert (written["nbytes"], written["sha256"]) == (out.stat().st_size, sha256_of_file(out))
    assert written["nbytes"] < place.artifacts.path(WEIGHTS).stat().st_size / 3
    line = ("predict", place.artifacts.folder, "--context", "w1 w2")
    found, expected = (place.run(*line, *more).only("suggestions") for more in (("--weights", out), ()))
    assert (found["precision"], expected["precision"]) == ("int8", "fp32")
    for one, other in zip(found["words"], expected["words"], strict=True):
        assert one["probability"] == pytest.approx(other["probability"], rel=0.05)


def _option(name: str, value: str) -> tuple[str, ...]:
    return (f"{name}={value}",) if value else ()


def test_bench_reports_its_steps(place: Place) -> None:
    report = place.run("bench", place.artifacts.folder, "--steps", 5, "--threads", 8).only("bench")
    assert (report["steps"], report["threads"]) == (len(report["step_seconds"]), min(8, len(os.sched_getaffinity(0))))
    assert min(report["step_seconds"]) <= report["seconds_per_step_median"] <= max(report["step_seconds"])
    assert report["seconds_per_step_p10"] <= report["seconds_per_step_median"] <= report["seconds_per_step_p90"]
    assert report["tokens_per_step"] == TRAINING.minibatch * TRAINING.bptt
    assert report["phases"]
    assert report["peak_rss_bytes"] > 0


def test_info_names_kernels_and_cores(place: Place) -> None:
    info = place.run("info").only("info")
    assert info["version"] == __version__
    assert info["cpu"]["kernels"]
    assert len(info["cores"]) == info["cpu"]["cores"]
    kernels = place.run("bench", place.artifacts.folder, "--steps", 1, "--kernels", info["cpu"]["kernels"][-1])
    assert kernels.only("bench")["kernels"] == info["cpu"]["kernels"][-1]
    mask = f"{1 << info['cores'][0]['core']:x}"
    assert place.run("bench", place.artifacts.folder, "--steps", 1, "--cores", mask, "--pin-threads").code == 0


def test_help_and_version(place: Place) -> None:
    def help_of(*arguments: str) -> str:
        return subprocess.run(place.line(*arguments), capture_output=True, text=True, check=True).stdout

    assert help_of("--version") == f"phonograd-phone {__version__}\n"
    everything = help_of("--help")
    for command in ("train", "eval", "predict", "quantize", "pull", "bench", "info"):
        assert f"  {command} " in everything
        assert help_of(command, "--help").startswith(f"usage: phonograd-phone {command}")
    assert "--save-every N" in help_of("train", "--threads", "2", "--help")
