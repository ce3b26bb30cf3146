"""What bad input gets: one line on stderr naming file, expected and found, and the documented exit code."""

import importlib.metadata
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest

import phonograd
from phonograd.device_runtime.base.documents import schemas
from phonograd.device_runtime.formats.manifest import FILES, Manifest
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors
from tests.support.command_line import Outcome, Run, Workplace


def assert_refused(outcome: Outcome, code: int, *parts: object) -> None:
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    lines = [line for line in outcome.err.splitlines() if line.startswith("phonograd: ")]
    assert len(lines) == 1, outcome.err
    assert "Traceback" not in outcome.err
    assert "a bug" not in outcome.err
    for part in parts:
        assert str(part) in lines[0]


@pytest.fixture
def bad(phono: Run, workplace: Workplace, tmp_path: Path) -> dict[str, Path]:
    """Inputs by what is wrong with them, and places for outputs."""
    base, update = workplace.artifacts / "weights.safetensors", tmp_path / "update"
    assert phono("update", "encode", base, "--base", base, "--tokens", 5, "--out", update).code == 0
    nan, other = tmp_path / "nan", tmp_path / "other"
    for path, value in ((nan, np.nan), (other, 1.5)):
        tensors = load_tensors(base)
        tensors["decoder.bias"][7] = value
        save_tensors(path, tensors)
    texts = {"empty": b"\n \n", "short": b"the cat sat\n", "twice": b"<unk>\n<eos>\ncat\ndog\ncat\n", "file": b""}
    texts |= {"cut": base.read_bytes()[:-8], "users/b\udcff.txt": b"the cat\n"}
    (tmp_path / "users").mkdir()
    for name, content in texts.items():
        (tmp_path / name).write_bytes(content)
    places = {name: tmp_path / name for name in (*texts, "users", "update", "nan", "other", "new")}
    return places | {
        "here": tmp_path,
        "art": workplace.artifacts,
        "user": workplace.user,
        "general": workplace.general,
        "vocab": workplace.vocabulary,
        "base": base,
    }


@pytest.mark.parametrize(
    ("line", "code", "parts"),
    [
        ("train {art} --user {empty}", 3, ["{empty}", "no words found"]),
        ("train {art} --user {short}", 3, ["200 tokens expected", "found 4"]),
        ("train {art} --user {user} --rehearsal {short}", 3, ["rehearsal text", "found 4"]),
        ("simulate {art} --users {users} --out {new}", 3, ["{users}", "a user's name in UTF-8 expected"]),
        ("export --preset tiny --vocab {twice} --seed 1 --out {new}", 4, ["{twice}", "'cat' is on lines 3 and 5"]),
        ("vocab build {general} --size 50 --out {new}", 4, ["48 distinct words expected", "found 15"]),
        ("inspect {user}", 5, ["{user}: an artifacts folder expected, found a file"]),
        (
            "export --preset tiny --vocab {vocab} --seed 9 --out {art}",
            5,
            ["already there", "choose another --out or give --overwrite"],
        ),
        (
            "export --set shape.cell=lstm --vocab {vocab} --seed 1 --out {new} --set shape.layers=100000",
            2,
            ["layers", "64", "100000"],
        ),
        ("train {art} --user {user} --weights {nan}", 6, ["{nan}", "tensor decoder.bias: element 7 is nan"]),
        ("export --preset tiny --vocab {vocab} --weights {nan} --out {new}", 6, ["decoder.bias"]),
        ("update show {base}", 7, ["{base}", "not an update"]),
        ("update show {cut}", 7, ["{cut}", "truncated"]),
        ("update decode {update} --base {other} --out {new}", 7, ["{update}", "made from model", "expected"]),
        ("upload {base} --server http://127.0.0.1:9", 7, ["not an update"]),
        ("upload {update} --server http://127.0.0.1:9 --wait 0", 9, ["http://127.0.0.1:9", "phonograd serve"]),
        ("report --server http://127.0.0.1:9 --wait 0", 9, ["cannot be reached"]),
        (
            "train {art} --user {user} --out {file}/new",
            11,
            ["{file}/new: cannot write: no folder {file}, and it can't be made: File exists; choose"],
        ),
        ("build-phone --out {file}/phone", 11, ["{file}", "no folder"]),
        ("report --state {here}", 11, ["{here}"]),
        ("report --server 127.0.0.1:8080", 2, ["did you mean http://127.0.0.1:8080?"]),
        (
            "train {art} --user {user} --server ftp://localhost",
            2,
            ["server 'ftp://localhost': a URL such as http://127.0.0.1:8080 expected"],
        ),
        ("trian", 2, ["No such command 'trian'. Did you mean 'train'? (phonograd --help)"]),
        ("vocab biuld", 2, ["No such command 'biuld'", "Did you mean 'build'?", "(phonograd vocab --help)"]),
        ("docs updtes", 2, ["did you mean updates?"]),
        ("reproduce sizs", 2, ["did you mean sizes?"]),
        ("export --preset tinny --vocab {user} --seed 1 --out {new}", 2, ["did you mean tiny?"]),
        ("export --set shape.preset=tinny --vocab {user} --seed 1 --out {new}", 2, ["did you mean tiny?"]),
        ("train {art} --user {user} --codec rows-f3", 2, ["did you mean rows-f32?"]),
        ("bench epoch --backends natve", 2, ["did you mean native?"]),
        ("config trin", 2, ["did you mean train?"]),
        ("train", 2, []),
        ("train x --user y --set engine.threads=4294967298", 2, ["4294967298", "at least 1, at most 256"]),
    ],
)
def test_what_is_refused(phono: Run, bad: dict[str, Path], line: str, code: int, parts: list[str]) -> None:
    before = (bad["art"] / "manifest.json").read_bytes()
    assert_refused(phono(*line.format(**bad).split()), code, *(part.format(**bad) for part in parts))
    assert not bad["new"].exists()
    assert (bad["art"] / "manifest.json").read_bytes() == before


def copy_of(workplace: Workplace, tmp_path: Path) -> Path:
    return Path(shutil.copytree(workplace.artifacts, tmp_path / "copy"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "not found"),
        (b"[", "not JSON"),
        ({"schema_version": 99}, "schema_version 3 expected, found 99"),
        ({"model": {"cell": "lstm"}}, "model.vocabulary: missing"),
        ({"surprise": 1}, "surprise"),
        ({"files": {}}, "files: missing or unknown"),
    ],
)
def test_a_manifest_that_makes_no_sense(
    phono: Run, workplace: Workplace, tmp_path: Path, change: object, message: str
) -> None:
    """What any document must be is held by tests/android_harness/test_report_document.py."""
    folder = copy_of(workplace, tmp_path)
    manifest = folder / "manifest.json"
    if isinstance(change, dict):
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
    elif isinstance(change, bytes):
        manifest.write_bytes(change)
    else:
        manifest.unlink()
    assert_refused(phono("inspect", folder), 5, manifest, message)


def test_the_schema_of_a_manifest_describes_what_is_written(workplace: Workplace) -> None:
    kinds = schemas(Manifest)
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": "#/$defs/Manifest", "$defs": kinds}
    validator = jsonschema.Draft202012Validator(document)
    written = json.loads((workplace.artifacts / "manifest.json").read_text())
    validator.validate(written)
    written["model"]["layers"] = 0
    assert not validator.is_valid(written)


def test_a_damaged_truncated_or_missing_file(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    folder = copy_of(workplace, tmp_path)
    line, file = ("train", folder, "--user", workplace.user), folder / "checkpoint"
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert_refused(phono(*line), 5, file, "SHA-256", "expected, found")
    file.write_bytes(data[:-10])
    assert_refused(phono(*line), 5, f"{len(data)} bytes expected, found {len(data) - 10}")
    file.unlink()
    assert_refused(phono(*line), 5, file, "not found")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"the", "a count expected on every line or on none"),
        (b"the\t05", "'the', a tab and a whole number of at most 15 digits expected"),
        (b"the\t5\tThem", "another way to write 'the' expected, found 'Them'"),
    ],
)
def test_a_vocabulary_with_a_wrong_line(phono: Run, tmp_path: Path, line: bytes, said: str) -> None:
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_bytes(b"<unk>\t3\n<eos>\t2\n" + line + b"\n")
    asked = ("export", "--preset", "tiny", "--vocab", vocabulary, "--seed", 1, "--out", tmp_path / "a")
    assert_refused(phono(*asked), 4, f"{vocabulary}: line 3: ", said)
    assert not (tmp_path / "a").exists()


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
    assert_refused(phono("export", *preset, "--out", new), 11, new, "No space left on device")
    assert_refused(phono("export", *preset, "--overwrite", "--out", kept), 11, kept, "No space left on device")
    assert filled == [set(FILES)] * 2  # the manifest is last
    assert contents(kept) == before
    assert list(tmp_path.iterdir()) == [kept]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (MemoryError(), 26, "out of memory; end other work"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("oops"), 1, "a bug: ZeroDivisionError: oops"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_no_input_is_to_blame_for(
    phono: Run, workplace: Workplace, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, said: str
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise error

    monkeypatch.setattr("phonograd.device_runtime.training.round.Round.train", fail)
    outcome = phono("train", workplace.artifacts, "--user", workplace.user)
    assert outcome.code == code
    assert f"phonograd: {said}" in outcome.err


INTERRUPTED = """
import os, signal
os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("module", ["click", "numpy"])
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


WITHOUT = """
import json, sys
sys.modules["torch"] = sys.modules["onnx"] = sys.modules["onnxruntime"] = None
from phonograd.cli import phonograd
from phonograd.console import run
print(json.dumps([run(phonograd, line) for line in json.loads(sys.argv[1])]))
"""


def test_without_the_extra_a_command_says_what_to_install(workplace: Workplace, tmp_path: Path) -> None:
    export = ["--preset", "tiny", "--vocab", workplace.vocabulary, "--seed", 1, "--out", tmp_path / "a"]
    pretrain = [*export[:4], "--text", workplace.user, "--set", "training.minibatch=1", "--out", tmp_path / "b"]
    given = json.dumps([[str(part) for part in line] for line in (["export", *export], ["pretrain", *pretrain])])
    done = subprocess.run([sys.executable, "-c", WITHOUT, given], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [10] * 2
    said = done.stderr.splitlines()
    assert len(said) == 2
    assert all("pip install '.[export]'" in line for line in said)


def test_export_needs_no_package_metadata(
    phono: Run, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code that was copied into another project, or into a zip file, has none."""

    def missing(name: str) -> object:
        raise importlib.metadata.PackageNotFoundError(name)

    installed = {name: importlib.metadata.version(name) for name in ("onnx", "onnxruntime-training-cpu", "numpy")}
    monkeypatch.setattr(importlib.metadata.Distribution, "from_name", missing)
    line = ("export", "--preset", "tiny", "--seed", 1, "--vocab", workplace.vocabulary, "--out", tmp_path / "a")
    assert phono(*line).code == 0
    tools = json.loads((tmp_path / "a/manifest.json").read_text())["tools"]
    assert tools == {**installed, "phonograd": phonograd.__version__, "python": platform.python_version()}


def test_a_compiler_of_another_version(phono: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def distribution(name: str) -> SimpleNamespace:
        return SimpleNamespace(version="0.1")

    monkeypatch.setattr("importlib.metadata.distribution", distribution)
    assert_refused(phono("build-phone", "--force", "--out", tmp_path / "phone"), 15, "ziglang: version", "found 0.1")
    assert not list(tmp_path.iterdir())
