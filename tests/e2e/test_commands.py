"""The commands in the order a user meets them, on a tiny model."""

import contextlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.export.inspection import how_to_get_onnx
from phonograd.pages import to_words
from tests.support.command_line import Run, Workplace, keys, text_of
from tests.support.margins import Margin
from tests.support.serving import serving
from tests.support.waiting import until


def test_artifacts_are_described(phono: Run, workplace: Workplace) -> None:
    document = phono("inspect", workplace.artifacts, "--json").document
    assert document["parameters"] == 17 * 16 * 2 + 17 + 2 * (4 * 16 * (16 + 16) + 8 * 16)
    graph = document["operators"]["training_model.onnx"]
    assert graph["LSTMTraining"] == graph["LSTMGrad"] == 2
    assert not {"Slice", "Concat", "Split"} & set(graph)
    sampled = document["operators"]["training_model_sampled.onnx"]  # which trains the rows of its candidates
    assert sampled["Gather"] - graph["Gather"] == sampled["GatherGrad"] - graph["GatherGrad"] == 2  # weights and bias
    assert sampled["LSTMGrad"] == graph["LSTMGrad"]
    assert document["training"]["loss_reduction"] == "sum_over_time"
    assert document["weights_sha256"] == sha256_of_file(workplace.artifacts / "weights.safetensors")
    table = phono("inspect", workplace.artifacts).out
    assert all(one in table for one in ("parameters", "embedding.weight", "LSTMGrad 2", "sum_over_time"))


def test_counts_are_the_vocabularys_or_follow_zipfs_law(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    assert (workplace.artifacts / "vocab.txt").read_bytes() == Path(workplace.vocabulary).read_bytes()
    alone = tmp_path / "vocab.txt"
    alone.write_bytes(b"<unk>\n<eos>\nthe\ncat\n")
    preset = ("--preset", "tiny", "--vocab", alone, "--seed", 1)
    document = phono("export", *preset, "--out", tmp_path / "a", "--json").document
    assert (tmp_path / "a/vocab.txt").read_bytes() == b"<unk>\t1000000\n<eos>\t500000\nthe\t333333\ncat\t250000\n"
    assert {"vocab.txt", "training_model_sampled.onnx"} < set(document["files"])


def test_a_model_is_named_by_its_preset_only_if_it_is_that(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    words = tmp_path / "words"
    for size, name in ((100, "tiny"), (3, "custom: lstm 2x16, embedding 16, untied, 3 words")):
        words.write_bytes(b"<unk>\n<eos>\n" + b"".join(b"w%d\n" % n for n in range(size - 2)))
        line = ("--preset", "tiny", "--vocab", words, "--seed", 1, "--overwrite", "--out", tmp_path / "made")
        outcome = phono("export", *line)
        assert outcome.code == 0
        assert name in outcome.out
        assert phono("inspect", tmp_path / "made", "--json").document["preset"] == name


def test_operators_that_cannot_be_listed(phono: Run, workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    outcome = phono("inspect", workplace.artifacts)
    assert (outcome.code, "LSTMGrad" in outcome.out) == (0, False)
    assert "that needs onnx; in a checkout of phonograd, run: pip install '.[export]'" in outcome.err
    for version in ((3, 13, 0), (3, 14, 2)):  # the extra has no onnx for these
        with monkeypatch.context() as patch:
            patch.setattr(sys, "version_info", version)
            assert how_to_get_onnx() == "run: pip install onnx"


def test_log_lines_as_json(workplace: Workplace, tmp_path: Path) -> None:
    """All lines are JSON, except the secret link."""
    line = [sys.executable, "-m", "phonograd", "serve", "--artifacts", workplace.artifacts, "--state", tmp_path / "s"]
    options = ["--port", "0", "--log-format", "json", "--strategy", "norm-bound"]
    with subprocess.Popen([*map(str, line), *options], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        logged = []
        for text in process.stderr:
            logged.append(text)
            if listening := re.search(r"listening on (\S+): round 1, norm-bound, 10 phones, no deadline", text):
                assert httpx.get(f"{listening[1]}/v1/round", trust_env=False).status_code == 200
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    lines = [json.loads(text) for text in logged]
    (request,) = [one for one in lines if one["event"] == "request"]
    assert (request["method"], request["route"], request["status"]) == ("GET", "/v1/round", 200)
    assert "norm-bound goes by the norms" in lines[0]["message"]
    assert not any(one["logger"].startswith("alembic") for one in lines)  # ten lines of a new ledger's tables
    assert "key=" not in "".join(logged)


@pytest.fixture(scope="module")
def server(workplace: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    state = tmp_path_factory.mktemp("server") / "state"
    with serving(workplace.artifacts, state, "--clients-per-round", "2") as url:
        yield state, url


def test_figures_are_shown_with_their_standard_errors(phono: Run, workplace: Workplace) -> None:
    line = ("eval", workplace.artifacts, "--text", workplace.user, "--kss")
    (found,), table = phono(*line, "--json").document, phono(*line).out
    for name, title in (("perplexity", "perplexity"), ("kss", "keystrokes saved")):
        assert 0 < found[f"{name}_error"] < found[name]
        assert f" {title} " in table
        assert to_words({name: found[name], f"{name}_error": found[f"{name}_error"]})[title] in table
    assert "_error" not in table


@pytest.mark.learns
def test_a_round_of_two_phones(
    phono: Run, workplace: Workplace, server: tuple[Path, str], tmp_path: Path, margin: Margin
) -> None:
    state, url = server
    before = phono("eval", workplace.artifacts, "--text", workplace.user, "--kss", "--json").document[0]
    updates = []
    for phone in (1, 2):
        user, update = tmp_path / f"user-{phone}.txt", tmp_path / f"{phone}.update"
        user.write_bytes(text_of(phone, 60))
        trained = phono(
            "train", workplace.artifacts, "--user", user, "--rehearsal", workplace.general, "--seed", phone,
            "--update", update, "--out", tmp_path / f"{phone}.safetensors", "--json",
        ).document  # fmt: skip
        assert trained["user_share"] == pytest.approx(0.5, abs=0.01)
        assert len(trained["losses"]) == trained["steps"]
        receipt = phono("upload", update, "--server", url, "--phone", f"p{phone}", "--json").document
        assert receipt["accepted"] == phone
        updates.append((trained["tokens"], load_tensors(tmp_path / f"{phone}.safetensors"), update.stat().st_size))
    assert receipt["round_closed"]

    def report(*source: object) -> dict[str, Any]:
        return dict(phono("report", *source, "--json").document)

    # The bytes of an upload's answer are booked a moment after the phone has it.
    until(
        lambda: report("--server", url) == report("--state", state), "the same report from the state as from the server"
    )
    first = report("--state", state)["rounds"][0]
    assert first["useful_bytes"] == sum(size for _, _, size in updates)
    assert first["codecs"] == {"rows-f32": {"updates": 2, "bytes": first["useful_bytes"]}}
    assert "rows-f32 x2" in phono("report", "--server", url).out

    model = state / "models" / f"{receipt['model_sha256']}.safetensors"
    assert sha256_of_file(model) == receipt["model_sha256"]
    averaged = load_tensors(model)
    total = sum(tokens for tokens, _, _ in updates)
    for name, array in averaged.items():
        expected = sum(tokens * weights[name].astype(np.float64) for tokens, weights, _ in updates) / total
        np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-9)
    measure = ("eval", workplace.artifacts, "--weights", model, "--text", workplace.user, "--kss", "--server", url)
    after = phono(*measure, "--json")
    margin(
        "perplexity after the round, of that before", after.document[0]["perplexity"] / before["perplexity"], high=0.9
    )
    assert f"reported to {url} for model {receipt['model_sha256'][:12]}" in after.err
    assert phono("report", "--server", url, "--json").document["rounds"][0]["quality"] == {
        "keystrokes saved (%) user": 100 * after.document[0]["kss"],
        "perplexity user": after.document[0]["perplexity"],
        "perplexity with unknown words user": after.document[0]["perplexity_with_unknown"],
        "top-1 (%) user": 100 * after.document[0]["top1"],
    }
    unknown = phono(*measure[:2], *measure[4:], "--weights", tmp_path / "1.safetensors", "--json")
    assert (unknown.code, len(json.loads(unknown.out))) == (8, 1)  # what was measured is not lost
    assert "is not one of this server's" in unknown.err
    twice = phono(*measure, "--text", tmp_path / "elsewhere" / workplace.user.name)
    assert (twice.code, "texts of different names expected" in twice.err) == (2, True)

    late = phono("upload", tmp_path / "1.update", "--server", url, "--phone", "p9")
    assert late.code == 8
    assert "409" in late.err
    again = phono(
        "train", workplace.artifacts, "--weights", model, "--user", workplace.user, "--round", "2",
        "--update", tmp_path / "next.update", "--json",
    )  # fmt: skip
    assert again.code == 0
    assert phono("upload", tmp_path / "next.update", "--server", url, "--phone", "p1", "--json").document["round"] == 2


def test_update_encode_show_decode(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    weights, update, back = tmp_path / "w", tmp_path / "u", tmp_path / "back"
    base = workplace.artifacts / "weights.safetensors"
    assert phono("train", workplace.artifacts, "--user", workplace.user, "--out", weights).code == 0
    encoded = phono(
        "update", "encode", weights, "--base", base, "--tokens", "400", "--codec", "full-f32", "--out", update
    )
    assert encoded.code == 0
    shown = phono("update", "show", update, "--json").document
    assert (shown["codec"], shown["tokens"], shown["bytes"]) == ("full-f32", 400, update.stat().st_size)
    assert phono("update", "decode", update, "--base", base, "--out", back).code == 0
    assert back.read_bytes() == weights.read_bytes()


@pytest.mark.learns
def test_pretrain_then_export(phono: Run, workplace: Workplace, tmp_path: Path, margin: Margin, seed: int) -> None:
    base = tmp_path / "base.safetensors"
    options = ("--preset", "tiny", "--vocab", workplace.vocabulary)
    sizes = ("--epochs", "4", *keys(training="minibatch=4 bptt=8 dropout=0"), "--seed", seed)
    result = phono("pretrain", *options, "--text", workplace.general, *sizes, "--out", base, "--json").document
    margin("best perplexity", result["best_perplexity"], high=15)  # of 17 words
    assert phono("export", *options, "--weights", base, "--out", tmp_path / "made").code == 0
    scores = phono("eval", tmp_path / "made", "--text", workplace.general, "--json").document
    margin("perplexity of the artifacts", scores[0]["perplexity"], high=15)


def test_pretrain_with_a_teacher_at_a_rate_that_is_too_high(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    vocabulary, teacher = workplace.vocabulary, tmp_path / "teacher"
    assert phono("export", "--preset", "tiny", "--vocab", vocabulary, "--seed", 0, "--out", teacher).code == 0
    shape = keys(
        shape="cell=cifg layers=1 hidden=6 embedding=5 tied=true", training="clip_norm=none learning_rate=100000"
    )
    options = ("--vocab", vocabulary, "--text", workplace.general, "--teacher", teacher, *shape, "--max-steps", 2)
    outcome = phono("pretrain", *options, "--out", tmp_path / "base", "--set", "training.text_share=0.3", "--json")
    lines = [line for line in outcome.err.splitlines() if line.startswith("diverged after step")]
    assert len(lines) > 1
    assert "goes on from step 0 at 1/2 of the learning rate" in lines[0]
    missing = phono("pretrain", *options, "--teacher", tmp_path / "none", "--out", tmp_path / "base")
    assert f"{tmp_path / 'none'}/manifest.json: not found" in missing.err


def test_a_signal_stops_pre_training(
    phono: Run, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--preset", "tiny", "--vocab", workplace.vocabulary, "--text", workplace.general, "--epochs", 1)
    pretrain = ("pretrain", *options, "--state", tmp_path / "state", "--out", tmp_path / "base", "--json")
    with monkeypatch.context() as patch:
        patch.setattr("phonograd.commands.pretrain.stop_signals", lambda: contextlib.nullcontext(lambda: 15))
        outcome = phono(*pretrain)
    assert (outcome.code, "the state is saved: run the same command to resume" in outcome.err) == (143, True)
    document = phono(*pretrain).document
    assert [point["steps"] for point in document["curve"]] == [document["steps"]]


@pytest.mark.learns
@pytest.mark.parametrize("training", ["loss=lwf user_share=0.3", "dropout=0.3", "clip_norm=none"])
def test_artifact_variants_train(
    phono: Run, workplace: Workplace, tmp_path: Path, training: str, margin: Margin, seed: int
) -> None:
    made = tmp_path / "made"
    preset = ("--preset", "tiny", "--vocab", workplace.vocabulary, "--seed", seed)
    document = phono("export", *preset, *keys(training=training), "--out", made, "--json").document
    assert ("LogSoftmaxGrad_13" in document["operators"]["training_model.onnx"]) == ("lwf" in training)
    assert ("DropoutGrad" in document["operators"]["training_model.onnx"]) == ("dropout" in training)
    clips = "InplaceClipGradNorm" in document["operators"]["optimizer_model.onnx"]
    assert clips == ("clip_norm" not in training)
    text = ("--text", workplace.user, "--json")
    before = phono("eval", made, *text).document[0]["perplexity"]
    assert (
        phono(
            "train",
            made,
            "--user",
            workplace.user,
            "--set",
            "training.epochs=4",
            "--seed",
            seed,
            "--out",
            tmp_path / "w",
        ).code
        == 0
    )
    after = phono("eval", made, "--weights", tmp_path / "w", *text).document[0]["perplexity"]
    margin("perplexity after, of that before", after / before, high=0.95)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    corpus = tmp_path / "corpus"
    (corpus / "users").mkdir(parents=True)
    for name, seed in (
        ("general-train", 1),
        ("general-valid", 2),
        ("general-test", 3),
        ("users-test", 4),
        ("words", 5),
    ):
        (corpus / f"{name}.txt").write_bytes(text_of(seed, 150))
    for user in (1, 2):
        (corpus / "users" / f"user-{user:02}.txt").write_bytes(text_of(user + 5, 60))
    return corpus


DEMO_SIZES = ("--preset", "tiny", "--vocabulary", "17", "--pretrain-steps", "2", "--phones", "2")


@pytest.mark.long
def test_the_demo_at_tiny_size(phono: Run, corpus: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    outcome = phono("demo", "--corpus", corpus, "--out", tmp_path / "out", "--report", report, *DEMO_SIZES, "--json")
    document = outcome.document
    assert [row["codec"] for row in document["codecs"]] == ["full-f32", "rows-f32"]
    assert document["report"]["rounds"][0]["accepted"] == 2
    assert report.read_text().count("<svg") == 4
    assert phono("demo", "--out", tmp_path / "out").code == 11  # the folder is not empty


@pytest.mark.long
def test_a_demo_that_is_ended_leaves_no_server(corpus: Path, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "phonograd", "demo", "--corpus", corpus, "--out", "out", *DEMO_SIZES]
    with subprocess.Popen([*map(str, line)], stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stderr is not None
        url = next(said.split()[-1] for said in process.stderr if "train and upload to" in said)
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
    assert (process.returncode, "phonograd: interrupted" in rest.splitlines()) == (143, True), rest
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)


def test_the_configuration_in_a_result_repeats_the_training(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    first, again, file = tmp_path / "first", tmp_path / "again", tmp_path / "train.toml"
    line = ("--seed", 1, *keys(training="epochs=2 output_sample=5 learning_rate=0.5"), "--sample-seed", 7)
    done = phono("train", workplace.artifacts, "--user", workplace.user, *line, "--out", first, "--json")
    (tmp_path / "done.json").write_text(done.out)
    assert "sample_seed" not in done.out  # it is a secret
    file.write_text(phono("config", "train", "--from", tmp_path / "done.json").out)
    repeated = phono("train", "--config", file, "--sample-seed", 7, "--out", again, "--json").document
    assert (repeated["steps"], again.read_bytes()) == (done.document["steps"], first.read_bytes())
    assert repeated["config"] == done.document["config"] | {"out": str(again)}
