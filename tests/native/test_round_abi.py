"""The round of the C ABI: the bits of `phonograd-phone train`, cancelling and resuming, and what is refused."""

import ctypes
import json
import math
import os
import shutil
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd import __version__
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.base.errors import (
    ArtifactsError,
    StateError,
    StorageError,
    TextError,
    TrainingError,
    UnsupportedError,
    UpdateError,
    UsageError,
    WeightsError,
)
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.c_abi import options_of as engine_options
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors
from tests.native.round_abi import Model, Options, RefusedError, Round, call, load, open_round, options_of
from tests.support.phone_command import MODEL, STEPS, TRAINING, Place, python_line

ROOT = Path(__file__).parents[2]
USAGE = UsageError.exit_code


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return load()


def finish(library: ctypes.CDLL, options: Options) -> dict[str, Any]:
    """Train a whole round; its report."""
    with open_round(library, options) as round:
        assert round.train()
        report: dict[str, Any] = json.loads(round.report())
        round.call("pg_round_discard_state")
    return report


def test_the_bits_are_those_of_the_phone_and_of_python(library: ctypes.CDLL, place: Place, tmp_path: Path) -> None:
    codec = "delta-int8"
    mixed = ("--rehearsal", place.general, "--user-share", 0.8, "--seed", 5, "--lr", 0.3, "--epochs", 2)
    mixed += ("--codec", codec, "--round", 9)
    theirs = place.train(*mixed, "--update", tmp_path / "phone").only("report")
    line = ("train", place.artifacts.folder, "--user", place.user, *mixed)
    assert run(phonograd, [*python_line(*line), "--update", str(tmp_path / "python")]) == 0
    settings = {"user_share": 0.8, "seed": 5, "learning_rate": 0.3, "epochs": 2, "codec": codec, "round": 9}
    ours = finish(library, options_of(place, rehearsal=place.general, update=tmp_path / "files", **settings))
    texts = {"user": place.user.read_bytes(), "rehearsal": place.general.read_bytes()}
    folder, update = (os.open(path, flags) for path, flags in _descriptors(place.artifacts.folder, tmp_path / "open"))
    os.write(update, bytes(10**6))  # is replaced
    given = {"folder": None, "folder_descriptor": folder, "update_descriptor": update}
    memory = finish(library, options_of(place, **given, **texts, **settings))
    os.close(folder)
    os.close(update)
    written = {name: (tmp_path / name).read_bytes() for name in ("phone", "python", "files", "open")}
    assert len(set(written.values())) == 1
    timed = {"step_seconds", "seconds", "seconds_per_step_median", "peak_rss_bytes", "load_seconds"}
    assert {key: ours[key] for key in set(theirs) - timed - {"update"}} == {
        key: theirs[key] for key in set(theirs) - timed - {"update"}
    }
    assert set(ours) == set(theirs)
    assert (ours["epochs"], ours["steps"]) == (2, 2 * math.ceil(ours["tokens"] / TRAINING.minibatch / TRAINING.bptt))
    assert 0 < ours["user_unknown_share"] < 0.3
    assert 0 < ours["general_unknown_share"] < 0.3
    assert len(ours["step_seconds"]) == ours["steps"]
    assert ours["update"] == theirs["update"] | {"path": str(tmp_path / "files")}
    assert memory["update"] | {"path": ours["update"]["path"]} == ours["update"]


def _descriptors(folder: Path, update: Path) -> list[tuple[Path, int]]:
    return [(folder, os.O_RDONLY | os.O_DIRECTORY), (update, os.O_RDWR | os.O_CREAT)]


def test_a_sampled_output_layer_by_a_phones_name(library: ctypes.CDLL, place: Place, tmp_path: Path) -> None:
    line = ("--phone", "p1", "--output-sample", 60, "--sample-seed", 11, "--out", tmp_path / "phone")
    theirs = place.train(*line).only("report")
    settings = {"seed": None, "phone": "p1", "output_sample": 60, "sample_seed": 11, "threads": 1}
    ours = finish(library, options_of(place, out=tmp_path / "ours", **settings))
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "phone").read_bytes()
    assert (ours["output_layer"], ours["seed"]) == (theirs["output_layer"], theirs["seed"])


def test_a_state_is_discarded_after_a_finished_round_alone(library: ctypes.CDLL, place: Place, tmp_path: Path) -> None:
    options = options_of(place, state=tmp_path / "state", save_every=1)
    saved = tmp_path / "state" / "state.safetensors"
    with open_round(library, options) as round:
        assert not round.train(lambda step: round.call("pg_round_cancel") if step == 3 else None)
    before = saved.read_bytes()

    def discard(round: Round) -> None:
        with pytest.raises(RefusedError, match="round: not finished, so its state is needed to resume it") as found:
            round.call("pg_round_discard_state")
        assert found.value.status == USAGE

    with open_round(library, options) as round:
        discard(round)
        assert saved.read_bytes() == before
        assert round.train(lambda step: discard(round) if step == 5 else None)
        assert round.heard == [(step, STEPS, step - 1) for step in range(4, STEPS + 1)]
        assert round.losses == json.loads(round.report())["losses"][3:]
        round.call("pg_round_discard_state")
    assert not saved.exists()


@pytest.mark.parametrize("thread", [False, True])
def test_a_cancelled_round_is_resumed_with_the_same_bits(
    library: ctypes.CDLL, place: Place, tmp_path: Path, thread: bool
) -> None:
    finish(library, options_of(place, update=tmp_path / "whole", codec="delta-int8"))
    options = options_of(place, update=tmp_path / "update", codec="delta-int8", state=tmp_path / "state")

    def cancel(round: Round) -> Callable[[int], None]:
        def each(step: int) -> None:
            if step == 8 and thread:
                with ThreadPoolExecutor(1) as other:
                    other.submit(round.call, "pg_round_cancel").result()
            elif step == 8:
                round.call("pg_round_cancel")

        return each

    with open_round(library, options) as round:
        assert not round.train(cancel(round))
        assert len(round.heard) == 8
        with pytest.raises(RefusedError, match="not finished, so there is no report"):
            round.report()
        with pytest.raises(RefusedError, match="trained already; open it again"):
            round.train()
    with open_round(library, options) as round:  # cancelled before it trains
        round.call("pg_round_cancel")
        assert not round.train()
        assert round.heard == []
    assert not (tmp_path / "update").exists()
    with open_round(library, options) as round:
        assert round.train()
        assert [step for step, _, _ in round.heard] == list(range(9, STEPS + 1))
        assert json.loads(round.report())["resumed_at"] == 8
    assert (tmp_path / "update").read_bytes() == (tmp_path / "whole").read_bytes()


def test_a_state_is_kept_until_it_is_discarded(library: ctypes.CDLL, place: Place, tmp_path: Path) -> None:
    state = tmp_path / "state" / "state.safetensors"
    options = options_of(place, update=tmp_path / "update", state=state.parent, save_every=15)
    with open_round(library, options) as round:
        assert round.train()
    first = (tmp_path / "update").read_bytes()
    (tmp_path / "update").unlink()
    with open_round(library, options) as round:  # as after a kill before the caller had kept the report
        assert round.train()
        assert len(round.heard) == 10
        assert state.exists()
        round.call("pg_round_discard_state")
        assert not state.exists()
    assert (tmp_path / "update").read_bytes() == first


def test_the_sizes_of_a_model_and_the_version(library: ctypes.CDLL, place: Place) -> None:
    assert library.pg_version().decode() == __version__
    tensors = load_tensors(place.artifacts.path(WEIGHTS))
    with open_round(library, options_of(place, output_sample=60, precision=2, threads=1)) as round:
        model = Model(size=ctypes.sizeof(Model))
        round.call("pg_round_model", ctypes.byref(model))
        words = json.loads(round.report())["output_layer"]["words"] if round.train() else None
    assert (model.V, model.E, model.H, model.layers) == (600, 32, 48, 2)
    assert (model.T, model.B) == (5, 3)
    assert (model.parameters, model.parameter_bytes) == (
        len(tensors),
        sum(4 * array.size for array in tensors.values()),
    )
    assert (model.output_words, model.precision, model.threads) == (words, 2, 1)
    assert model.output_words < model.V


def test_an_engine_by_descriptor_outlives_the_folders_path(library: ctypes.CDLL, place: Place, tmp_path: Path) -> None:
    shutil.copytree(place.artifacts.folder, tmp_path / "folder")
    folder = os.open(tmp_path / "folder", os.O_RDONLY | os.O_DIRECTORY)
    engine = ctypes.c_void_p()
    options = engine_options(BackendOptions())
    options.folder_descriptor = folder
    call(library, "pg_engine_open", None, None, ctypes.byref(options), ctypes.byref(engine))
    os.close(folder)
    (tmp_path / "folder").rename(tmp_path / "renamed")
    model = Model(size=ctypes.sizeof(Model))
    call(library, "pg_engine_model", engine, ctypes.byref(model))
    assert (model.V, model.output_words, model.kernels != b"") == (MODEL.vocabulary, MODEL.vocabulary, True)
    tokens, scores = np.array([[1]]), np.zeros((1, MODEL.vocabulary), np.float32)
    call(library, "pg_engine_logits", engine, tokens.ctypes.data, 1, 1, scores.ctypes.data)  # reads one more graph
    assert np.ptp(scores) > 0
    library.pg_engine_close(engine)
    options.folder_descriptor = 999
    with pytest.raises(RefusedError, match=r"folder: descriptor 999: Bad file descriptor") as found:
        call(library, "pg_engine_open", None, None, ctypes.byref(options), ctypes.byref(engine))
    assert found.value.status == USAGE


def damage(folder: Path) -> dict[str, Any]:
    (folder / "training_model.onnx").write_bytes(b"x" * (folder / "training_model.onnx").stat().st_size)
    return {}


def without_manifest(folder: Path) -> dict[str, Any]:
    (folder / "manifest.json").unlink()
    return {}


def not_a_number(folder: Path) -> dict[str, Any]:
    tensors = load_tensors(folder / WEIGHTS)
    next(iter(tensors.values())).flat[3] = np.nan
    save_tensors(folder / "nan", tensors)
    return {"weights": folder / "nan"}


def base_opened(flags: int) -> Callable[[Path], dict[str, Any]]:
    return lambda folder: {"update_descriptor": os.open(folder / WEIGHTS, flags)}


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"folder": None}, UsageError, "folder: NULL"),
        ({"folder_descriptor": 1}, UsageError, "`folder` and `folder_descriptor` exclude each other"),
        ({"folder": "/none"}, ArtifactsError, "no such folder"),
        (damage, ArtifactsError, "training_model.onnx"),
        (without_manifest, ArtifactsError, "manifest.json"),
        (not_a_number, WeightsError, "element 3"),
        ({"user": None}, UsageError, "`user`: no text; give the path of a file, or bytes"),
        ({"user": b"elsewhere " * 600, "update": "u"}, TextError, "at most 50 % expected of an update"),
        ({"max_unknown": 1.5}, UsageError, "`max_unknown` 1.5: expected a number above 0 and at most 1"),
        ({"user": b""}, TextError, "user text: no words found in 0 bytes"),
        ({"user": b"w1 w2"}, TextError, "15 tokens expected"),
        ({"user": b"w1\0"}, TextError, "user text: byte 2 is NUL"),
        ({"user": Path("/none")}, TextError, "/none: cannot be opened"),
        ({"rehearsal": b"w1 w2 w3"}, TextError, "rehearsal text: 600 tokens needed, found 4"),
        ({"user_share": -1.0}, UsageError, "`user_share` -1.0: expected a number above 0 and at most 1"),
        ({"user_share": float("nan")}, UsageError, "`user_share` NaN: expected a number above 0"),
        ({"learning_rate": -0.5}, UsageError, "`learning_rate` -0.5: expected a number above 0"),
        ({"learning_rate": 1e9}, TrainingError, "training diverged"),
        ({"duty": 1.5}, UsageError, "`duty` 1.5"),
        ({"epochs": -1}, UsageError, "`epochs` -1: expected a whole number from 1 to"),
        ({"save_every": -1}, UsageError, "`save_every` -1: expected"),
        ({"output_sample": -1}, UsageError, "`output_sample` -1: expected"),
        ({"round": 2**63}, UsageError, "`round` 9223372036854775808: expected a whole number from 1 to"),
        ({"seed": 2**63}, UsageError, "`seed` 9223372036854775808: expected a whole number from 0 to"),
        ({"phone": "p1"}, UsageError, "`seed` and `phone` exclude each other"),
        ({"phone": "p 1", "seed": None}, UsageError, "`phone`: expected a name of 1 to 64 characters"),
        ({"codec": "zip"}, UpdateError, "zip"),
        ({"threads": -1}, UsageError, "threads: -1; expected 1 to 256, or 0 for the default"),
        ({"threads": 257}, UsageError, "threads: 257; expected 1 to 256"),
        ({"precision": 3}, UsageError, "precision: 3"),
        ({"kernels": "none"}, UnsupportedError, "none"),
        ({"restart": 1}, UsageError, "`restart` needs `state`"),
        ({"steps": 2}, UsageError, "`steps` 2: expected 1, a single step with the gradient of the whole text"),
        ({"steps": 1, "epochs": 3}, UsageError, "is a single pass: `epochs` 1 expected, found 3"),
        ({"learning_rate": float("nan")}, UsageError, "`learning_rate` NaN: expected a number"),
        ({"update": "/proc/none/update"}, StorageError, "no folder /proc/none, and it can't be made"),
        ({"update": "u", "update_descriptor": 1}, UsageError, "`update` and `update_descriptor` exclude each other"),
        ({"update_descriptor": 999}, UsageError, "descriptor 999: a regular file that is open for writing expected"),
        (base_opened(os.O_RDONLY), UsageError, "found one that is open for reading alone"),
        (lambda folder: {"update_descriptor": os.pipe()[1]}, UsageError, "found a pipe, a device or a folder"),
        (base_opened(os.O_RDWR), UsageError, "weights.safetensors, an input; write to another file"),
        ({"state": "/proc/none/state"}, StorageError, "no folder /proc/none"),
    ],
)
def test_refusals(library: ctypes.CDLL, place: Place, tmp_path: Path, fields: Any, status: Any, said: str) -> None:
    shutil.copytree(place.artifacts.folder, tmp_path / "folder")
    given = fields(tmp_path / "folder") if callable(fields) else fields
    options = options_of(place, **({"folder": tmp_path / "folder"} | given))
    with pytest.raises(RefusedError) as found, open_round(library, options) as round:
        round.train()
    assert (found.value.status, said in str(found.value)) == (status.exit_code, True), str(found.value)
    if descriptor := given.get("update_descriptor", 0):
        assert descriptor < 3 or descriptor == 999 or os.close(descriptor) is None
    before = load_tensors(place.artifacts.path(WEIGHTS))
    for name, array in load_tensors(tmp_path / "folder" / WEIGHTS).items():
        np.testing.assert_array_equal(array, before[name])


def test_a_state_in_use_and_one_of_another_job(library: ctypes.CDLL, place: Place, tmp_path: Path) -> None:
    options = options_of(place, state=tmp_path / "state", save_every=3)
    with open_round(library, options) as round:
        with (
            pytest.raises(RefusedError, match="another process is training with this state") as found,
            open_round(library, options),
        ):
            pass
        assert found.value.status == StateError.exit_code
        assert not round.train(lambda step: round.call("pg_round_cancel") if step == 4 else None)
    other = options_of(place, state=tmp_path / "state", seed=1)
    with pytest.raises(RefusedError, match="seed") as found, open_round(library, other) as round:
        round.train()
    assert found.value.status == StateError.exit_code
    other.restart = 1
    assert finish(library, other)["resumed_at"] == 0


def test_the_sizes_of_structs(library: ctypes.CDLL, place: Place) -> None:
    """A caller of a later version has more fields; a library of this one takes them if they are zero."""
    handle = ctypes.c_void_p()
    for extra, status in ((bytes(16), 0), (bytes(15) + b"\1", USAGE)):
        options = options_of(place)
        options.size += 16
        longer = ctypes.create_string_buffer(bytes(options) + extra, options.size)
        assert library.pg_round_open(longer, ctypes.byref(handle)) == status
        if status == 0:
            model = ctypes.create_string_buffer(b"\xff" * (ctypes.sizeof(Model) + 8), ctypes.sizeof(Model) + 8)
            struct.pack_into("N", model, 0, len(model))
            call(library, "pg_round_model", handle, model)
            assert (model.raw[-8:], struct.unpack_from("Nq", model)) == (bytes(8), (len(model), MODEL.vocabulary))
            struct.pack_into("N", model, 0, ctypes.sizeof(Model) - 4)
            assert library.pg_round_model(handle, model) == USAGE
            library.pg_round_close(handle)
    assert b"which this version of phonograd does not know" in library.pg_last_error()
    first = Options.steps.offset  # what was appended to the first version's fields begins here
    options = options_of(place, steps=2)
    options.size = first  # a caller of the first version, beyond whose struct there may be anything
    assert library.pg_round_open(ctypes.byref(options), ctypes.byref(handle)) == 0
    library.pg_round_close(handle)
    for size in (0, first - 1):
        options = options_of(place)
        options.size = size
        assert library.pg_round_open(ctypes.byref(options), ctypes.byref(handle)) == USAGE
        assert f"`size` {size}: expected at least {first}".encode() in library.pg_last_error()
        assert handle.value is None


def test_rounds_of_several_threads_are_independent(library: ctypes.CDLL, place: Place, tmp_path: Path) -> None:
    def work(name: str) -> bytes:
        finish(library, options_of(place, update=tmp_path / name, threads=1))
        return (tmp_path / name).read_bytes()

    alone = work("alone")
    with ThreadPoolExecutor(3) as pool:
        assert set(pool.map(work, "abc")) == {alone}
