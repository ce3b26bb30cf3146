"""What bad input gets: one line on stderr naming file, expected and found, and the documented exit code."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest

from phonograd.device_runtime.base.documents import schemas
from phonograd.device_runtime.formats.manifest import FILES, Manifest
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors
from tests.support.command_line import Outcome, Run, Workplace, text_of

MODEL = {
    "cell": "lstm",
    "vocabulary": 17,
    "embedding": 16,
    "hidden": 16,
    "layers": 1,
    "tied": False,
    "output_bias": True,
}


def refused(outcome: Outcome, code: int, *parts: object) -> None:
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    lines = [line for line in outcome.err.splitlines() if line.startswith("phonograd: ")]
    assert len(lines) == 1, outcome.err
    assert "Traceback" not in outcome.err
    assert "a bug" not in outcome.err
    for part in parts:
        assert str(part) in lines[0]


def test_an_empty_text(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    text = tmp_path / "user.txt"
    text.write_bytes(b"\n \n")
    refused(phono("train", workplace.artifacts, "--user", text), 3, text, "no words found")
    refused(phono("eval", workplace.artifacts, "--text", text), 3, text, "no words found")


def test_a_text_shorter_than_one_window(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    text = tmp_path / "user.txt"
    text.write_bytes(b"the cat sat\n")
    refused(phono("train", workplace.artifacts, "--user", text), 3, "200 tokens expected", "found 4")


def test_too_little_rehearsal_text(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    general = tmp_path / "general.txt"
    general.write_bytes(b"the cat\n")
    outcome = phono("train", workplace.artifacts, "--user", workplace.user, "--rehearsal", general)
    refused(outcome, 3, "rehearsal text", "found 3")


def test_a_vocabulary_with_duplicates(phono: Run, tmp_path: Path) -> None:
    words = tmp_path / "vocab.txt"
    words.write_bytes(b"<unk>\n<eos>\ncat\ndog\ncat\n")
    outcome = phono("export", "--preset", "tiny", "--vocab", words, "--seed", 1, "--out", tmp_path / "a")
    refused(outcome, 4, words, "'cat' is on lines 3 and 5")
    assert not (tmp_path / "a").exists()


def test_too_few_words_for_a_vocabulary(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    outcome = phono("vocab", "build", workplace.general, "--size", 50, "--out", tmp_path / "v")
    refused(outcome, 4, "48 distinct words expected", "found 15")


def copy_of(workplace: Workplace, tmp_path: Path) -> Path:
    return Path(shutil.copytree(workplace.artifacts, tmp_path / "copy"))


def test_artifacts_half_written(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    folder = copy_of(workplace, tmp_path)
    (folder / "manifest.json").unlink()
    refused(phono("inspect", folder), 5, folder / "manifest.json", "not found", "did not finish")
    refused(phono("inspect", tmp_path / "nowhere"), 5, "no such folder")


def test_a_file_where_artifacts_are_expected(phono: Run, workplace: Workplace) -> None:
    for command in (("inspect",), ("train", "--user", workplace.user), ("eval", "--text", workplace.user)):
        refused(phono(*command, workplace.user), 5, f"{workplace.user}: an artifacts folder expected, found a file")


def test_a_manifest_of_another_version(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    folder = copy_of(workplace, tmp_path)
    document = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(document | {"schema_version": 99}))
    refused(phono("train", folder, "--user", workplace.user), 5, "schema_version 2 expected, found 99")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {"cell": "lstm"}}, "model.vocabulary: missing"),
        ({"training": 3}, "training: expected an object, found 3"),
        ({"training": {"minibatch": 2}}, "training.bptt: missing"),
        ({"model": MODEL | {"hidden": True}}, "model.hidden: expected a whole number, found True"),
        ({"model": MODEL | {"cell": "mlp"}}, "model.cell: expected 'gru' or 'lstm', found 'mlp'"),
        ({"model": MODEL | {"wings": 2}}, "model.wings: no such field"),
        ({"surprise": 1}, "surprise"),
        ({"files": {}}, "files: missing or unknown"),
        ({"files": 3}, "files: expected an object, found 3"),
        ({"tensors": 3}, "tensors: expected a list, found 3"),
        ({"tools": [1]}, "tools: expected an object, found [1]"),
        ({"states": [3]}, "states[0]: expected an object, found 3"),
    ],
)
def test_a_manifest_that_makes_no_sense(
    phono: Run, workplace: Workplace, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    folder = copy_of(workplace, tmp_path)
    document = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(document | change))
    refused(phono("inspect", folder), 5, folder / "manifest.json", message)


@pytest.mark.parametrize("content", [b"", b"[", b"null", b"[1]", b"\xff\xff", b"[" * 100_000])
def test_a_manifest_that_is_no_object(phono: Run, workplace: Workplace, tmp_path: Path, content: bytes) -> None:
    folder = copy_of(workplace, tmp_path)
    (folder / "manifest.json").write_bytes(content)
    refused(phono("inspect", folder), 5, folder / "manifest.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((b'"dropout": 0.0', b'"dropout": NaN'), "holds NaN, which is no JSON number"),
        ((b'"layers": ', b'"layers": 1, "layers": '), "has the key 'layers' twice in one object"),
    ],
)
def test_a_manifest_that_other_programs_read_otherwise(
    phono: Run, workplace: Workplace, tmp_path: Path, change: tuple[bytes, bytes], message: str
) -> None:
    folder = copy_of(workplace, tmp_path)
    manifest = folder / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(*change))
    refused(phono("inspect", folder), 5, manifest, message)


def test_the_schema_of_a_manifest_describes_what_is_written(workplace: Workplace) -> None:
    kinds = schemas(Manifest)
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/Manifest", "$defs": kinds}
    validator = jsonschema.Draft202012Validator(document)
    written = json.loads((workplace.artifacts / "manifest.json").read_text())
    validator.validate(written)
    written["model"]["layers"] = 0
    assert not validator.is_valid(written)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_whose_hash_disagrees(phono: Run, workplace: Workplace, tmp_path: Path, name: str) -> None:
    folder = copy_of(workplace, tmp_path)
    data = bytearray((folder / name).read_bytes())
    data[-1] ^= 1
    (folder / name).write_bytes(data)
    refused(phono("inspect", folder), 5, folder / name, "SHA-256", "expected, found")


def test_a_truncated_or_missing_file(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    folder = copy_of(workplace, tmp_path)
    data = (folder / "checkpoint").read_bytes()
    (folder / "checkpoint").write_bytes(data[:-10])
    refused(phono("train", folder, "--user", workplace.user), 5, f"{len(data)} bytes expected, found {len(data) - 10}")
    (folder / "checkpoint").unlink()
    refused(phono("train", folder, "--user", workplace.user), 5, folder / "checkpoint", "not found")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:-1], "17 lines expected, one a word, found 16"),
        (lambda lines: [*lines[:2], b"dog\t5", *lines[3:]], "line 3: 'the', a tab and a whole number"),
        (lambda lines: [*lines[:2], b"the\t-5", *lines[3:]], "found 'the\\t-5'"),
        (lambda lines: [*lines[:2], b"the\t1e3", *lines[3:]], "found 'the\\t1e3'"),
        (lambda lines: [*lines[:2], b"the\t" + b"9" * 16, *lines[3:]], "of at most 15 digits expected"),
        (lambda lines: [*lines[:2], b"the", *lines[3:]], "found 'the'"),
    ],
)
def test_counts_that_are_not_the_vocabularys(
    phono: Run,
    workplace: Workplace,
    tmp_path: Path,
    change: Callable[[list[bytes]], list[bytes]],
    message: str,
) -> None:
    vocabulary, counts = tmp_path / "vocab.txt", tmp_path / "vocab.txt.counts"
    shutil.copy(workplace.vocabulary, vocabulary)
    lines = Path(f"{workplace.vocabulary}.counts").read_bytes().splitlines()
    counts.write_bytes(b"\n".join(change(lines)) + b"\n")
    preset = ("--preset", "tiny", "--vocab", vocabulary, "--seed", 1)
    remedy = f"count again with: phonograd vocab build, or remove {counts}"
    refused(phono("export", *preset, "--out", tmp_path / "a"), 4, f"{counts}: ", message, remedy)
    assert not (tmp_path / "a").exists()


def changed_weights(workplace: Workplace, path: Path, name: str, value: object) -> Path:
    tensors = load_tensors(workplace.artifacts / "weights.safetensors")
    if value is None:
        del tensors[name]
    elif isinstance(value, np.ndarray):
        tensors[name] = value
    else:
        tensors[name].reshape(-1)[7] = value
    save_tensors(path, tensors)
    return path


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "tensor decoder.bias: element 7 is nan"),
        (np.inf, "tensor decoder.bias: element 7 is inf"),
        (np.zeros(5, np.float32), "tensor decoder.bias F32[17] expected, found decoder.bias F32[5]"),
        (None, "tensor decoder.bias F32[17] expected, not found"),
    ],
)
def test_broken_weights(phono: Run, workplace: Workplace, tmp_path: Path, value: object, message: str) -> None:
    weights = changed_weights(workplace, tmp_path / "w", "decoder.bias", value)
    for arguments in (("train", workplace.artifacts, "--user"), ("eval", workplace.artifacts, "--text")):
        refused(phono(*arguments, workplace.user, "--weights", weights), 6, weights, message)
    preset = ("--preset", "tiny", "--vocab", workplace.vocabulary)
    refused(phono("export", *preset, "--weights", weights, "--out", tmp_path / "a"), 6, "decoder.bias")
    assert not (tmp_path / "a").exists()


def test_an_update_that_is_none(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    weights = workplace.artifacts / "weights.safetensors"
    refused(phono("update", "show", weights), 7, weights, "not an update")
    refused(phono("upload", weights, "--server", "http://127.0.0.1:9"), 7, "not an update")
    cut = tmp_path / "cut"
    cut.write_bytes(weights.read_bytes()[:-8])
    refused(phono("update", "show", cut), 7, cut, "truncated")


def test_an_update_for_another_model(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    base, update = workplace.artifacts / "weights.safetensors", tmp_path / "u"
    assert phono("update", "encode", base, "--base", base, "--tokens", 5, "--out", update).code == 0
    other = changed_weights(workplace, tmp_path / "other", "decoder.bias", 1.5)
    outcome = phono("update", "decode", update, "--base", other, "--out", tmp_path / "w")
    refused(outcome, 7, update, "made from model", "expected")


def test_a_server_that_is_not_there(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    base, update = workplace.artifacts / "weights.safetensors", tmp_path / "u"
    assert phono("update", "encode", base, "--base", base, "--tokens", 5, "--out", update).code == 0
    refused(phono("upload", update, "--server", "http://127.0.0.1:9"), 9, "http://127.0.0.1:9", "phonograd serve")
    refused(phono("report", "--server", "http://127.0.0.1:9"), 9, "cannot be reached")


def test_a_place_that_cannot_be_written(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "folder"
    refused(
        phono("train", workplace.artifacts, "--user", workplace.user, "--out", out),
        11,
        f"{out}: cannot write: no folder {out.parent}, and it can't be made: File exists; choose another place",
    )
    refused(phono("report", "--state", tmp_path), 11, tmp_path)


def test_an_existing_folder_is_kept(phono: Run, workplace: Workplace) -> None:
    before = (workplace.artifacts / "manifest.json").read_bytes()
    preset = ("--preset", "tiny", "--vocab", workplace.vocabulary, "--seed", 9)
    refused(
        phono("export", *preset, "--out", workplace.artifacts),
        5,
        "already there",
        "choose another --out or give --overwrite",
    )
    assert (workplace.artifacts / "manifest.json").read_bytes() == before


def test_overwriting_replaces_the_whole_folder(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    folder = copy_of(workplace, tmp_path)
    preset = ("--preset", "tiny", "--vocab", workplace.vocabulary, "--seed", 9)
    assert phono("export", *preset, "--overwrite", "--out", folder).code == 0
    assert phono("inspect", folder).code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), RuntimeError("Failed to save checkpoint to file: x. errno:28\n")]
)
def test_an_export_that_fails_leaves_nothing(
    phono: Run, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("onnxruntime.training.artifacts.generate_artifacts", full)
    preset = ("--preset", "tiny", "--vocab", workplace.vocabulary, "--seed", 9)
    refused(phono("export", *preset, "--out", tmp_path / "a"), 11, tmp_path / "a", "No space left on device")
    assert list(tmp_path.iterdir()) == []


NO_SPACE = OSError(28, "No space left on device")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_appears_whole_and_the_one_before_stays_till_then(
    phono: Run, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, new = copy_of(workplace, tmp_path), tmp_path / "new"
    before, filled = contents(kept), []

    def full(_: Manifest, place: Path) -> None:
        assert (contents(kept), new.exists()) == (before, False)
        filled.append({path.name for path in place.iterdir()})
        raise NO_SPACE

    monkeypatch.setattr(Manifest, "write", full)
    preset = ("--preset", "tiny", "--vocab", workplace.vocabulary, "--seed", 9)
    refused(phono("export", *preset, "--out", new), 11, new, "No space left on device")
    refused(phono("export", *preset, "--overwrite", "--out", kept), 11, kept, "No space left on device")
    assert filled == [set(FILES)] * 2  # the manifest is last
    assert contents(kept) == before
    assert list(tmp_path.iterdir()) == [kept]


def test_a_folder_that_cannot_be_put_in_place_leaves_the_one_before(
    phono: Run, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = copy_of(workplace, tmp_path)
    before, rename = contents(kept), Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path.suffix == ".partial" and target == kept:
            raise NO_SPACE
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    preset = ("--preset", "tiny", "--vocab", workplace.vocabulary, "--seed", 9)
    refused(phono("export", *preset, "--overwrite", "--out", kept), 11, kept, "No space left on device")
    assert contents(kept) == before
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize(
    "arguments",
    [
        ("train",),
        ("nonsense",),
        ("train", "x", "--user", "y", "--user-share", "0.5"),
        ("train", "x", "--user", "y", "--threads", "0"),
        ("export", "--preset", "tiny", "--vocab", "v", "--out", "o"),
        ("export", "--preset", "none", "--vocab", "v", "--seed", "1", "--out", "o"),
        ("report",),
    ],
)
def test_wrong_usage(phono: Run, arguments: tuple[str, ...]) -> None:
    outcome = phono(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("phonograd: ")
    assert outcome.err.count("\n") == 1


def test_a_server_without_a_scheme(phono: Run, workplace: Workplace) -> None:
    refused(phono("report", "--server", "127.0.0.1:8080"), 2, "did you mean http://127.0.0.1:8080?")
    train = ("train", workplace.artifacts, "--user", workplace.user, "--server", "ftp://localhost")
    refused(phono(*train), 2, "server 'ftp://localhost': a URL such as http://127.0.0.1:8080 expected")


def test_a_mistyped_command_is_told_what_may_be_meant(phono: Run) -> None:
    refused(phono("trian"), 2, "No such command 'trian'. Did you mean 'train'? (phonograd --help)")
    refused(phono("vocab", "biuld"), 2, "No such command 'biuld'", "Did you mean 'build'?", "(phonograd vocab --help)")
    refused(phono("xyzzy"), 2, "No such command 'xyzzy'. (phonograd --help)")


def test_out_of_memory_is_no_bug(phono: Run, workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise MemoryError

    monkeypatch.setattr("phonograd.device_runtime.training.round.Round.train", full)
    refused(phono("train", workplace.artifacts, "--user", workplace.user), 26, "out of memory; end other work")


INTERRUPTED = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("module", ["click", "rich", "numpy"])
def test_an_interrupt_at_any_time_shows_no_traceback(workplace: Workplace, tmp_path: Path, module: str) -> None:
    """Half of the time of a short command is imports: of click before the command line is read, of others after."""
    (tmp_path / f"{module}.py").write_text(INTERRUPTED, "utf-8")
    line = [sys.executable, "-m", "phonograd", "eval", workplace.artifacts, "--text", workplace.user]
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [*map(str, line)], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths}
    )
    assert (done.returncode, done.stderr.strip()) == (130, "phonograd: interrupted")


LATE = """
import os, signal, atexit
atexit.register(os.kill, os.getpid(), signal.SIGINT)
from phonograd.__main__ import main
main()
"""


def test_an_interrupt_while_python_ends_shows_no_traceback(phono: Run) -> None:
    done = subprocess.run([sys.executable, "-c", LATE, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "phonograd: interrupted")


def test_an_interrupt_has_its_own_code(phono: Run, workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("phonograd.device_runtime.training.round.Round.train", interrupted)
    outcome = phono("train", workplace.artifacts, "--user", workplace.user)
    assert (outcome.code, outcome.err.strip()) == (130, "phonograd: interrupted")


def test_a_bug_is_called_one(phono: Run, workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("phonograd.device_runtime.training.round.Round.train", broken)
    outcome = phono("train", workplace.artifacts, "--user", workplace.user)
    assert outcome.code == 1
    assert "phonograd: a bug: ZeroDivisionError: oops" in outcome.err


def test_without_the_extra_a_command_says_what_to_install(workplace: Workplace, tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['torch'] = sys.modules['onnx'] = sys.modules['onnxruntime'] = None\n"
    script = hidden + "from phonograd.__main__ import main; main()"
    user = tmp_path / "user.txt"
    user.write_bytes(text_of(1, 60))
    calls = {
        "train": [workplace.artifacts, "--user", user, "--backend", "ort"],
        "export": ["--preset", "tiny", "--vocab", workplace.vocabulary, "--seed", "1", "--out", tmp_path / "a"],
        "pretrain": ["--preset", "tiny", "--vocab", workplace.vocabulary, "--text", user, "--out", tmp_path / "b"],
    }
    for command, arguments in calls.items():
        line = [sys.executable, "-c", script, command, *map(str, arguments)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.returncode == 10, done.stderr
        assert "pip install 'phonograd[export]'" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_what_only_the_native_engine_has(phono: Run, workplace: Workplace) -> None:
    arguments = ("train", workplace.artifacts, "--user", workplace.user, "--backend", "ort")
    refused(phono(*arguments, "--precision", "bf16"), 2, "backend ort: --precision fp32 expected, found bf16")
    refused(phono(*arguments, "--pin-threads"), 2, "backend ort: --pin-threads False expected")


def test_layers_that_no_phone_has_room_for_are_refused_at_once(
    phono: Run, workplace: Workplace, tmp_path: Path
) -> None:
    line = ("--cell", "lstm", "--hidden", 4, "--vocab", workplace.vocabulary, "--seed", 1, "--out", tmp_path / "a")
    refused(phono("export", "--layers", 100_000, *line), 5, "layers", "64", "100000")


def test_no_place_for_the_phone_binary(phono: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused(phono("build-phone", "--out", tmp_path / "file" / "phone"), 11, tmp_path / "file", "no folder")


def test_a_compiler_of_another_version(phono: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str) -> SimpleNamespace:
        return SimpleNamespace(version="0.1")

    monkeypatch.setattr("importlib.metadata.distribution", distribution)
    refused(phono("build-phone", "--force", "--out", tmp_path / "phone"), 15, "ziglang: version", "found 0.1")
    assert not list(tmp_path.iterdir())


def test_a_user_whose_name_is_no_utf8(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    users = tmp_path / "users"
    users.mkdir()
    (users / os.fsdecode(b"b\xff.txt")).write_bytes(b"the cat\n")
    outcome = phono("simulate", workplace.artifacts, "--users", users, "--out", tmp_path / "out")
    refused(outcome, 3, users, "a user's name in UTF-8 expected")
