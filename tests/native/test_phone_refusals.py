"""What `phonograd-phone` refuses: usage, texts, artifacts and places, each with its message and exit code."""

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors
from phonograd.export.torch_layout import to_torch
from tests.support.phone_command import MODEL, Place, outputs, python_line
from tests.support.waiting import PATIENCE_SECONDS

PYTHON_TRAIN = """
import resource, sys
from phonograd.cli import phonograd
from phonograd.console import run
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]),) * 2)
sys.exit(run(phonograd, ["train", *sys.argv[2:]]))
"""


def python_train(place: Place, files: int) -> int:
    """The exit code of `phonograd train` in a process that may open so many files."""
    line = [sys.executable, "-c", PYTHON_TRAIN, files, place.artifacts.folder, "--user", place.user]
    return subprocess.run([*map(str, line)], capture_output=True, check=False, timeout=PATIENCE_SECONDS).returncode


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give a command"),
        (("trian",), "no command trian; did you mean train? (phonograd-phone --help)"),
        (("xyz",), "no command xyz (phonograd-phone --help)"),
        (("a\x1b[2J\x7f\x9b\u202e\u200f",), r"no command a\x1b[2J\x7f\x9b\u202e\u200f ("),  # shown, not obeyed
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
        (("train", "A", "--user", "a", "--phone", "p" * 65), "--phone: expected a name of 1 to 64"),
        (("train", "A", "--user", "a", "--phone", ".."), "but neither . nor .., found '..'"),
        (("train", "A", "--user", "a", "--codec", "zip"), "--codec zip: expected one of full-f32, rows-f32, "),
        (("train", "A", "--user", "a", "--round", "0"), "--round 0: expected a whole number from 1"),
        (("train", "A", "--user", "a", "--output-sample", "0"), "--output-sample 0: expected a whole number from 1"),
        (("train", "A", "--user", "a", "--output-sample", "1" + "0" * 30), "expected a whole number from 1"),
        (("train", "A", "--user", "a", "--sample-seed", "5"), "--sample-seed"),
        (("train", "A", "--user", "a", "--steps", "2"), "--steps 2: expected 1, a single step with the gradient of"),
        (("train", "A", "--user", "a", "--steps", "1", "--epochs", "2"), "--steps and --epochs exclude each other"),
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
        (("--lr", "1e39"), "--lr 1e39: expected a number above 0.0 and at most 3.4e+38"),
        (("--threads", "0"), "--threads 0: expected a whole number from 1 to 256"),
        (("--threads", str(2**32 + 2)), "--threads 4294967298: expected a whole number from 1 to 256"),
        (("--duty", "0"), "--duty 0: expected a number above 0.0 and at most 1.0"),
        (("--nice", "20"), "--nice 20: expected a whole number from 0 to 19"),
        (("--nice", "-1"), "--nice -1: expected a whole number from 0 to 19"),
        (("--precision", "fp8"), "--precision fp8: expected one of fp32, bf16, bf16-emulated"),
        (("--cores", "some"), "--cores some: expected big, little, all, or a hexadecimal mask"),
    ],
)
def test_settings_that_cannot_be(place: Place, options: tuple[str, ...], said: str) -> None:
    found = place.train(*options)
    assert (found.code, found.events) == (2, [])
    assert said in found.err


def test_texts_that_cannot_be_trained(place: Place, tmp_path: Path) -> None:
    """What a text may have wrong is in test_round_abi.py; token files are the command's own."""
    (tmp_path / "short").write_bytes(b"w1 w2\n")
    (tmp_path / "odd").write_bytes(b"12345")
    np.array([1, MODEL.vocabulary], "<i4").tofile(tmp_path / "beyond")
    for options, said in (
        (("--user", tmp_path / "short"), "15 tokens expected (one window: minibatch 3 x BPTT 5), found 3; give more"),
        (("--tokens", tmp_path / "odd"), "odd: 5 bytes, expected little-endian int32 token ids"),
        (("--tokens", tmp_path / "beyond"), "token 1 is 600, expected an id from 0 to 599"),
    ):
        found = place.run("train", place.artifacts.folder, *options)
        assert (found.code, found.events, found.err.count("\n")) == (3, [], 1)
        assert said in found.err


Both = Callable[..., str]


@pytest.fixture
def both(place: Place, capfd: pytest.CaptureFixture[str]) -> Both:
    """Has `phonograd-phone` and `phonograd` do the same: what both say on stderr, in one spelling."""

    def run_both(code: int, command: str, *options: object) -> str:
        keeps = command != "train" or "--out" in options
        kept = () if keeps else ("--out", place.user.with_suffix(".trained"))
        line = (command, place.artifacts.folder, "--threads", 1, *kept, *options)
        ours = place.run(*line)
        assert (ours.code, run(phonograd, python_line(*line))) == (code, code), ours.err
        theirs = capfd.readouterr().err.replace("%", " %").replace("  %", " %")
        theirs = theirs.replace("training.max_unknown", "--max-unknown")
        assert ours.err.replace("phonograd-phone: ", "phonograd: ") == theirs
        return theirs

    return run_both


@pytest.mark.parametrize(("unknown", "warned"), [(30, False), (31, True)])
def test_a_text_of_unknown_words_trains_with_a_warning(
    place: Place, both: Both, tmp_path: Path, unknown: int, warned: bool
) -> None:
    odd = tmp_path / "odd"
    odd.write_bytes(b"elsewhere\n" * unknown + b"w1\n" * (100 - unknown))
    said = f"{odd}: {unknown} % of the words are unknown to the vocabulary; is it UTF-8, and in the model's language?\n"
    for line in (("train", "--user", odd), ("eval", "--text", odd)):
        assert both(0, *line) == (f"phonograd: warning: {said}" if warned else "")
    found = place.run("train", place.artifacts.folder, "--user", odd)
    for report in (found.only("start"), found.only("report")):
        assert (report["user_unknown_share"], report["general_unknown_share"]) == (unknown / 100, None)


def test_a_text_of_mostly_unknown_words_gives_no_update(place: Place, both: Both, tmp_path: Path) -> None:
    odd, update = tmp_path / "odd", tmp_path / "update"
    odd.write_bytes(b"elsewhere\n" * 51 + b"w1\n" * 49)
    err = both(3, "train", "--user", odd, "--update", update)
    said = f"{odd}: 51 % of the words are unknown to the vocabulary, at most 50 % expected of an update; "
    assert (said in err, "or raise --max-unknown\n" in err, update.exists()) == (True, True, False)
    both(0, "train", "--user", odd, "--update", update, "--max-unknown", 0.51)
    odd.write_bytes(b"elsewhere\n" * 400)
    line = ("--user", place.user, "--rehearsal", odd)
    assert f"warning: {odd}: 100 % of the words are unknown" in both(0, "train", *line)
    assert place.run("train", place.artifacts.folder, *line).only("report")["general_unknown_share"] == 1


def test_bytes_that_are_not_utf8_are_warned_of(place: Place, both: Both, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    odd.write_bytes(b"w1 w2 w3 w4 w\xe9 \xed\xa0\x80\xc3\xa9 w5\n" * 50)  # 4 of 23 bytes
    said = f"warning: {odd}: 17 % of the bytes are not UTF-8; is it Latin-1 (convert it with: iconv -f LATIN1 -t UTF-8)"
    assert said in both(0, "train", "--user", odd)
    found = place.run("train", place.artifacts.folder, "--user", odd)
    assert found.only("report")["user_invalid_share"] == 4 / 23


def test_a_text_that_is_no_utf8_is_not_trained(place: Place, both: Both, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(place.user.read_bytes().decode().encode("utf-16"))
    for options in (("--user", text), ("--user", place.user, "--rehearsal", text)):
        assert f"{text}: begins with a UTF-16 byte order mark" in both(3, "train", *options)


def test_a_loss_that_explodes_is_divergence_and_gives_no_update(both: Both, place: Place, tmp_path: Path) -> None:
    """Every loss is finite: the gradient is clipped, so that the weights grow and do not overflow."""
    err = both(12, "train", "--user", place.user, "--seed", 0, "--lr", "1e9", *outputs(tmp_path))
    said = (
        r"step 2: loss is \S+ nats a token, expected 63\.9\S* at most \(ten times a uniform guess\); training diverged"
    )
    assert re.search(said, err)
    assert list(tmp_path.iterdir()) == []


def limit_memory(megabytes: int) -> Callable[[], None]:
    """Limit the memory of a child process."""
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


def test_out_of_memory_has_a_code_of_its_own(place: Place, tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(200 << 20)
    found = place.run("train", place.artifacts.folder, "--user", huge, preexec_fn=limit_memory(128))
    assert (found.code, found.err) == (26, "phonograd-phone: out of memory; close other apps or use a smaller model\n")
    weights = tmp_path / "weights"
    with weights.open("wb") as file:
        file.truncate(200 << 20)
    found = place.train("--weights", weights, preexec_fn=limit_memory(128))
    said = f"{weights}: cannot be mapped: Cannot allocate memory; close other apps or use a smaller model"
    assert (found.code, found.err) == (26, f"phonograd-phone: {said}\n")


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
    folder = Path(shutil.copytree(place.artifacts.folder, tmp_path / "vocabulary"))
    (folder / VOCABULARY).write_bytes((folder / VOCABULARY).read_bytes().replace(b"w11\t", b"w12\t"))
    assert place.run("train", folder, "--user", place.user).code == 4


def test_outputs_places_are_checked_before_training(place: Place, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    for options, said in (
        (("--out", "/proc/none/out"), "cannot write: no folder /proc/none, and it can't be made"),
        (("--update", tmp_path), "cannot write: it is a folder"),
        (("--state", "/proc/none/state"), "no folder /proc/none, and it can't be made"),
        (("--state", tmp_path / "file"), "cannot"),
        (("--out", tmp_path / "pipe"), "cannot write: it is a pipe or a device, not a file"),
        (("--update", tmp_path / "pipe"), "cannot write: it is a pipe or a device, not a file"),
    ):
        found = place.train(*options)
        assert (found.code, found.events, found.err.count("\n")) == (11, [], 1)
        assert said in found.err


def test_a_link_to_stdout_is_no_output_even_if_a_file_is_behind_it(place: Place, tmp_path: Path) -> None:
    """Writing as root to /dev/stdout replaced the link. Tried with its like, which nobody can replace."""
    with (tmp_path / "stdout").open("wb") as file:
        line = place.train_line("--out", "/dev/fd/1")
        done = subprocess.run(line, stdout=file, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, (tmp_path / "stdout").read_bytes()) == (11, b"")
    assert "/dev/fd/1: cannot write: it is a pipe or a device, not a file" in done.stderr


def test_an_output_is_no_input_and_no_other_output(place: Place, tmp_path: Path) -> None:
    """All commands refuse it before any work, by the file and not by its name."""
    folder, user, weights = tmp_path / "folder", tmp_path / "user", tmp_path / "weights"
    shutil.copytree(place.artifacts.folder, folder)
    shutil.copy(place.user, user)
    shutil.copy(place.artifacts.path(WEIGHTS), weights)
    (tmp_path / "linked").hardlink_to(user)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    train = ("train", folder, "--user", user, "--rehearsal", place.general, "--weights", weights)
    state = tmp_path / "state"
    for line in (
        (*train, "--out", user),
        (*train, "--update", tmp_path / "linked"),
        (*train, "--update", folder / VOCABULARY),
        (*train, "--out", folder / "manifest.json"),
        (*train, "--out", weights),
        (*train, "--out", tmp_path / "new" / "x", "--update", f"{tmp_path}/new/./x"),
        (*train, "--out", state / "state.safetensors", "--state", state),
        ("quantize", folder, "--out", folder / WEIGHTS),
        ("quantize", folder, "--weights", weights, "--out", weights),
    ):
        found = place.run(*line)
        assert (found.code, found.events, found.err.count("\n")) == (2, [], 1), line
        assert "would replace " in found.err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_outputs_folders_are_made(place: Place, tmp_path: Path) -> None:
    new = tmp_path / "new" / "folder"
    assert place.train("--update", new / "update", "--state", new / "deeper" / "state").code == 0
    assert (new / "update").stat().st_size > 0


def test_an_input_that_is_a_pipe_is_refused_not_waited_for(place: Place, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for options, code in (("--user", 3), ("--tokens", 3), ("--weights", 6)):
        user = () if options != "--weights" else ("--user", place.user)
        found = place.run("train", place.artifacts.folder, options, pipe, *user)
        assert (found.code, "a file expected, found a pipe or a device" in found.err) == (code, True), found


def test_too_few_file_descriptors_are_like_too_little_memory(place: Place) -> None:
    def limited_to(files: int) -> Callable[[], None]:
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    found = [place.train(preexec_fn=limited_to(files)) for files in (4, 8)]
    assert [outcome.code for outcome in found] == [26, 0]
    assert "Too many open files; close other files or apps, and try again" in found[0].err
    assert python_train(place, 4) == 26


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
