"""Training that is killed, stopped, or refused its disk, and goes on: always to the bits of an undisturbed epoch.

PHONOGRAD_KILLS sets how many random moments of an epoch are tried.
"""

import fcntl
import os
import shutil
import signal
import struct
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import pytest

from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors
from phonograd.device_runtime.native_build import build_program
from phonograd.device_runtime.native_build.targets import command_sources
from phonograd.device_runtime.training.round import Round
from tests.native.limits import files_of_at_most
from tests.support.phone_command import MODEL, STEPS, TRAINING, Place, outcome_of, outputs, read_outputs, until_step

KILLS = int(os.environ.get("PHONOGRAD_KILLS", "3"))
STATE = "state.safetensors"


@pytest.fixture(scope="module")
def undisturbed(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """What an epoch without a state ends in."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert place.train(*outputs(folder)).only("report")["steps"] == STEPS
    return read_outputs(folder)


@pytest.fixture(scope="module")
def state_of_step_6(place: Place, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What an epoch left that was killed after a few steps, long before the next save."""
    folder = tmp_path_factory.mktemp("killed") / "state"
    line = place.train_line("--state", folder, "--save-every", 6)
    assert until_step(line, 7, signal.SIGKILL).code == -signal.SIGKILL
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == [STATE]
    return (folder / STATE).read_bytes()


@pytest.fixture
def stopped(state_of_step_6: bytes, tmp_path: Path) -> Path:
    """The state folder of that epoch."""
    folder = tmp_path / "state"
    folder.mkdir(0o700)
    (folder / STATE).write_bytes(state_of_step_6)
    return folder


def python(place: Place, *options: object) -> int:
    """Train the same epoch by `phonograd train`, in this process."""
    line = ["train", place.artifacts.folder, "--user", place.user, "--seed", 0, *options]
    return run(phonograd, [*map(str, line)])


def signal_at_step(patch: pytest.MonkeyPatch, step: int, number: signal.Signals) -> None:
    """Have this process signalled when it has taken a step."""
    train = Round.train

    def signal_step(done: int, *_: object) -> None:
        if done == step:
            os.kill(os.getpid(), number)

    patch.setattr(Round, "train", lambda self, progress, stop: train(self, signal_step, stop))


def step_of(folder: Path) -> int:
    with TensorFile(folder / STATE) as file:
        return int(file.metadata["step"])


@pytest.mark.parametrize("moment", range(KILLS))
def test_a_kill_at_any_moment_loses_nothing(
    place: Place, undisturbed: Mapping[str, bytes], tmp_path: Path, moment: int
) -> None:
    random = Random(moment)
    every = random.randint(1, 4)
    line = place.train_line("--state", tmp_path / "state", "--save-every", every, *outputs(tmp_path))
    step = random.randint(1, STEPS - 2)
    killed = until_step(line, step, signal.SIGKILL, random.uniform(0, 0.004))
    assert killed.code == -signal.SIGKILL
    assert killed.events[-1]["event"] in ("step", "saved")
    resumed = place.train("--state", tmp_path / "state", "--threads", 3, *outputs(tmp_path))
    saved = [event["step"] for event in killed.events if event["event"] == "saved"]
    # The save that was cut off may be on disk whole, though nothing was said of it.
    assert resumed.only("start")["resumed_at"] in (max(saved, default=0), max(saved, default=0) + every)
    assert len(resumed.only("report")["losses"]) == STEPS
    assert read_outputs(tmp_path) == undisturbed
    assert list((tmp_path / "state").iterdir()) == []


def test_killed_every_few_seconds(place: Place, undisturbed: Mapping[str, bytes], tmp_path: Path) -> None:
    """The epoch ends however long its steps take: at each look at the clock a second more has passed."""
    ticking = build_program("ticking_command", [Path(__file__).with_name("ticking_clock.cpp"), *command_sources()])
    _, *options = place.train_line("--state", tmp_path / "state", "--save-every", 1000, *outputs(tmp_path))
    line = [str(ticking), *options]
    for step in (10, 20, 30):
        assert until_step(line, step, signal.SIGKILL).code == -signal.SIGKILL
    assert outcome_of(line).only("start")["resumed_at"] >= 25
    assert read_outputs(tmp_path) == undisturbed


def test_killed_after_the_outputs_before_the_state_is_removed(
    place: Place, undisturbed: Mapping[str, bytes], stopped: Path, tmp_path: Path
) -> None:
    shutil.copytree(stopped, tmp_path / "kept")
    assert place.train("--state", stopped, *outputs(tmp_path)).code == 0
    again = place.train("--state", tmp_path / "kept", *outputs(tmp_path))
    assert again.only("report")["resumed_at"] == 6
    assert read_outputs(tmp_path) == undisturbed
    assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_finishes_the_step_and_saves(
    place: Place, undisturbed: Mapping[str, bytes], tmp_path: Path, number: signal.Signals, code: int
) -> None:
    line = place.train_line("--state", tmp_path / "state", "--save-every", 1000, *outputs(tmp_path))
    found = until_step(line, 3, number)
    said = found.only("interrupted")
    assert (found.code, said["signal"], said["saved"]) == (code, number, True)
    assert found.err.count("\n") == 1
    assert f"interrupted after step {said['step']} of {STEPS}; the state is saved" in found.err
    assert outcome_of(line).only("start")["resumed_at"] == said["step"] >= 3
    assert read_outputs(tmp_path) == undisturbed


def test_a_stop_without_a_state_says_so(place: Place, tmp_path: Path) -> None:
    found = until_step(place.train_line("--out", tmp_path / "out"), 3, signal.SIGTERM)
    assert (found.code, found.only("interrupted")["saved"]) == (143, False)
    assert "nothing is saved without --state" in found.err
    assert not (tmp_path / "out").exists()


def test_a_full_disk_keeps_the_state_saved_before(
    place: Place, undisturbed: Mapping[str, bytes], stopped: Path, tmp_path: Path
) -> None:
    before = (stopped / STATE).read_bytes()
    options = ("--state", stopped, "--save-every", 3)
    said = f"{stopped / STATE}: cannot write: File too large; free space or choose another place"
    with files_of_at_most(len(before) // 2):
        full = place.train(*options, restore_signals=True)  # a program that Python starts has SIGXFSZ as by default
        assert (full.code, full.err) == (11, f"phonograd-phone: {said}\n")
        assert full.events[-1] == full.events[-1] | {"event": "step", "step": 9}
    assert {path.name: path.read_bytes() for path in stopped.iterdir()} == {STATE: before}
    with files_of_at_most(len(before) // 2):
        assert place.train("--state", stopped, "--save-every", 1000, *outputs(tmp_path)).code == 11
    assert {path.name: path.read_bytes() for path in stopped.iterdir()} == {STATE: before}
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert place.train("--state", stopped, *outputs(tmp_path)).only("start")["resumed_at"] == 6
    assert read_outputs(tmp_path) == undisturbed


def test_the_phone_goes_on_with_pythons_state(
    place: Place, undisturbed: Mapping[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        state = tmp_path / str(code)
        with monkeypatch.context() as patch:
            signal_at_step(patch, 8, number)
            assert python(place, "--state", state, "--set", "training.save_every=3") == code
        assert step_of(state) == 8
    resumed = place.train("--state", state, *outputs(tmp_path))
    assert resumed.only("start")["resumed_at"] == 8
    assert read_outputs(tmp_path) == undisturbed


def test_a_state_holds_what_format_md_says(place: Place, stopped: Path) -> None:
    raw = (stopped / STATE).read_bytes()
    with TensorFile(stopped / STATE) as file:
        metadata, specs = dict(file.metadata), file.specs
    tensors = load_tensors(stopped / STATE)
    assert (metadata["format"], metadata["version"]) == ("phonograd-training-state", "1")
    assert (metadata["step"], metadata["dropout_steps"]) == ("6", "6")
    assert metadata["base_sha256"] == place.artifacts.weights_sha256
    assert metadata["training_model_sha256"] == place.artifacts.manifest.files["training_model.onnx"].sha256
    assert metadata["optimizer_model_sha256"] == place.artifacts.manifest.files["optimizer_model.onnx"].sha256
    assert (metadata["learning_rate"], metadata["seed"], metadata["precision"]) == ("0.5", "0", "fp32")
    whole = [spec.name for spec in MODEL.tensor_specs()[1:]]
    embedding = ["embedding.weight.rows", "embedding.weight.values"]
    recurrent = [f"recurrent.{n}" for n in range(4)]
    assert list(specs) == ["losses", "step_seconds", *embedding, *whole, *recurrent, "checksum"]
    assert specs["recurrent.3"].shape == (1, TRAINING.minibatch, MODEL.hidden)
    assert tensors["checksum"].tolist() == [zlib.crc32(raw[:-4])]
    base = load_tensors(place.artifacts.path("weights.safetensors"))["embedding.weight"]
    rows = tensors["embedding.weight.rows"]
    assert 0 < len(rows) < MODEL.vocabulary // 2
    assert (base[rows] != tensors["embedding.weight.values"]).any(axis=1).all()


def flip_bit(raw: bytes) -> bytes:
    """A bit of the data."""
    middle = (8 + struct.unpack("<Q", raw[:8])[0] + len(raw)) // 2
    return raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :]


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda raw: raw[: len(raw) // 2], "truncated"),
        (lambda raw: b"", "0 bytes"),
        (flip_bit, " expected, its bytes have "),
        (lambda raw: raw.replace(b'"dropout_steps":"6"', b'"dropout_steps":"7"'), " expected, its bytes have "),
        (lambda raw: raw[:-4] + bytes([raw[-4] ^ 1]) + raw[-3:], " expected, its bytes have "),
        (lambda raw: raw + b"\0", "followed by bytes that belong to no tensor"),
    ],
)
def test_a_damaged_state_is_refused(
    place: Place,
    undisturbed: Mapping[str, bytes],
    stopped: Path,
    tmp_path: Path,
    damage: Callable[[bytes], bytes],
    said: str,
) -> None:
    raw = (stopped / STATE).read_bytes()
    bad = damage(raw)
    assert bad != raw
    (stopped / STATE).write_bytes(bad)
    found = place.train("--state", stopped)
    assert (found.code, found.events) == (17, [])
    assert str(stopped / STATE) in found.err
    assert said in found.err
    assert (stopped / STATE).read_bytes() == bad
    restarted = place.train("--state", stopped, "--restart", *outputs(tmp_path))
    assert restarted.only("start")["resumed_at"] == 0
    assert read_outputs(tmp_path) == undisturbed


def reseal(raw: bytes) -> bytes:
    """Give it the checksum that fits: what a hostile writer would hand over."""
    return raw[:-4] + struct.pack("<I", zlib.crc32(raw[:-4]))


def test_a_state_that_is_whole_but_wrong_never_reaches_the_engine(place: Place, stopped: Path) -> None:
    raw = (stopped / STATE).read_bytes()
    with TensorFile(stopped / STATE) as file:
        rows = file.read("embedding.weight.rows")
    first = raw.index(rows.tobytes())
    end = first + 4 * len(rows)
    for changed, said in (
        (raw[: end - 4] + struct.pack("<I", MODEL.vocabulary) + raw[end:], "not rising row numbers"),
        (raw[: first + 4] + raw[first : first + 4] + raw[first + 8 :], "not rising row numbers"),
        (raw.replace(b'"version":"1"', b'"version":"3"'), "version 3, expected 1 or 2"),
        (raw.replace(b'"format":"phonograd-t', b'"format":"phonograd-T'), "not a training state"),
        (raw.replace(b'"step":"6"', b'"step":"5"'), "tensor losses expected"),
        (raw.replace(b'"recurrent.0"', b'"recurrent.9"'), "tensor recurrent.0 expected, found recurrent.9"),
        (raw.replace(b'"shape":[1,3,48]', b'"shape":[3,1,48]'), "or another shape"),
        (raw.replace(b'"dropout_steps":"6"', b'"dropout_steps":"x"'), "dropout_steps is not a count"),
    ):
        assert changed != raw
        (stopped / STATE).write_bytes(reseal(changed))
        found = place.train("--state", stopped)
        assert (found.code, found.events) == (17, [])
        assert said in found.err


def test_the_state_of_another_job_is_refused_and_kept(place: Place, stopped: Path, tmp_path: Path) -> None:
    raw = (stopped / STATE).read_bytes()
    other = tmp_path / "other.safetensors"
    shutil.copy(place.artifacts.path("weights.safetensors"), other)
    with other.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(struct.pack("<f", 0.125))
    line = ("train", place.artifacts.folder, "--state", stopped)
    used, *others = place.run("info").only("info")["cpu"]["kernels"]
    graphs = {}
    for name, setting in (("training_model", 0.2), ("optimizer_model", 2.0)):  # dropout, and the norm to clip by
        graphs[name] = Path(shutil.copytree(place.artifacts.folder, tmp_path / name))
        content = (graphs[name] / f"{name}.onnx").read_bytes()
        changed = content.replace(struct.pack("<f", setting), struct.pack("<f", setting * 1.5))
        assert changed != content
        (graphs[name] / f"{name}.onnx").write_bytes(changed)
    for arguments, name in (
        ((*line, "--user", place.user, "--lr", "0.25"), "learning_rate (0.25 expected, found 0.5)"),
        ((*line, "--user", place.user, "--seed", "4"), "seed (4 expected, found 0)"),
        ((*line, "--user", place.general), "stream_sha256"),
        ((*line, "--user", place.user, "--weights", other), "base_sha256"),
        (
            (*line, "--user", place.user, "--precision", "bf16-emulated"),
            "precision (bf16-emulated expected, found fp32)",
        ),
        *(
            (("train", folder, "--state", stopped, "--user", place.user), f"{name}_sha256 (")
            for name, folder in graphs.items()
        ),
        *(
            ((*line, "--user", place.user, "--kernels", other), f"kernels ({other} expected, found {used})")
            for other in others
        ),
    ):
        found = place.run(*arguments)
        assert (found.code, found.events) == (17, [])
        assert f"belongs to another job, which differs in {name}" in found.err
        assert "resume with the same inputs and options, or discard it with --restart" in found.err
        assert (stopped / STATE).read_bytes() == raw


def test_a_folder_in_use_is_waited_for_and_then_refused(place: Place, stopped: Path) -> None:
    raw = (stopped / STATE).read_bytes()
    descriptor = os.open(stopped, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    found = place.train("--state", stopped)
    assert (found.code, found.events) == (17, [])
    assert f"{stopped}: another process is training with this state" in found.err
    assert (stopped / STATE).read_bytes() == raw
    os.close(descriptor)
    assert place.train("--state", stopped).only("start")["resumed_at"] == 6


def test_what_a_killed_save_left_is_cleared(place: Place, stopped: Path) -> None:
    (stopped / f".{STATE}.0a0b0c0d.partial").write_bytes(b"half")
    (stopped / "another file").write_bytes(b"stays")
    assert place.train("--state", stopped).code == 0
    assert [path.name for path in stopped.iterdir()] == ["another file"]


def test_an_epoch_that_changes_no_row_is_resumed_too(place: Place, tmp_path: Path) -> None:
    """The rate moves no weight by a bit but the biases of 0: the state's rows are empty tensors."""
    line = place.train_line("--lr", "1e-30", *outputs(tmp_path))
    assert outcome_of(line).code == 0
    expected = read_outputs(tmp_path)
    line += ["--state", str(tmp_path / "state"), "--save-every", "2"]
    assert until_step(line, 7, signal.SIGKILL).code == -signal.SIGKILL
    assert load_tensors(tmp_path / "state" / STATE)["embedding.weight.rows"].shape == (0,)
    assert outcome_of(line).only("start")["resumed_at"] >= 6
    assert read_outputs(tmp_path) == expected
