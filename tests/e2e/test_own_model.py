"""A PyTorch user's own model, from a state dict to a round's average, by the commands alone."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.formats.frozen import frozen_in
from phonograd.device_runtime.formats.manifest import WEIGHTS, open_artifacts
from phonograd.device_runtime.formats.model_config import Cell, LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors
from phonograd.export.torch_layout import seeded_weights
from phonograd.export.torch_model import LanguageModel
from tests.e2e.test_bad_input import assert_refused
from tests.support.command_line import Run, Workplace, keys
from tests.support.own_models import RNNModel
from tests.support.serving import serving

WORDS = 17


def state_dict(path: Path, cell: Cell, layers: int, tied: bool, bias: bool) -> Path:
    torch.manual_seed(2)
    if cell == "cifg":
        model = LanguageModel(LanguageModelConfig(cell, WORDS, 12, 12, layers, tied, bias), seed=2)
        torch.save({name: 10 * tensor for name, tensor in model.state_dict().items()}, path)
        return path
    torch.save(RNNModel(cell, WORDS, 12, 12, layers, tied, bias).state_dict(), path)
    return path


@pytest.mark.parametrize(
    ("cell", "layers", "tied", "bias"),
    [("lstm", 2, True, True), ("lstm", 3, False, False), ("gru", 2, False, True), ("cifg", 1, True, False)],
)
def test_exported_trained_and_folded(
    phono: Run, workplace: Workplace, tmp_path: Path, cell: Cell, layers: int, tied: bool, bias: bool
) -> None:
    model, artifacts = state_dict(tmp_path / "my.pt", cell, layers, tied, bias), tmp_path / "artifacts"
    export = ("--vocab", workplace.vocabulary, *keys(training="learning_rate=0.5 clip_norm=none bptt=5 minibatch=3"))
    found = phono("export", "--model", model, *export, "--out", artifacts, "--json").document
    expected = LanguageModelConfig(cell, WORDS, 12, 12, layers, tied, bias)
    assert found["model"] == document_of(expected)

    train = ("train", artifacts, "--user", workplace.user)
    updates = [tmp_path / f"{seed}.update" for seed in (1, 2)]
    for seed, update in enumerate(updates, 1):
        assert phono(*train, "--out", tmp_path / str(seed), "--update", update, "--seed", seed).code == 0
    first, one, other = (load_tensors(path) for path in (artifacts / WEIGHTS, tmp_path / "1", tmp_path / "2"))
    for name, before in first.items():
        assert np.linalg.norm(one[name] - before) > 1e-4 * np.linalg.norm(one[name]), f"{name} was not trained"
    evaluated = phono("eval", artifacts, "--text", workplace.user, "--json").document
    assert evaluated[0]["perplexity"] > 1

    assert phono("fold", artifacts, *updates, "--out", tmp_path / "next").code == 0
    for name, average in load_tensors(tmp_path / "next").items():
        np.testing.assert_allclose(average, (one[name].astype(np.float64) + other[name]) / 2, rtol=1e-5, atol=1e-7)


def test_a_checkpoint_of_more_than_the_model(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    plain, mixed = state_dict(tmp_path / "my.pt", "lstm", 1, False, True), tmp_path / "mixed.pt"
    torch.save({"net": [{**torch.load(plain), "criterion.weight": torch.ones(3)}]}, mixed)
    line = ("export", "--vocab", workplace.vocabulary, "--model", mixed, "--out", tmp_path / "a")
    assert_refused(phono(*line), 6, "weights lie at net.0: choose with read.key")
    assert_refused(
        phono(*line, *keys(read="key=net.0")),
        6,
        "not understood: criterion.weight [3]; export it without what scores don't need, by read.ignore",
    )
    told = phono(*line, *keys(read="key=net.0 ignore=criterion.*"))
    assert (told.code, "left out: criterion.weight" in told.err) == (0, True)
    assert phono("export", "--vocab", workplace.vocabulary, "--model", plain, "--out", tmp_path / "b").code == 0
    assert (tmp_path / "a" / WEIGHTS).read_bytes() == (tmp_path / "b" / WEIGHTS).read_bytes()


def test_sizes_in_place_of_a_preset(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    out = ("--vocab", workplace.vocabulary, "--seed", 4, "--out")
    sizes = keys(shape="cell=gru layers=2 hidden=6 embedding=5 tied=true output_bias=false")
    assert phono("export", *sizes, *out, tmp_path / "a").code == 0
    config = LanguageModelConfig("gru", WORDS, 5, 6, 2, tied=True, output_bias=False)
    assert open_artifacts(tmp_path / "a").manifest.model == config
    expected = seeded_weights(config, 4)
    for name, array in load_tensors(tmp_path / "a" / WEIGHTS).items():
        np.testing.assert_array_equal(array, expected[name])
    assert phono("export", *keys(shape="cell=lstm layers=1 hidden=6"), *out, tmp_path / "b").code == 0
    assert open_artifacts(tmp_path / "b").manifest.model == LanguageModelConfig("lstm", WORDS, 6, 6, 1)

    text = ("--vocab", workplace.vocabulary, "--text", workplace.general, *keys(training="minibatch=2 bptt=5"))
    weights = tmp_path / "base.safetensors"
    assert phono("pretrain", *sizes, *text, "--max-steps", 2, "--out", weights).code == 0
    assert phono("export", "--model", weights, *out[:2], "--out", tmp_path / "c").code == 0
    assert open_artifacts(tmp_path / "c").manifest.model == config


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "give --model FILE, --preset NAME, or shape.cell, shape.layers and shape.hidden: one of the three"),
        (("--model", "my.pt", "--preset", "tiny"), "leave out --preset, sizes, --weights and --seed, or it"),
        (("--preset", "tiny", *keys(shape="layers=2 tied=true")), "leave out shape.layers, shape.tied, or it"),
        ((*keys(shape="cell=gru hidden=4"), "--seed", "1"), "sizes instead of a preset need shape.layers too"),
        (("--preset", "tiny", "--seed", "1", "--rename", "a=b"), "--rename: needs --model or --weights"),
        (("--model", "my.pt", "--rename", "a"), "--rename is ('a',), expected OLD=NEW, each"),
    ],
)
def test_a_model_is_declared_once(phono: Run, arguments: tuple[str, ...], part: str) -> None:
    assert_refused(phono("export", *arguments, "--vocab", "v", "--out", "o"), 2, part)
    assert_refused(
        phono("pretrain", "--vocab", "v", "--text", "t", "--out", "o"),
        2,
        "give --preset, or shape.cell, shape.layers and",
    )


def test_another_vocabulary_than_the_models(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    model, fewer = state_dict(tmp_path / "my.pt", "lstm", 1, False, True), tmp_path / "fewer.txt"
    lines = workplace.vocabulary.read_bytes().splitlines(keepends=True)
    fewer.write_bytes(b"".join(lines[:-1]))
    outcome = phono("export", "--model", model, "--vocab", fewer, "--out", tmp_path / "a")
    assert_refused(outcome, 4, f"{fewer}: 17 words expected, as {model} has rows, found 16; give the vocabulary")
    outcome = phono(
        "export", "--model", model, "--vocab", fewer, *keys(read=f"weights_vocab={fewer}"), "--out", tmp_path / "a"
    )
    assert_refused(outcome, 4, f"{fewer}: 17 words expected")


def test_names_of_ones_own_and_what_was_done_is_said(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    state: dict[str, Any] = torch.load(state_dict(tmp_path / "my.pt", "gru", 1, True, True), weights_only=True)
    named = {name.replace("encoder", "emb").replace("decoder", "head"): value.half() for name, value in state.items()}
    torch.save({"epoch": 1, "model": named}, tmp_path / "mine.pt")
    export = ("export", "--model", tmp_path / "mine.pt", "--vocab", workplace.vocabulary, "--out", tmp_path / "a")
    assert_refused(phono(*export), 6, "encoder.weight [V, E]", "found emb.weight [17, 12], rnn.weight_ih_l0 [36, 12]")
    outcome = phono(*export, "--rename", "emb=encoder", "--rename", "head=decoder")
    assert outcome.code == 0
    assert f"export: {tmp_path / 'mine.pt'}: converted from F16 to float32" in outcome.err
    assert "decoder.weight equals the embedding: the model is tied" in outcome.err
    assert "custom: gru 1x12, embedding 12, tied, 17 words" in outcome.out


def test_a_text_checks_an_export(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    text, artifacts = tmp_path / "text.txt", tmp_path / "a"
    text.write_bytes(workplace.user.read_bytes() + b"elsewhere\n")
    model = state_dict(tmp_path / "my.pt", "lstm", 2, False, True)
    export = ("export", "--model", model, "--vocab", workplace.vocabulary, "--check", text, "--out", artifacts)
    found = phono(*export, "--json").document["check"]
    (evaluated,) = phono("eval", artifacts, "--text", text, "--json").document
    assert {"text": str(text), **found["exported"]} == evaluated
    assert evaluated["unknown_tokens"] == 1
    for figure in ("perplexity", "perplexity_with_unknown"):
        assert found["pytorch"][figure] == pytest.approx(evaluated[figure], rel=1e-4)
    table = phono(*export, "--overwrite").out.partition(f"Check on {text}")[2]
    assert all(title in table for title in ("pytorch", "exported", "perplexity with unknown"))
    text.write_bytes(b"the elsewhere \xfc\n")
    weights = torch.load(model)
    weights["decoder.bias"][3] = 30  # as if the words of the vocabulary were in another order
    torch.save(weights, model)
    warned = phono(*export, "--overwrite").err
    assert f"warning: {text}: 67% of the words are unknown to the vocabulary" in warned
    assert f"warning: {text}: 6.7 % of the bytes are not UTF-8; is it Latin-1" in warned
    assert f"warning: the model predicts {text} worse than chance would" in warned
    assert "6.7 % of the bytes are not UTF-8" in phono("eval", artifacts, "--text", text).err
    assert_refused(
        phono(*export[:-1], tmp_path / "b", "--check", tmp_path / "none"), 3, "none: cannot be opened: No such file"
    )


def test_a_text_in_another_language_is_said(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    text = tmp_path / "thai.txt"
    text.write_text("\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35 \u0e04\u0e23\u0e31\u0e1a\n" * 40, "utf-8")
    train = ("train", workplace.artifacts, "--user", text)
    assert_refused(phono(*train, "--update", tmp_path / "u"), 3, "100 % of the words are unknown to the vocabulary")
    tiny = ("pretrain", "--preset", "tiny", "--vocab", workplace.vocabulary, "--max-steps", 1)
    texts = ("--text", workplace.general, "--valid", text, *keys(training="minibatch=2 bptt=5"))
    for command in (
        (*train, "--out", tmp_path / "w"),
        ("eval", workplace.artifacts, "--text", text),
        (*tiny, *texts, "--out", tmp_path / "p"),
        ("predict", workplace.artifacts, text.read_text("utf-8")),
    ):
        assert "100% of the words are unknown to the vocabulary; is it UTF-8" in phono(*command).err, command


def test_words_that_no_text_is_split_into(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    lines = workplace.vocabulary.read_bytes().splitlines()
    whitespace, artifacts = tmp_path / "whitespace.txt", tmp_path / "a"
    whitespace.write_bytes(b"\n".join([*lines[:-2], b"end.\t1", b"``\t1"]))
    said = "2 of 17 words (11.76%) are unused, as no text is split into them: 'end.', '``'; "
    tiny = ("--preset", "tiny", "--vocab", whitespace)
    assert f"export: warning: {whitespace}: {said}" in phono("export", *tiny, "--seed", 1, "--out", artifacts).err
    assert f"warning: {artifacts / 'vocab.txt'}: {said}" in phono("eval", artifacts, "--text", workplace.user).err
    settings = (
        "--text",
        workplace.general,
        *keys(training="minibatch=2 bptt=5"),
        "--max-steps",
        1,
        "--out",
        tmp_path / "w",
    )
    assert f"phonograd: warning: {whitespace}: {said}" in phono("pretrain", *tiny, *settings).err


def test_frozen_tensors_stay_at_home(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    model, artifacts = state_dict(tmp_path / "my.pt", "lstm", 2, False, True), tmp_path / "artifacts"
    export = ("export", "--model", model, "--vocab", workplace.vocabulary, *keys(training="bptt=5 minibatch=3"))
    frozen = ["embedding.weight", "lstm.0.W", "lstm.0.R", "lstm.0.B"]
    document = phono(*export, *keys(phones='freeze=["encoder","lstm.0"]'), "--out", artifacts, "--json").document
    assert document["frozen"] == frozen
    assert "embedding.weight, lstm.0.W, lstm.0.R, lstm.0.B" in phono("inspect", artifacts).out
    assert_refused(
        phono(*export, *keys(phones="freeze=lstm.7"), "--out", tmp_path / "b"),
        2,
        "tensor lstm.7: one of embedding.weight,",
    )
    everything = keys(phones='freeze=["encoder","rnn","decoder"]')
    assert_refused(phono(*export, *everything, "--out", tmp_path / "b"), 5, "so that there is something to train")

    with serving(artifacts, tmp_path / "state", "--clients-per-round", "1") as url:
        train = ("train", artifacts, "--user", workplace.user, "--server", url, "--json")
        update = tmp_path / "alice.update"
        assert phono(*train, "--phone", "alice", "--update", update).document["receipt"]
        parts = {part["part"] for part in phono("update", "show", update, "--json").document["parts"]}
        assert not [part for part in parts if part.startswith(("embedding.", "lstm.0."))]
        assert "lstm.1.W" in parts
        assert phono("models", "--server", url, "--fetch", "latest", "--out", tmp_path / "next").code == 0
    before, after = load_tensors(artifacts / WEIGHTS), load_tensors(tmp_path / "next")
    for name, array in before.items():
        assert (array.tobytes() == after[name].tobytes()) == (name in frozen), name
    with TensorFile(tmp_path / "next") as file:
        assert frozen_in(file) == set(frozen)
