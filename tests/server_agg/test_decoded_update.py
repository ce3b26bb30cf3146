"""Updates decoded, measured and added by the native library, against a slow writing of the same in NumPy."""

import contextlib
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import UpdateError, UsageError, WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, save_tensors
from phonograd.device_runtime.update import update_file
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.update_file import (
    HELD_ELEMENTS,
    DecodedUpdate,
    UpdateFile,
    UpdateInfo,
    write_update,
)
from tests.server_agg.rounds_of_updates import model
from tests.server_agg.trained_weights import TrainedWeights

# Several tiles of 16384 weights; rows that no tile and no vector of eight ends with; one row longer than a tile.
SHAPES = {"table": (300, 131), "kernel": (1, 40, 9), "long": (40_003,), "vector": (9,), "scalar": (), "empty": (0, 4)}
SHA = "ab" * 32
every_codec = pytest.mark.parametrize("codec", CODECS)
held_or_not = pytest.mark.parametrize("held", [0, HELD_ELEMENTS])


def weights_of(seed: int, scale: float = 1.0) -> dict[str, Array]:
    """Some of them 0, some -0.0, so that signs of zero count."""
    random = np.random.default_rng(seed)
    made = {name: (scale * random.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}
    made["table"][::7] = np.float32(-0.0)
    return made


def move(base: TensorFile, seed: int, scale: float = 0.01) -> dict[str, Array]:
    """Each third row of the table, and all else."""
    random = np.random.default_rng(100 + seed)
    trained = {name: base.read(name) for name in base.specs}
    for name, array in trained.items():
        part = array[::3] if name == "table" else array
        part[...] += (scale * random.standard_normal(part.shape)).astype(np.float32)
    return trained


def write(path: Path, base: TensorFile, codec: str, seed: int = 1) -> Path:
    write_update(path, base, move(base, seed), UpdateInfo(SHA, 1, 100, codec, seed))
    return path


def no_sums(base: TensorFile) -> dict[str, Array]:
    return {name: np.zeros(spec.elements, np.int64) for name, spec in base.specs.items()}


def slow_deltas(trained: Mapping[str, Array], base: TensorFile) -> dict[str, list[float]]:
    return {
        name: [float(new) - float(old) for new, old in zip(array.ravel(), base.read(name).ravel(), strict=True)]
        for name, array in trained.items()
    }


def slow_sums(
    deltas: Mapping[str, list[float]], steps: float, weight: int, scales: Mapping[str, float] | None = None
) -> dict[str, list[int]]:
    if scales is None:
        return {name: [weight * round(delta * steps) for delta in those] for name, those in deltas.items()}
    return {
        name: [weight * math.trunc(delta * (steps * scales[name])) for delta in those] for name, those in deltas.items()
    }


def as_lists(sums: Mapping[str, Array]) -> dict[str, list[int]]:
    return {name: array.tolist() for name, array in sums.items()}


@held_or_not
@every_codec
def test_sums_and_norms_are_those_of_the_slow_way(
    codec: str, held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(update_file, "HELD_ELEMENTS", held)
    scales = {name: 1 / (3 + number) for number, name in enumerate(SHAPES)}
    with model(weights_of(0)) as base, UpdateFile(write(tmp_path / "update", base, codec)) as update:
        deltas = slow_deltas(update.weights(base), base)
        assert sum(map(bool, deltas["table"])) > 1000
        with DecodedUpdate(update, base) as decoded:
            norms = {norm: decoded.norms(norm) for norm in update_file.NORMS}
            near, towards_zero = no_sums(base), no_sums(base)
            for _ in range(2):
                decoded.add(near, 2.0**32, 1234)
            decoded.add(towards_zero, 2.0**44, 1, scales)
    expected = slow_sums(deltas, 2.0**32, 2 * 1234)
    assert as_lists(near) == expected
    assert as_lists(towards_zero) == slow_sums(deltas, 2.0**44, 1, scales)
    for name, those in deltas.items():
        assert norms["inf"][name] == max(map(abs, those), default=0)
        assert norms["1"][name] == pytest.approx(math.fsum(map(abs, those)), rel=1e-13)
        assert norms["2"][name] == pytest.approx(math.hypot(*those), rel=1e-13)


def test_steps_round_half_to_even_and_large_ones_are_exact(tmp_path: Path) -> None:
    """Deltas of eighths lie half way between steps of 2**-2; at 2**58, integers have more than 50 bits."""
    eighths = np.arange(-40, 40, dtype=np.float32) / 8
    base = {"w": np.zeros(80, np.float32)}
    with model(base) as file, TrainedWeights({"w": eighths}).on(file) as decoded:
        deltas = {"w": eighths.tolist()}
        for steps, weight, scales in ((4.0, 3, None), (4.0, 3, {"w": 0.5}), (2.0**58, 1, None), (2.0**49, 999, None)):
            sums = no_sums(file)
            decoded.add(sums, steps, weight, scales)
            assert as_lists(sums) == slow_sums(deltas, steps, weight, scales)


@every_codec
def test_one_pass_measures_and_adds_the_same(codec: str, tmp_path: Path) -> None:
    with model(weights_of(0)) as base, UpdateFile(write(tmp_path / "update", base, codec)) as update:
        first, then = no_sums(base), no_sums(base)
        with DecodedUpdate(update, base) as decoded:
            reach = decoded.take(first, 2.0**32, 1234, 2.0**30)
            norms = [decoded.norms(norm) for norm in update_file.NORMS]
            decoded.add(first, 2.0**32, 1234)
        with DecodedUpdate(update, base) as decoded:
            assert [decoded.norms(norm) for norm in update_file.NORMS] == norms
            for _ in range(2):
                decoded.add(then, 2.0**32, 1234)
    assert reach == max(norms[0].values()) > 0
    assert as_lists(first) == as_lists(then)


def any_sums(base: TensorFile) -> dict[str, Array]:
    """Near the ends of int64, where whatever is added for a while wraps around."""
    random = np.random.default_rng(9)
    ends = np.iinfo(np.int64)
    return {name: random.choice([ends.min, ends.max], spec.elements) for name, spec in base.specs.items()}


@held_or_not
@pytest.mark.parametrize(
    ("name", "element", "bad"),
    [
        ("table", 0, np.nan),
        ("table", 20_000, np.nan),
        ("long", 40_002, np.inf),
        ("vector", 8, np.inf),
        ("scalar", 0, -np.inf),
        ("table", 0, -(2.0**100)),
        ("long", 20_000, -(2.0**100)),
        ("scalar", 0, -(2.0**100)),
    ],
)
def test_a_delta_that_is_not_finite_or_past_the_limit_leaves_no_trace(
    name: str, element: int, bad: float, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: what was decoded until the first refusal is not taken for all."""
    monkeypatch.setattr(update_file, "HELD_ELEMENTS", held)
    refused = pytest.raises(WeightsError, match=rf"tensor {name}: element {element} differs from the base by {bad}")
    with model(weights_of(0)) as base:
        evil, sums = move(base, 1), any_sums(base)
        evil[name].reshape(-1)[element] = np.float32(bad)
        before = as_lists(sums)
        with TrainedWeights(evil).on(base) as measured, TrainedWeights(evil).on(base) as taken:
            for _ in range(2):
                if np.isfinite(bad):
                    assert taken.take(sums, 2.0**32, 3, 2.0**30) == pytest.approx(-bad)
                    assert measured.norms("inf")[name] == pytest.approx(-bad)
                    continue
                with refused:
                    measured.norms()
                with refused:
                    taken.take(sums, 2.0**32, 3, 2.0**30)
        assert as_lists(sums) == before


def test_one_pass_that_is_cut_short_leaves_no_trace_or_says_so(tmp_path: Path) -> None:
    """The file ends within a tensor: its first ones are added and taken back. Or what was added can't be read again."""
    with model(weights_of(0)) as base:
        path, sums = write(tmp_path / "update", base, "full-f32"), any_sums(base)
        before = as_lists(sums)
        with TensorFile(path) as parts:
            end = parts.place_of("vector", 0)
        with UpdateFile(path) as update, DecodedUpdate(update, base) as decoded:
            with path.open("r+b") as file:
                file.truncate(end)
            with pytest.raises(UpdateError, match="bytes short"):
                decoded.take(sums, 2.0**32, 3, 2.0**30)
    assert as_lists(sums) == before


@held_or_not
@every_codec
def test_a_late_update_counts_on_the_new_model(
    codec: str, held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """new + (trained - its base) is rounded to float32 before the delta is taken."""
    monkeypatch.setattr(update_file, "HELD_ELEMENTS", held)
    with model(weights_of(0)) as its_base, model(weights_of(5)) as new:
        with UpdateFile(write(tmp_path / "update", its_base, codec)) as update:
            sent = {name: np.zeros(spec.elements, bool) for name, spec in its_base.specs.items()}
            trained = {}
            for name, spec in its_base.specs.items():
                for start, values in update.tiles(spec, its_base):
                    sent[name][start : start + len(values)] = True
                old, onto = its_base.read(name).astype(np.float64), new.read(name).astype(np.float64)
                weights = (update.weights(its_base)[name] - old + onto).astype(np.float32)
                trained[name] = np.where(sent[name].reshape(spec.shape), weights, new.read(name))
            with DecodedUpdate(update, its_base, new) as decoded:
                decoded.norms()
                sums = no_sums(new)
                decoded.add(sums, 2.0**32, 7)
                tiles = {name: list(decoded.tiles(spec)) for name, spec in new.specs.items()}
        assert as_lists(sums) == slow_sums(slow_deltas(trained, new), 2.0**32, 7)
    for name, found in tiles.items():
        for start, values in found:
            assert values.tobytes() == trained[name].ravel()[start : start + len(values)].tobytes()


@pytest.mark.parametrize("room", [0, -1])
def test_an_update_is_decoded_once_if_it_is_small(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """room: elements to spare once it is held. Its file is cut after the first pass: only a second one would notice."""
    with model(weights_of(0)) as base:
        monkeypatch.setattr(update_file, "HELD_ELEMENTS", sum(spec.elements for spec in base.specs.values()) + room)
        path, sums = write(tmp_path / "update", base, "full-f32"), no_sums(base)
        with UpdateFile(path) as update, DecodedUpdate(update, base) as decoded:
            decoded.norms()
            with path.open("r+b") as file:
                file.truncate(1000)
            with pytest.raises(UpdateError, match="bytes short") if room < 0 else contextlib.nullcontext():
                decoded.add(sums, 2.0**32, 1)


def test_rows_that_were_not_sent_are_not_touched(tmp_path: Path) -> None:
    """Neither in the base nor in the sums: the base's file is cut behind the only row that was sent."""
    with model({"table": np.zeros((5000, 8), np.float32)}) as base:
        trained = base.read("table")
        trained[3] = 1.0
        path = tmp_path / "update"
        write_update(path, base, {"table": trained}, UpdateInfo(SHA, 1, 1, "rows-f32", 0))
        with UpdateFile(path) as update, DecodedUpdate(update, base) as decoded:
            with base.path.open("r+b") as file:
                file.truncate(base.place_of("table", 4 * 8))
            sums = no_sums(base)
            decoded.add(sums, 2.0**32, 1)
    assert np.flatnonzero(sums["table"]).tolist() == list(range(3 * 8, 4 * 8))


def test_parts_and_models_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with (
        model(weights_of(0)) as base,
        model({"table": np.zeros((2, 2), np.float32)}) as other,
        UpdateFile(write(tmp_path / "update", base, "delta-int8")) as update,
    ):
        with pytest.raises(UpdateError, match="expected"):
            DecodedUpdate(update, other)
        with pytest.raises(UpdateError, match="tensor more is not part of the model"):
            TrainedWeights(weights_of(0) | {"more": np.zeros(1, np.float32)}).on(base)
        with pytest.raises(WeightsError, match=r"tensor table F32\[300, 131\] expected, found table F32\[2, 2\]"):
            DecodedUpdate(update, base, other)
        with DecodedUpdate(update, base) as decoded, pytest.raises(UsageError, match="weight: 0; expected at least 1"):
            decoded.add(no_sums(base), 1.0, 0)
        with DecodedUpdate(update, base) as decoded:
            for weight in (0, -1):
                with pytest.raises(UsageError, match="weight: expected at least 1"):
                    decoded.take(no_sums(base), 1.0, weight, 1.0)
            with pytest.raises(UsageError, match=r"limit: expected at most 2\^62 / steps_per_unit"):
                decoded.take(no_sums(base), 2.0**32, 1, 2.0**31)


@pytest.mark.parametrize("codec", [name for name in CODECS if name.startswith("delta-")])
def test_a_weight_that_did_not_move_in_a_row_that_did_keeps_its_sign(codec: str, tmp_path: Path) -> None:
    """-0.0 + 0.0 would be 0.0."""
    with model({"w": np.array([[-0.0, 1.0]], np.float32)}) as base:
        trained = {"w": np.array([[-0.0, 2.0]], np.float32)}
        write_update(tmp_path / "update", base, trained, UpdateInfo(SHA, 1, 1, codec, 0))
        with UpdateFile(tmp_path / "update") as update:
            assert np.signbit(update.weights(base)["w"]).tolist() == [[True, False]]


def test_frozen_tensors_have_no_deltas(tmp_path: Path) -> None:
    save_tensors(tmp_path / "model", weights_of(0), {"frozen": "table"})
    with (
        TensorFile(tmp_path / "model") as base,
        UpdateFile(write(tmp_path / "update", base, "rot-q4")) as update,
        DecodedUpdate(update, base) as decoded,
    ):
        sums = no_sums(base)
        norms = decoded.norms()
        decoded.add(sums, 2.0**32, 1)
    assert (norms["table"], sums["table"].any()) == (0, False)
    assert norms["long"] > 0
    assert sums["long"].any()


def test_threads_decode_one_update_at_once(tmp_path: Path) -> None:
    """Each with a handle of its own; all get the same bits."""
    with model(weights_of(0)) as base, UpdateFile(write(tmp_path / "update", base, "top-rows")) as update:

        def work(_: int) -> tuple[dict[str, float], dict[str, list[int]]]:
            sums = no_sums(base)
            with DecodedUpdate(update, base) as decoded:
                norms = decoded.norms()
                decoded.add(sums, 2.0**32, 5)
            return norms, as_lists(sums)

        with ThreadPoolExecutor(4) as threads:
            results = list(threads.map(work, range(16)))
    assert all(result == results[0] for result in results)
