"""`phonograd-phone`: its events, files and exit codes, and that it does what `phonograd` does."""

import dataclasses
import hashlib
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd import __version__
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.engine import load_backend
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.seeds import seed_of
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.export.torch_layout import to_torch
from tests.support.phone_command import MODEL, STEPS, TRAINING, Place, outputs, text_of, until_step, written

Python = Callable[..., Any]


@pytest.fixture
def python(capfd: pytest.CaptureFixture[str]) -> Python:
    """The JSON result of a `phonograd` command."""

    def call(*arguments: object) -> Any:
        capfd.readouterr()
        code = run(phonograd, [*map(str, arguments), "--json"])
        captured = capfd.readouterr()
        assert code == 0, captured.err
        return json.loads(captured.out)

    return call


@pytest.mark.parametrize("codec", ["rows-f32", "full-f32", "delta-int8", "top-rows"])
def test_an_epoch_is_pythons_to_the_bit(place: Place, python: Python, tmp_path: Path, codec: str) -> None:
    (tmp_path / "python").mkdir()
    options = ("--rehearsal", place.general, "--user-share", 0.4, "--seed", 5, "--lr", 0.3, "--codec", codec)
    options += ("--epochs", 2)
    ours = place.train(*options, "--round", 9, *outputs(tmp_path)).only("report")
    arguments = ("--user", place.user, *options, "--round", 9, *outputs(tmp_path / "python"), "--backend", "native")
    theirs = python("train", place.artifacts.folder, *arguments)
    assert written(tmp_path) == written(tmp_path / "python")
    timed = {"step_seconds", "seconds", "seconds_per_step_median", "peak_rss_bytes"}
    assert set(theirs) <= set(ours)
    for key in set(theirs) - timed - {"weights", "update"}:
        assert ours[key] == theirs[key], key
    assert (ours["epochs"], ours["steps"]) == (2, 2 * math.ceil(ours["tokens"] / TRAINING.minibatch / TRAINING.bptt))
    assert 0 < ours["user_unknown_share"] < 0.3
    assert 0 < ours["general_unknown_share"] < 0.3
    for kind in ("weights", "update"):
        assert ours[kind] | {"path": ""} == theirs[kind] | {"path": ""}
    assert len(ours["step_seconds"]) == ours["steps"]
    assert 0 < ours["peak_rss_bytes"] < 1 << 30


def test_codec_costs_are_the_bytes_of_the_files_that_would_be_written(place: Place, tmp_path: Path) -> None:
    report = place.train("--seed", 5, "--codec-costs").only("report")
    assert "update" not in report
    assert [cost["codec"] for cost in report["codecs"]] == [codec for codec in CODECS if "+" not in codec]
    for cost in report["codecs"]:
        place.train("--seed", 5, "--codec", cost["codec"], "--update", tmp_path / "update")
        assert cost["nbytes"] == (tmp_path / "update").stat().st_size, cost
        assert cost["seconds"] > 0
    assert "codecs" not in place.train("--seed", 5).only("report")


def test_a_phones_seed_follows_from_base_round_and_name(place: Place, python: Python, tmp_path: Path) -> None:
    mixed = ("--user", place.user, "--rehearsal", place.general, "--codec", "rot-q1")
    base = place.artifacts.weights_sha256
    for number, options in enumerate((("--phone", "p1"), ("--phone", "p1", "--round", 12), ("--phone", "2.p_1-A"))):
        line = ("train", place.artifacts.folder, *mixed, *options, "--update", tmp_path / f"ours-{number}")
        done = place.run(*line)
        expected = seed_of(base, 12 if "--round" in options else 1, options[1])
        assert done.only("start")["seed"] == done.only("report")["seed"] == expected
        with UpdateFile(tmp_path / f"ours-{number}") as update:
            assert update.info.seed == expected
        line = ("train", place.artifacts.folder, *mixed, *options, "--update", tmp_path / "python")
        assert python(*line)["seed"] == expected
        assert (tmp_path / "python").read_bytes() == (tmp_path / f"ours-{number}").read_bytes()
    assert place.train("--out", tmp_path / "later").code == 0
    seed = place.train("--weights", tmp_path / "later", "--phone", "p1").only("report")["seed"]
    assert seed == seed_of(sha256_of_file(tmp_path / "later"), 1, "p1") != seed_of(base, 1, "p1")


def test_without_a_name_the_seed_is_random_and_reported(place: Place, python: Python, tmp_path: Path) -> None:
    """Four draws of 56 bits: equal ones come once in 10^16 runs."""
    seeds = set()
    for number in range(2):
        line = ("train", place.artifacts.folder, "--user", place.user, "--codec", "top-rows")
        seeds.add(place.run(*line, "--update", tmp_path / "ours").only("report")["seed"])
        seeds.add(python(*line, "--update", tmp_path / "python")["seed"])
        for name in ("ours", "python"):
            with UpdateFile(tmp_path / name) as update:
                assert update.info.seed in seeds
        assert len(seeds) == 2 * number + 2


def test_a_run_without_a_name_goes_on_with_the_seed_of_its_state(place: Place, python: Python, tmp_path: Path) -> None:
    line = ("train", place.artifacts.folder, "--user", place.user, "--rehearsal", place.general)
    kept = ("--state", tmp_path / "state", "--save-every", 2)
    stopped = until_step(place.line(*line, *kept), 9, signal.SIGTERM)
    seed, step = stopped.only("start")["seed"], stopped.only("interrupted")["step"]  # the step that the signal met
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    resumed = place.run(*line, *kept, "--out", tmp_path / "ours")
    assert (resumed.only("start")["seed"], resumed.only("start")["resumed_at"]) == (seed, step)
    report = python(*line, "--state", tmp_path / "copy", "--out", tmp_path / "python")
    assert (report["seed"], report["resumed_at"]) == (seed, step)
    assert place.run(*line, "--seed", seed, "--out", tmp_path / "whole").code == 0
    whole = (tmp_path / "whole").read_bytes()
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "python").read_bytes() == whole


def test_the_result_does_not_depend_on_threads(place: Place, tmp_path: Path) -> None:
    found = set()
    short = tmp_path / "short"
    short.write_bytes(text_of(3, 120))
    line = ("train", place.artifacts.folder, "--user", short, "--seed", 0, *outputs(tmp_path))
    for threads in (1, 2, 3, 4, 8):
        report = place.run(*line, "--threads", threads).only("report")
        assert report["threads"] == min(threads, len(os.sched_getaffinity(0)))
        found.add(tuple(written(tmp_path).values()))
    assert len(found) == 1


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


def test_training_from_a_later_rounds_model(place: Place, tmp_path: Path) -> None:
    assert place.train("--out", tmp_path / "later").code == 0
    done = place.train("--weights", tmp_path / "later", "--update", tmp_path / "update")
    assert done.code == 0
    with UpdateFile(tmp_path / "update") as update:
        assert update.info.base_sha256 == sha256_of_file(tmp_path / "later")


def test_a_token_file_is_the_stream_itself(place: Place, tmp_path: Path) -> None:
    vocabulary = Vocabulary.load(place.artifacts.path(VOCABULARY))
    vocabulary.encode(read_messages(place.user)).astype("<i4").tofile(tmp_path / "tokens")
    assert place.train("--out", tmp_path / "text").code == 0
    line = ("train", place.artifacts.folder, "--tokens", tmp_path / "tokens", "--seed", 0, "--out", tmp_path / "ids")
    report = place.run(*line).only("report")
    assert (report["user_tokens"], report["general_tokens"], report["user_share"]) == (report["tokens"], 0, 1.0)
    assert (tmp_path / "text").read_bytes() == (tmp_path / "ids").read_bytes()


@pytest.mark.parametrize("weights", [None, "later"])
def test_evaluation_is_pythons(place: Place, python: Python, tmp_path: Path, weights: str | None) -> None:
    assert place.train("--out", tmp_path / "later").code == 0
    (tmp_path / "other").write_bytes(text_of(4, 250))
    texts = ("--text", place.user, "--text", tmp_path / "other", "--kss")
    options = () if weights is None else ("--weights", tmp_path / weights)
    ours = place.run("eval", place.artifacts.folder, *texts, *options)
    theirs = python("eval", place.artifacts.folder, *texts, *options, "--backend", "native")
    assert [event["event"] for event in ours.events] == ["evaluation"] * 2
    for found, expected in zip(ours.events, theirs, strict=True):
        for key, value in expected.items():
            assert found[key] == (pytest.approx(value, rel=1e-6) if "perplexity" in key else value), key
    assert place.run("eval", place.artifacts.folder, "--text", place.user).only("evaluation")["kss"] is None


@pytest.mark.parametrize(("context", "prefix"), [("", ""), ("w1 w2\nW3 nonsense", "w"), ("w7", "W1"), ("w7", "zz")])
def test_suggestions_are_the_most_probable_words(place: Place, context: str, prefix: str) -> None:
    found = place.run("predict", place.artifacts.folder, *_given("--context", context), *_given("--prefix", prefix))
    words = found.only("suggestions")["words"]
    vocabulary = Vocabulary.load(place.artifacts.path(VOCABULARY))
    lines = context.encode().split(b"\n")
    stream = [1, *vocabulary.encode(lines)[:-1]]  # what is written of the current message has no end yet
    backend = load_backend("native", place.artifacts)
    scores = backend.logits(np.array(stream)[:, None])[-1].astype(np.float64)
    backend.close()
    probabilities = np.exp(scores) / np.exp(scores).sum()
    fitting = [id for id, word in enumerate(vocabulary.words) if id > 1 and word.startswith(prefix.lower().encode())]
    best = sorted(fitting, key=lambda id: -scores[id])[:3]
    assert [entry["word"].encode() for entry in words] == [vocabulary.words[id] for id in best]
    assert [entry["probability"] for entry in words] == pytest.approx([probabilities[id] for id in best], rel=1e-4)


def _given(name: str, value: str) -> tuple[str, ...]:
    return (f"{name}={value}",) if value else ()


def test_bench_reports_its_steps(place: Place) -> None:
    report = place.run("bench", place.artifacts.folder, "--steps", 5, "--threads", 1).only("bench")
    assert (report["steps"], report["threads"], len(report["step_seconds"])) == (5, 1, 5)
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


def test_a_former_name_of_an_option(place: Place) -> None:
    line = ("bench", place.artifacts.folder, "--steps", 1, "--threads", 1)
    former, today = (place.run(*line, option) for option in ("--pin", "--pin-threads"))
    assert (former.code, former.only("bench")["pinned"], today.only("bench")["pinned"]) == (0, True, True)
    assert "phonograd-phone: warning: --pin is now --pin-threads;" in former.err
    assert "now" not in today.err


def test_help_and_version(place: Place) -> None:
    def said(*arguments: str) -> str:
        return subprocess.run(place.line(*arguments), capture_output=True, text=True, check=True).stdout

    assert said("--version") == f"phonograd-phone {__version__}\n"
    everything = said("--help")
    for command in ("train", "eval", "predict", "bench", "info"):
        assert f"  {command} " in everything
        assert said(command, "--help").startswith(f"usage: phonograd-phone {command}")
    assert "--save-every N" in said("train", "--threads", "2", "--help")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give a command"),
        (("trian",), "no command trian; did you mean train? (phonograd-phone --help)"),
        (("xyz",), "no command xyz (phonograd-phone --help)"),
        (("train",), "train: ARTIFACTS is missing"),
        (("train", "A", "B"), "train: unexpected argument B"),
        (("train", "A", "--usr", "u"), "train: no option --usr; did you mean --user?"),
        (("train", "A", "--use", "u"), "train: no option --use; did you mean --user?"),
        (("train", "A", "--qqqqqqqq", "u"), "train: no option --qqqqqqqq (phonograd-phone train --help)"),
        (("train", "A", "--user"), "--user needs a value: FILE"),
        (("train", "A", "--user="), "--user: the value is empty, expected FILE"),
        (("train", "A", "--user", "a", "--user", "b"), "--user is given twice"),
        (("train", "A", "--pin-threads=yes"), "--pin-threads takes no value"),
        (("train", "A"), "give --user or --tokens"),
        (("train", "A", "--user", "a", "--tokens", "b"), "--user and --tokens exclude each other"),
        (("train", "A", "--tokens", "b", "--rehearsal", "c"), "--rehearsal needs --user"),
        (("train", "A", "--user", "a", "--user-share", "0.5"), "--user-share needs --rehearsal"),
        (("train", "A", "--user", "a", "--restart"), "--restart needs --state"),
        (("train", "A", "--user", "a", "--save-every", "5"), "--save-every needs --state"),
        (("train", "A", "--user", "a", "--seed", "-1"), "--seed -1: expected a whole number from 0 to"),
        (("train", "A", "--user", "a", "--seed", "1x"), "--seed 1x: expected a whole number"),
        (("train", "A", "--user", "a", "--seed", "1", "--phone", "p"), "--seed and --phone exclude each other"),
        (
            ("train", "A", "--user", "a", "--phone", "p 1"),
            "--phone: expected a name of 1 to 64 characters A-Z a-z 0-9 . _ -",
        ),
        (("train", "A", "--user", "a", "--phone", "p" * 65), "--phone: expected a name of 1 to 64"),
        (("train", "A", "--user", "a", "--codec", "zip"), "--codec zip: expected one of full-f32, rows-f32, "),
        (("train", "A", "--user", "a", "--round", "0"), "--round 0: expected a whole number from 1"),
        (("eval", "A"), "--text is missing"),
        (("info", "x"), "unexpected argument x"),
    ],
)
def test_wrong_usage_is_named(place: Place, words: tuple[str, ...], said: str) -> None:
    found = place.run(*words)
    assert (found.code, found.events, found.err.count("\n")) == (2, [], 1)
    assert found.err.startswith("phonograd-phone: ")
    assert said in found.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--lr", "0"), "--lr 0: expected a number above 0"),
        (("--lr", "nan"), "--lr nan: expected a number"),
        (("--lr", "1e39"), "--lr 1e39: expected a number above 0.0 and at most 3.4e+38"),
        (("--threads", "0"), "--threads 0: expected a whole number from 1"),
        (("--precision", "fp8"), "--precision fp8: expected one of fp32, bf16, bf16-emulated"),
        (("--cores", "some"), "--cores some: expected big, little, all, or a hexadecimal mask"),
    ],
)
def test_settings_that_cannot_be(place: Place, options: tuple[str, ...], said: str) -> None:
    found = place.train(*options)
    assert (found.code, found.events) == (2, [])
    assert said in found.err


def test_texts_that_cannot_be_trained(place: Place, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"w1 w2\n")
    (tmp_path / "odd").write_bytes(b"12345")
    np.array([1, MODEL.vocabulary], "<i4").tofile(tmp_path / "beyond")
    (tmp_path / "little").write_bytes(b"w1 w2 w3\n")
    train = ("train", place.artifacts.folder)
    for options, said in (
        (("--user", tmp_path / "short"), "15 tokens expected (one window: minibatch 3 x BPTT 5), found 3; give more"),
        (("--user", tmp_path / "none"), "none: cannot be"),
        (("--tokens", tmp_path / "odd"), "odd: 5 bytes, expected little-endian int32 token ids"),
        (("--tokens", tmp_path / "beyond"), "token 1 is 600, expected an id from 0 to 599"),
        (("--user", place.user, "--rehearsal", tmp_path / "little"), "rehearsal text: 600 tokens needed, found 4"),
    ):
        found = place.run(*train, *options)
        assert (found.code, found.events, found.err.count("\n")) == (3, [], 1)
        assert said in found.err


def altered(place: Place, folder: Path, name: str, change: Callable[[bytes], bytes]) -> Place:
    """With one file of the artifacts changed, to a content of the same length."""
    shutil.copytree(place.artifacts.folder, folder)
    path = folder / name
    path.write_bytes(change(path.read_bytes()))
    return dataclasses.replace(place, artifacts=dataclasses.replace(place.artifacts, folder=folder))


@pytest.mark.parametrize(("unknown", "warned"), [(30, False), (31, True)])
def test_a_text_of_unknown_words_trains_with_a_warning(
    place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str], unknown: int, warned: bool
) -> None:
    odd = tmp_path / "odd"
    odd.write_bytes(b"elsewhere\n" * unknown + b"w1\n" * (100 - unknown))
    said = f"{odd}: {unknown}% of the words are unknown to the vocabulary; is it UTF-8, and in the model's language?\n"
    line = ("train", place.artifacts.folder, "--user", odd)
    found = place.run(*line)
    assert found.err.replace(" %", "%") == (f"phonograd-phone: warning: {said}" if warned else "")
    assert run(phonograd, [*map(str, line), "--json"]) == 0
    captured = capfd.readouterr()
    assert captured.err == (f"phonograd: warning: {said}" if warned else "")
    for report in (json.loads(captured.out), found.only("start"), found.only("report")):
        assert (report["user_unknown_share"], report["general_unknown_share"]) == (unknown / 100, None)
    evaluated = place.run("eval", place.artifacts.folder, "--text", odd)
    assert evaluated.err.replace(" %", "%") == (f"phonograd-phone: warning: {said}" if warned else "")
    assert run(phonograd, ["eval", str(place.artifacts.folder), "--text", str(odd)]) == 0
    assert capfd.readouterr().err == (f"phonograd: warning: {said}" if warned else "")


def test_a_rehearsal_of_unknown_words_is_warned_of_too(
    place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    odd = tmp_path / "odd"
    odd.write_bytes(b"elsewhere\n" * 400)
    line = ("train", place.artifacts.folder, "--user", place.user, "--rehearsal", odd)
    found = place.run(*line)
    assert found.only("report")["general_unknown_share"] == 1
    assert f"warning: {odd}: 100 % of the words are unknown" in found.err
    assert run(phonograd, [*map(str, line)]) == 0
    assert f"warning: {odd}: 100% of the words are unknown" in capfd.readouterr().err


def test_a_text_that_is_no_utf8_is_not_trained(place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "text"
    for content, said in (
        (place.user.read_bytes().decode().encode("utf-16"), "begins with a UTF-16 byte order mark"),
        (place.user.read_bytes() + b"\0", f"byte {place.user.stat().st_size} is NUL"),
    ):
        text.write_bytes(content)
        for options in (("--user", text), ("--user", place.user, "--rehearsal", text)):
            found = place.run("train", place.artifacts.folder, *options)
            assert (found.code, found.events) == (3, [])
            assert f"{text}: {said}" in found.err
            assert run(phonograd, [*map(str, ("train", place.artifacts.folder, *options))]) == 3
            assert f"{text}: {said}" in capfd.readouterr().err


def test_a_loss_that_explodes_is_divergence_and_gives_no_update(
    place: Place, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every loss is finite: the gradient is clipped, so that the weights grow and do not overflow."""
    options = ("--lr", "1e9", *outputs(tmp_path))
    said = (
        r"step 2: loss is \S+ nats a token, expected 63\.9\S* at most \(ten times a uniform guess\); training diverged"
    )
    found = place.train(*options)
    assert found.code == 12
    assert re.search(said, found.err)
    assert run(phonograd, [*map(str, ("train", place.artifacts.folder, "--user", place.user, *options))]) == 12
    assert re.search(said, capfd.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def limited(megabytes: int) -> Callable[[], None]:
    """For a child process: no more memory than that."""
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def test_out_of_memory_has_a_code_of_its_own(place: Place, tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(200 << 20)
    found = place.run("train", place.artifacts.folder, "--user", huge, preexec_fn=limited(128))
    assert (found.code, found.err) == (26, "phonograd-phone: out of memory; close other apps or use a smaller model\n")
    weights = tmp_path / "weights"
    with weights.open("wb") as file:
        file.truncate(200 << 20)
    found = place.train("--weights", weights, preexec_fn=limited(128))
    assert (found.code, found.err) == (26, f"phonograd-phone: {weights}: cannot be mapped: Cannot allocate memory\n")


def test_artifacts_that_cannot_be_used(place: Place, tmp_path: Path) -> None:
    found = place.run("train", tmp_path / "none", "--user", place.user)
    assert (found.code, found.events) == (5, [])
    assert "no such folder" in found.err
    found = place.run("train", place.user, "--user", place.user)
    assert (found.code, found.events) == (5, [])
    assert f"{place.user}: an artifacts folder expected, found a file; give the folder" in found.err
    torch = to_torch(load_tensors(place.artifacts.path(WEIGHTS)), MODEL)
    for module in ("lstm", "rnn"):
        save_tensors(tmp_path / module, {name.replace("lstm.", f"{module}."): tensor for name, tensor in torch.items()})
        found = place.train("--weights", tmp_path / module)
        assert (found.code, found.events) == (6, [])
        assert "found a PyTorch model; export it first with: phonograd export --model" in found.err
    vocabulary = altered(place, tmp_path / "vocabulary", VOCABULARY, lambda data: data.replace(b"w11\n", b"w12\n"))
    assert vocabulary.train().code == 4
    weights = altered(place, tmp_path / "weights", WEIGHTS, lambda data: data.replace(b'"F32"', b'"I32"'))
    found = weights.train()
    assert (found.code, found.events) == (6, [])
    graph = altered(place, tmp_path / "graph", "training_model.onnx", lambda data: data.replace(b"Gemm", b"Germ"))
    found = graph.train()
    assert (found.code, found.events) == (5, [])
    assert "Germ" in found.err


def test_outputs_places_are_checked_before_training(place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for options, said in (
        (("--out", tmp_path / "none" / "out"), "cannot write: no folder"),
        (("--update", tmp_path), "cannot write: it is a folder"),
        (("--state", tmp_path / "none" / "state"), "cannot make the folder: No such file or directory"),
        (("--state", tmp_path / "file"), "cannot"),
    ):
        found = place.train(*options)
        assert (found.code, found.events, found.err.count("\n")) == (11, [], 1)
        assert said in found.err


def test_the_base_is_no_output_of_a_run_that_can_be_resumed(place: Place, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copy(place.artifacts.path(WEIGHTS), base)
    before = hashlib.sha256(base.read_bytes()).hexdigest()
    found = place.train("--weights", base, "--out", base, "--state", tmp_path / "state")
    assert (found.code, found.events) == (2, [])
    assert "training starts from these weights" in found.err
    assert sha256_of_file(base) == before
    line = ["train", place.artifacts.folder, "--user", place.user, "--backend", "native", "--weights", base]
    assert run(phonograd, [*map(str, line), "--out", str(base), "--state", str(tmp_path / "state")]) == 2
    assert sha256_of_file(base) == before


def test_what_this_cpu_lacks_is_refused(place: Place) -> None:
    found = place.train("--cores", "8" + "0" * 200)
    assert (found.code, found.events) == (10, [])
    assert "this process may use none of these cores; see phonograd-phone info" in found.err


def test_weights_that_are_not_finite_are_never_written(place: Place, tmp_path: Path) -> None:
    """The one step's loss is that before its update, and finite; the weights after it are not."""
    short = tmp_path / "short"
    short.write_bytes(b"w1 w1 w1 w1 w1 w1 w1\nw1 w1 w1 w1 w1 w1\n")
    line = ("train", place.artifacts.folder, "--user", short, "--lr", "3e38")
    found = place.run(*line, "--state", tmp_path / "state", *outputs(tmp_path))
    assert found.code == 12
    assert "trained weights: tensor " in found.err
    assert "is not finite; lower the learning rate" in found.err
    python_line = [*map(str, line), "--backend", "native", *map(str, outputs(tmp_path))]
    assert run(phonograd, python_line) == 12
    found = place.train("--lr", "3e38", *outputs(tmp_path))
    assert found.code == 12
    assert "loss is" in found.err
    assert not {"out", "update"} & {path.name for path in tmp_path.iterdir()}


def test_a_full_stdout_is_no_success(place: Place) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(place.line("info"), stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 11
    assert (
        done.stderr
        == "phonograd-phone: stdout: cannot write: No space left on device; free space or choose another place\n"
    )
