"""A keyboard's predictor: the same probabilities as the evaluation graph's, one word at a time."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

import phonograd
from phonograd.cli import phonograd as cli
from phonograd.console import run
from phonograd.device_runtime.base.errors import (
    ArtifactsError,
    StateError,
    TextError,
    TrainingError,
    UnsupportedError,
    UsageError,
    VocabularyError,
    WeightsError,
)
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.engine.personal import PersonalWords
from phonograd.device_runtime.engine.predictor import Predictor
from phonograd.device_runtime.formats.manifest import (
    PREDICTION,
    VOCABULARY,
    WEIGHTS,
    Artifacts,
    FileEntry,
    open_artifacts,
)
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Floats, TensorFile, load_tensors, save_tensors
from phonograd.device_runtime.text.vocabulary import EOS, Vocabulary
from tests.reference.prediction import prediction_tensors
from tests.reference.text import suggest
from tests.support.artifacts import exported

# Rows of odd lengths, more of them than a thread takes at a time, and every part that a model may have or lack.
MODELS = {
    "lstm": LanguageModelConfig("lstm", vocabulary=311, embedding=33, hidden=37, layers=2),
    "tied": LanguageModelConfig("lstm", vocabulary=150, embedding=40, hidden=40, layers=1, tied=True),
    "projected": LanguageModelConfig("lstm", 150, embedding=17, hidden=40, layers=1, tied=True, output_bias=False),
    "cifg": LanguageModelConfig("cifg", vocabulary=200, embedding=5, hidden=45, layers=2),
    "cifg-tied": LanguageModelConfig("cifg", 150, embedding=7, hidden=30, layers=1, tied=True, output_bias=False),
    "gru": LanguageModelConfig("gru", vocabulary=200, embedding=24, hidden=45, layers=2),
    "narrow": LanguageModelConfig("gru", vocabulary=90, embedding=1, hidden=3, layers=1, tied=True),
}
CONTEXT = "w1 w2 W3 nonsense\n\n   \nw4 w1 w88\nw2 w0 "
KERNELS: list[str] = load_library().cpu_info()["kernels"]


def model(name: str) -> Artifacts:
    """Artifacts of one of MODELS, with weights so large that probabilities differ."""
    return exported(MODELS[name], spread=14.0)


def vocabulary_of(artifacts: Artifacts) -> Vocabulary:
    return Vocabulary.load(artifacts.path("vocab.txt"))


def probabilities(scores: Floats) -> Floats:
    exponentials = np.exp(scores.astype(np.float64) - scores.max())
    shares: Floats = exponentials / exponentials.sum()
    return shares


@pytest.mark.parametrize(
    ("name", "kernels"), [*((name, KERNELS[0]) for name in MODELS), *(("gru", kernels) for kernels in KERNELS[1:])]
)
def test_probabilities_are_the_evaluation_graphs(name: str, kernels: str) -> None:
    artifacts = model(name)
    words = [f"w{number}" for number in np.random.default_rng(1).integers(0, 80, 30)]
    ids = vocabulary_of(artifacts).encode([" ".join(words).encode()])[:-1]
    backend = NativeBackend(artifacts, None, BackendOptions())
    expected = backend.logits(np.array([1, *ids])[:, np.newaxis])
    backend.close()
    assert np.ptp(expected[-1]) > 0.002
    assert np.ptp(expected, axis=0).max() > 0.002
    with Predictor(artifacts, None, BackendOptions(kernels=kernels)) as predictor:
        found = [predictor.logits()]
        for word in words:
            predictor.feed(word)
            found.append(predictor.logits())
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(probabilities(one), probabilities(other), rtol=0, atol=1e-5)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("prefix", "count"), [("", 3), ("w", 1000), ("W1", 3), ("w12", 1), ("zz", 3), ("w\u2019", 1000)]
)
def test_suggestions_are_the_best_of_the_words_that_begin_so(prefix: str, count: int) -> None:
    artifacts = model("lstm")
    words = vocabulary_of(artifacts).words
    with phonograd.open_predictor(artifacts) as predictor:
        predictor.feed(CONTEXT)
        scores, found = predictor.logits(), predictor.suggest(prefix, count)
    fitting = [id for id in range(2, len(words)) if words[id].startswith(prefix.lower().encode())]
    best = sorted(fitting, key=lambda id: (-scores[id], id))[:count]
    assert [one.word.lower().encode() for one in found] == [words[id] for id in best]
    assert [one.probability for one in found] == pytest.approx([probabilities(scores)[id] for id in best], rel=1e-5)
    if count == 3:
        assert best == suggest(words, scores, prefix.encode())


def words_of(predictor: Predictor, prefix: str) -> list[str]:
    return [one.word.lower() for one in predictor.suggest(prefix)]


def test_keystrokes_are_those_before_a_word_is_suggested() -> None:
    """Words of the model, of the user, of neither, and of characters of several bytes."""
    with phonograd.open_predictor(model("lstm"), personal=PersonalWords(None)) as predictor:
        predictor.learn("Servus \u00fc\u00e9\nw7 s sa se ser serv\n")
        found = {}
        for word in ("Servus", "\u00fc\u00e9", "\u00fc\u00e9\u00fc", "w7", "w88", "w303", "zzz"):
            ways = (n for n in range(len(word)) if word.lower() in words_of(predictor, word[:n]))
            found[word] = predictor.keystrokes(word)
            assert found[word] == next(ways, len(word)), word
        assert {*found.values()} >= {0, 1, 2, 3}


@pytest.mark.parametrize("pieces", [1, 2, 5, 19])
def test_a_text_is_read_as_training_reads_it_in_any_pieces(pieces: int) -> None:
    """Unknown words, lines without words, and a last message that has no end yet."""
    artifacts = model("lstm")
    backend = NativeBackend(artifacts, None, BackendOptions())
    *before, current = CONTEXT.encode().split(b"\n")
    ids = np.concatenate(([EOS], vocabulary_of(artifacts).encode([*before, current])[:-1]))
    expected = backend.logits(ids[:, np.newaxis])[-1]
    backend.close()
    parts = CONTEXT.replace("\n", " \n ").split(" ")
    with phonograd.open_predictor(artifacts) as predictor:
        for at in range(0, len(parts), pieces):
            predictor.feed(" ".join(parts[at : at + pieces]))
        np.testing.assert_allclose(predictor.logits(), expected, atol=1e-5)


def test_the_state_is_kept_reset_and_restored() -> None:
    with phonograd.open_predictor(model("gru")) as predictor:
        beginning = predictor.suggest()
        predictor.feed("w5 w6")
        there, state = predictor.suggest(), predictor.state()
        assert there != beginning
        predictor.feed("w7\n")
        between = predictor.state()
        assert predictor.suggest() != there
        predictor.reset()
        assert predictor.suggest() == beginning
        predictor.restore(state)
        assert predictor.suggest() == there
        predictor.feed("\n")
        ended = predictor.suggest()
        # Whether a message has begun is part of the state: a line feed between two messages says nothing.
        predictor.restore(between)
        predictor.feed("\n")
        assert predictor.state() == between
        predictor.restore(state)
        predictor.feed("\n")
        assert predictor.suggest() == ended != there


@pytest.mark.parametrize("state", [b"", b"x", bytes(7), bytes(4000), b"\xff" * (4 * 91 + 16)])
def test_a_state_of_something_else_is_refused(state: bytes) -> None:
    with phonograd.open_predictor(model("gru")) as predictor:
        predictor.feed("w1")
        before = predictor.state()
        assert len(before) == 4 * 91 + 16  # two layers of 45, whether a message has begun, and the words before
        with pytest.raises(StateError, match="state of a predictor of this model expected, found"):
            predictor.restore(state)
        assert predictor.state() == before


# --- int8


@pytest.fixture
def quantized(tmp_path: Path) -> Callable[[str], Path]:
    def quantize(name: str) -> Path:
        phonograd.quantize(model(name), tmp_path / "int8.safetensors")
        return tmp_path / "int8.safetensors"

    return quantize


def hold_to_reference(path: Path, weights: Path) -> None:
    """The bytes that the reference's tensors make."""
    metadata = {"base_sha256": sha256_of_file(weights), "format": "phonograd-prediction", "version": "1"}
    expected = path.with_name("expected")
    save_tensors(expected, prediction_tensors(load_tensors(weights)), metadata)
    assert path.read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_prediction_weights_are_the_references(tmp_path: Path, name: str) -> None:
    written = phonograd.quantize(model(name), tmp_path / "python")
    load_library().call("pg_quantize", os.fsencode(model(name).folder), None, os.fsencode(tmp_path / "folder"))
    for path in (tmp_path / "python", tmp_path / "folder"):
        assert (written.nbytes, written.sha256) == (path.stat().st_size, sha256_of_file(path))
        hold_to_reference(path, model(name).path(WEIGHTS))


def test_rows_are_rounded_to_the_nearest_level(tmp_path: Path) -> None:
    """Zero and subnormal rows, ties, and the largest floats: within half a level."""
    artifacts = model("lstm")
    weights = load_tensors(artifacts.path(WEIGHTS))
    embedding = weights["embedding.weight"]
    embedding[0] = 0
    embedding[1] = np.linspace(-190, 190, embedding.shape[1]) * 2.0**-149  # the scale is cut to 2^-149
    embedding[2] = np.float32(3.4e38)
    embedding[3, :5] = [127, 0.5, 1.5, -2.5, -126.5]
    embedding[3, 5:] = 0
    base = tmp_path / "base.safetensors"
    save_tensors(base, weights)
    phonograd.quantize(artifacts, tmp_path / "python", weights=base)
    hold_to_reference(tmp_path / "python", base)
    found = load_tensors(tmp_path / "python")
    assert found["embedding.weight"][3, :5].tolist() == [127, 0, 2, -2, -126]
    assert not found["embedding.weight"][0].any()
    assert found["embedding.weight"][1, [0, -1]].tolist() == [-127, 127]
    for tensor, values in weights.items():
        if tensor + ".scales" not in found:
            assert np.array_equal(found[tensor], values)
            continue
        scales = found[tensor + ".scales"].reshape(*values.shape[:-1], 1)
        errors = np.abs(found[tensor] * scales - values)
        # Of a subnormal scale, hardly a digit is left.
        assert (errors <= np.maximum(0.501 * scales, 1e-43)).all(), tensor
    with TensorFile(tmp_path / "python") as file:
        assert file.metadata == {"format": "phonograd-prediction", "version": "1", "base_sha256": sha256_of_file(base)}


@pytest.mark.parametrize("name", MODELS)
def test_int8_gives_the_same_bits_with_all_kernels_and_threads(quantized: Callable[[str], Path], name: str) -> None:
    path = quantized(name)
    found = set()
    for kernels in KERNELS:
        for threads in (1, 3):
            options = BackendOptions(threads=threads, kernels=kernels)
            with phonograd.open_predictor(model(name), weights=path, options=options) as predictor:
                predictor.feed(CONTEXT)
                found.add((predictor.logits().tobytes(), predictor.state(), str(predictor.suggest())))
    assert len(found) == 1


@pytest.mark.parametrize("name", MODELS)
def test_int8_computes_with_the_rounded_weights(tmp_path: Path, quantized: Callable[[str], Path], name: str) -> None:
    """The predictor on the int8 file, and on float32 weights of the same values: inputs have 15 bits."""
    path = quantized(name)
    levels = load_tensors(path)
    rounded = {}
    for tensor, values in load_tensors(model(name).path(WEIGHTS)).items():
        scales = levels.get(tensor + ".scales")
        rounded[tensor] = (
            values if scales is None else levels[tensor] * scales.reshape(*values.shape[:-1], 1).astype(np.float32)
        )
    save_tensors(tmp_path / "rounded.safetensors", rounded)
    scores = []
    for weights in (path, tmp_path / "rounded.safetensors"):
        with phonograd.open_predictor(model(name), weights=weights) as predictor:
            predictor.feed(CONTEXT)
            scores.append(predictor.logits())
    spread = float(scores[1].max() - scores[1].min())
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-3 * spread)


def copy_artifacts(folder: Path, name: str = "lstm", predict: bool = True) -> Path:
    """A copy of a model's folder, with prediction weights in it and in the manifest."""
    shutil.copytree(model(name).folder, folder)
    if predict:
        phonograd.quantize(folder, folder / PREDICTION)
        path = folder / PREDICTION
        entry = FileEntry(path.stat().st_size, sha256_of_file(path))
        manifest = open_artifacts(folder).manifest
        msgspec.structs.replace(manifest, files={**manifest.files, PREDICTION: entry}).write(folder)
    return folder


def test_a_folders_own_prediction_weights_are_used(tmp_path: Path, quantized: Callable[[str], Path]) -> None:
    folder = copy_artifacts(tmp_path / "artifacts")
    found = {}
    for what, weights in (("own", None), ("int8", quantized("lstm")), ("float32", folder / WEIGHTS)):
        with phonograd.open_predictor(folder, weights=weights) as predictor:
            predictor.feed(CONTEXT)
            found[what] = predictor.logits().tobytes()
    assert found["own"] == found["int8"] != found["float32"]


@pytest.mark.parametrize("name", ["projected", "gru"])
def test_export_writes_them_too(tmp_path: Path, quantized: Callable[[str], Path], name: str) -> None:
    artifacts, out = model(name), tmp_path / "artifacts"
    options = ("--model", artifacts.path(WEIGHTS), "--vocab", artifacts.path(VOCABULARY), "--predict", "int8")
    assert run(cli, ["export", *map(str, options), "--out", str(out), "--quiet"]) == 0
    assert (out / PREDICTION).read_bytes() == quantized(name).read_bytes()
    assert open_artifacts(out).manifest.files[PREDICTION].sha256 == sha256_of_file(out / PREDICTION)
    weights = load_tensors(artifacts.path(WEIGHTS))
    again = phonograd.export_artifacts(weights, artifacts.path(VOCABULARY), tmp_path / "again", predict="int8")
    assert again.manifest.files[PREDICTION] == open_artifacts(out).manifest.files[PREDICTION]


def test_prediction_weights_of_another_model_are_no_folders_own(tmp_path: Path) -> None:
    folder = copy_artifacts(tmp_path / "artifacts")
    weights = load_tensors(folder / WEIGHTS)
    save_tensors(folder / WEIGHTS, {name: values * 2 for name, values in weights.items()})
    document = json.loads((folder / "manifest.json").read_text())
    document["files"][WEIGHTS]["sha256"] = sha256_of_file(folder / WEIGHTS)
    (folder / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(ArtifactsError, match="prediction weights of the folder's model expected, found those of"):
        Predictor(open_artifacts(folder, verify=False), None, BackendOptions())


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5)


def rewritten(change: Callable[[dict[str, np.ndarray], dict[str, str]], None]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        with TensorFile(path) as file:
            metadata, tensors = dict(file.metadata), {name: file.read(name) for name in file.specs}
        change(tensors, metadata)
        save_tensors(path, tensors, metadata)

    return damage


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (truncate, "bytes of data, the header describes"),
    "version": (rewritten(lambda _, metadata: metadata.update(version="2")), "version 1 expected, found version '2'"),
    "base": (rewritten(lambda _, metadata: metadata.update(base_sha256="0")), "base_sha256 is '0', expected 64"),
    "format": (
        rewritten(lambda _, metadata: metadata.update(format="phonograd-update")),
        "prediction weights expected, found the format 'phonograd-update'",
    ),
    "missing": (rewritten(lambda tensors, _: tensors.__delitem__("lstm.0.R")), "tensor lstm.0.R expected"),
    "scales": (
        rewritten(lambda tensors, _: tensors["decoder.weight.scales"].__setitem__(7, np.nan)),
        "decoder.weight.scales: element 7 is nan, expected a finite number of at least 0",
    ),
    "below": (
        rewritten(lambda tensors, _: tensors["lstm.1.W.scales"].__setitem__(0, -1)),
        "lstm.1.W.scales: element 0 is -1.0",
    ),
    "dtype": (
        rewritten(lambda tensors, _: tensors.update({"lstm.0.W": tensors["lstm.0.W"].astype(np.uint8)})),
        r"tensor lstm.0.W I8\[1, 148, 33\] expected, found lstm.0.W U8",
    ),
    "shape": (
        rewritten(lambda tensors, _: tensors.update({"decoder.weight": tensors["decoder.weight"][:-1]})),
        r"tensor decoder.weight I8\[311, 37\] expected, found decoder.weight I8\[310, 37\]",
    ),
    "more": (
        rewritten(lambda tensors, _: tensors.update(more=np.zeros(2, np.float32))),
        "15 tensors expected, found 16",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_prediction_weights_are_refused_by_name(quantized: Callable[[str], Path], damage: str) -> None:
    path = quantized("lstm")
    change, message = DAMAGE[damage]
    change(path)
    with pytest.raises(WeightsError, match=message) as error:
        Predictor(model("lstm"), path, BackendOptions())
    assert str(path) in str(error.value)


def test_a_listed_file_that_is_missing_or_altered_is_refused(tmp_path: Path) -> None:
    folder = copy_artifacts(tmp_path / "artifacts")
    path = folder / PREDICTION
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArtifactsError, match=f"{PREDICTION}: SHA-256 .* the file was altered"):
        open_artifacts(folder)
    path.unlink()
    opened = Artifacts(folder, model("lstm").manifest)
    for refuse in (lambda: open_artifacts(folder), lambda: Predictor(opened, None, BackendOptions())):
        with pytest.raises(ArtifactsError, match=f"{PREDICTION}: named in manifest.json, not found"):
            refuse()


def test_weights_that_change_while_they_are_used_are_an_error(quantized: Callable[[str], Path]) -> None:
    path = quantized("lstm")
    with phonograd.open_predictor(model("lstm"), weights=path) as predictor:
        predictor.suggest()
        os.truncate(path, 4096)
        predictor.feed("w1")
        with pytest.raises(WeightsError, match="was changed while it was in use"):
            predictor.suggest()


def test_scores_that_are_not_finite_are_an_error(tmp_path: Path) -> None:
    weights = load_tensors(model("lstm").path(WEIGHTS))
    weights["lstm.0.B"][0, 3] = np.nan
    save_tensors(tmp_path / "nan.safetensors", weights)
    with Predictor(model("lstm"), tmp_path / "nan.safetensors", BackendOptions()) as predictor:
        for ask in (predictor.suggest, predictor.logits):
            with pytest.raises(TrainingError, match="scores are not finite"):
                ask()
    out = tmp_path / "int8"
    with pytest.raises(WeightsError, match=r"tensor lstm.0.B: element 3 is nan, expected a finite number"):
        load_library().call("pg_quantize", *map(os.fsencode, (model("lstm").folder, tmp_path / "nan.safetensors", out)))
    assert not out.exists()


def test_weights_of_another_model_are_refused(tmp_path: Path, quantized: Callable[[str], Path]) -> None:
    with pytest.raises(WeightsError, match="tensor embedding.weight I8"):
        Predictor(model("lstm"), quantized("gru"), BackendOptions())
    other = model("gru").path(WEIGHTS)
    arguments = map(os.fsencode, (model("lstm").folder, other, tmp_path / "out"))
    for attempt in (
        lambda: Predictor(model("lstm"), other, BackendOptions()),
        lambda: load_library().call("pg_quantize", *arguments),
    ):
        with pytest.raises(WeightsError, match=r"tensor embedding.weight F32\[311, 33\] expected, found"):
            attempt()


def test_arguments_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="predictor: precision fp32 expected, found bf16"):
        Predictor(model("lstm"), None, BackendOptions(precision="bf16-emulated"))
    with phonograd.open_predictor(model("lstm")) as predictor:
        with pytest.raises(UsageError, match="capacity: 0; expected at least 1"):
            predictor.suggest(count=0)
        with pytest.raises(TextError, match="NUL byte"):
            predictor.feed("a\0b")
    folder = copy_artifacts(tmp_path / "artifacts", predict=False)
    (folder / "vocab.txt").write_bytes((folder / "vocab.txt").read_bytes().replace(b"w9\t", b"w8\t"))
    with pytest.raises(VocabularyError):
        Predictor(model("lstm").__class__(folder, model("lstm").manifest), None, BackendOptions())
