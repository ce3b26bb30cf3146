import gc
import itertools
import json
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import UpdateError, WeightsError
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import (
    Array,
    TensorFile,
    load_tensors,
    save_tensors,
    write_tensor_file,
)
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.server_agg.aggregation.fold import FRACTION_BITS, HEADER, SUM_LIMIT, Fold
from tests.reference.codecs import read_parts
from tests.server_agg.trained_weights import TrainedWeights
from tests.server_agg.workshop import Workshop
from tests.support.waiting import PATIENCE_SECONDS

SHA = "ab" * 32
SHAPES = {"embedding": (7, 3), "kernel": (1, 8, 5), "bias": (11,)}


def tensors(rng: np.random.Generator) -> dict[str, Array]:
    """float32 of magnitudes 1e-6 to 8, both signs, all magnitudes alike."""
    return {
        name: (10.0 ** rng.uniform(-6, np.log10(8), shape) * rng.choice([-1, 1], shape)).astype(np.float32)
        for name, shape in SHAPES.items()
    }


@pytest.fixture(scope="module")
def base() -> Iterator[TensorFile]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.safetensors"
        save_tensors(path, tensors(np.random.default_rng(0)))
        with TensorFile(path) as file:
            yield file


def fold_of(base: TensorFile, updates: list[tuple[dict[str, Array], int]]) -> Fold:
    fold = Fold(base, SHA)
    for weights, weight in updates:
        fold.accumulate(TrainedWeights(weights), weight)
    return fold


def average(fold: Fold) -> dict[str, Array]:
    """What `finish` gives, as tensors."""
    flat = np.concatenate([np.empty(0, np.float32), *fold.finish()])
    ends = np.cumsum([spec.elements for spec in fold.base.specs.values()])
    parts = np.split(flat, ends[:-1])
    return {spec.name: part.reshape(spec.shape) for spec, part in zip(fold.base.specs.values(), parts, strict=True)}


def bits(fold: Fold) -> bytes:
    return b"".join(tile.tobytes() for tile in fold.finish())


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_order_and_any_split_give_the_same_bits(data: st.DataObject, base: TensorFile) -> None:
    weights = data.draw(st.lists(st.integers(1, 100_000), min_size=1, max_size=6), label="weights")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))
    updates = [(tensors(rng), weight) for weight in weights]
    straight = fold_of(base, updates)

    shuffled = data.draw(st.permutations(updates), label="order")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(updates)), max_size=3), label="cuts"))
    parts = [shuffled[a:b] for a, b in itertools.pairwise([0, *cuts, len(updates)])]
    folds = data.draw(st.permutations([fold_of(base, part) for part in parts]), label="merge order")
    merged = folds[0]
    for fold in folds[1:]:
        merged.merge(fold)

    assert (merged.updates, merged.total_weight) == (len(updates), sum(weights))
    assert bits(merged) == bits(straight)
    assert merged.to_bytes() == straight.to_bytes()


@settings(max_examples=60, deadline=None)
@given(weights=st.lists(st.integers(1, 100_000), min_size=1, max_size=6), seed=st.integers(0, 2**32))
def test_equals_the_float64_average(weights: list[int], seed: int, base: TensorFile) -> None:
    rng = np.random.default_rng(seed)
    updates = [(tensors(rng), weight) for weight in weights]
    found = average(fold_of(base, updates))
    for name in SHAPES:
        exact = sum(w * u[name].astype(np.float64) for u, w in updates) / sum(weights)
        error = np.abs(found[name] - exact)
        # Each element: half a fixed-point step, and float32's own rounding of the result.
        assert (error <= 2.0 ** -(FRACTION_BITS + 1) + np.spacing(np.abs(exact).astype(np.float32))).all()
        # Norm-wise (L2 over the tensor): within 1e-6 of the float64 average.
        assert np.linalg.norm(error) <= 1e-6 * np.linalg.norm(exact)


def test_an_empty_fold_is_the_base_to_the_bit(tmp_path: Path) -> None:
    odd = np.array([-0.0, 0.0, 1e-45, -1e-45, 3.4e38, -1.5], np.float32)
    save_tensors(tmp_path / "base", {"odd": odd})
    with TensorFile(tmp_path / "base") as base:
        assert bits(Fold(base, SHA)) == odd.tobytes()


def test_elements_that_no_update_moved_keep_their_bits(tmp_path: Path) -> None:
    odd = np.array([-0.0, 0.0, 1e-45, 1.0], np.float32)
    save_tensors(tmp_path / "base", {"odd": odd})
    apply_delta = np.array([-0.0, 0.0, 1e-45, 2.0], np.float32)
    with TensorFile(tmp_path / "base") as base:
        fold = fold_of(base, [({"odd": apply_delta}, 7)])
        assert bits(fold) == apply_delta.tobytes()


def test_rows_and_full_codec_fold_to_the_same_bits(workshop: Workshop) -> None:
    trained = workshop.trained(1)
    with TensorFile(workshop.base_path) as base:
        still = base.read("embedding.weight")
        still[[3, 4, 40]] = trained["embedding.weight"][[3, 4, 40]]
        trained["embedding.weight"] = still
        results = []
        for codec in ("full-f32", "rows-f32"):
            with UpdateFile(workshop.update(1, codec=codec, trained=trained)) as update:
                fold = Fold(base, workshop.base_sha256)
                fold.accumulate(update, 100)
                results.append(fold.to_bytes())
        assert results[0] == results[1]


def test_a_row_longer_than_a_tile_is_folded(tmp_path: Path) -> None:
    long = np.zeros(600_000, np.float32)
    save_tensors(tmp_path / "base", {"long": long})
    with TensorFile(tmp_path / "base") as base:

        class OneTile:
            def tiles(self, spec: object, base: object) -> Iterator[tuple[int, Array]]:
                yield 0, np.arange(600_000, dtype=np.float32) / 1024

        fold = Fold(base, SHA)
        fold.accumulate(OneTile(), 3)
        assert np.array_equal(average(fold)["long"], np.arange(600_000, dtype=np.float32) / 1024)


def test_finish_streams_into_a_tensor_file(base: TensorFile, tmp_path: Path) -> None:
    fold = fold_of(base, [(tensors(np.random.default_rng(1)), 5)])
    write_tensor_file(tmp_path / "model", base.specs.values(), fold.finish(), {})
    written = load_tensors(tmp_path / "model")
    assert all(np.array_equal(written[name], array) for name, array in average(fold).items())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_refuses_values_that_are_not_finite_and_changes_nothing(base: TensorFile, bad: float) -> None:
    good, evil = (tensors(np.random.default_rng(n)) for n in (1, 2))
    evil["bias"][9] = bad  # in the last tensor: the others have been seen by then
    fold = fold_of(base, [(good, 5)])
    before = fold.to_bytes()
    with pytest.raises(
        WeightsError, match=rf"tensor bias: element 9 differs from the base by {bad}, expected a finite"
    ):
        fold.accumulate(TrainedWeights(evil), 5)
    assert fold.to_bytes() == before


def test_refuses_what_would_overflow_and_changes_nothing(base: TensorFile) -> None:
    far = {name: np.full(shape, 2.0**28, np.float32) for name, shape in SHAPES.items()}
    fold = fold_of(base, [(far, 2)])
    before = fold.to_bytes()
    with pytest.raises(WeightsError, match=r"would reach \d+, the limit is 2\*\*62; an update is far from the base"):
        fold.accumulate(TrainedWeights(far), 2)
    with pytest.raises(WeightsError, match="would reach"):
        fold.merge(fold_of(base, [(far, 2)]))
    assert fold.to_bytes() == before


def test_refuses_a_total_weight_beyond_its_counter(base: TensorFile) -> None:
    same = {name: base.read(name) for name in SHAPES}
    fold = fold_of(base, [(same, SUM_LIMIT - 1)])
    with pytest.raises(WeightsError, match="claims too large a weight"):
        fold.accumulate(TrainedWeights(same), 1)
    assert (fold.updates, fold.total_weight) == (1, SUM_LIMIT - 1)


def test_refuses_weights_below_one(base: TensorFile) -> None:
    with pytest.raises(ValueError, match="weight is 0, expected at least 1"):
        Fold(base, SHA).accumulate(TrainedWeights(tensors(np.random.default_rng(1))), 0)


def test_merge_refuses_another_base(base: TensorFile) -> None:
    with pytest.raises(WeightsError, match="expected a fold of model abababababab…, found one of cdcdcdcdcdcd…"):
        Fold(base, SHA).merge(Fold(base, "cd" * 32))


def test_refuses_a_base_that_is_not_float32(tmp_path: Path) -> None:
    save_tensors(tmp_path / "base", {"half": np.zeros(3, np.float16)})
    with TensorFile(tmp_path / "base") as base, pytest.raises(WeightsError, match=r"half F16\[3\]: expected F32"):
        Fold(base, SHA)


def refused_by_check(workshop: Workshop, path: Path) -> str:
    refused = pytest.raises((WeightsError, UpdateError))
    with TensorFile(workshop.base_path) as base, refused as caught, UpdateFile(path) as update:
        update.check(base, workshop.base_sha256)
    return str(caught.value)


def test_refuses_another_base_model(workshop: Workshop, make_workshop: Callable[..., Workshop]) -> None:
    other = make_workshop(seed=5, name="other")
    message = refused_by_check(workshop, other.update(1))
    assert f"made from model {other.base_sha256[:12]}…, expected {workshop.base_sha256[:12]}…" in message


def test_refuses_another_shape(workshop: Workshop, make_workshop: Callable[..., Workshop]) -> None:
    wide = make_workshop(LanguageModelConfig("lstm", 51, 8, 8, 1), name="wide")
    path = rewritten(wide.update(1), workshop.base_sha256)
    assert "tensor embedding.weight F32[50, 8] expected, found embedding.weight F32[51, 8]" in refused_by_check(
        workshop, path
    )


def rewritten(path: Path, base_sha256: str) -> Path:
    """The update with another base hash in its metadata: a phone that lies."""
    parts, metadata = read_parts(path)
    save_tensors(path, parts, metadata | {"base_sha256": base_sha256}, checksum=True)
    return path


def test_refuses_a_truncated_update(workshop: Workshop) -> None:
    path = workshop.update(1)
    path.write_bytes(path.read_bytes()[:-5])
    assert "the file is truncated" in refused_by_check(workshop, path)


def test_bytes_round_trip(base: TensorFile) -> None:
    first, second = (tensors(np.random.default_rng(n)) for n in (1, 2))
    fold = fold_of(base, [(first, 5)])
    back = Fold.from_bytes(fold.to_bytes(), base, SHA)
    back.accumulate(TrainedWeights(second), 9)
    assert back.to_bytes() == fold_of(base, [(second, 9), (first, 5)]).to_bytes()


def damaged(data: bytes, offset: int, value: bytes) -> bytes:
    return data[:offset] + value + data[offset + len(value) :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", r"bytes for this model, found 0"),
        (lambda data: data[:-1], r"bytes for this model, found \d+"),
        (lambda data: data + b"\0", r"bytes for this model, found \d+"),
        (lambda data: damaged(data, 0, b"X"), "expected magic 504847464f4c4400, found 58"),
        (lambda data: damaged(data, 8, b"\x02"), "expected version 1, found 2"),
        (lambda data: damaged(data, 12, b"\x1f"), "expected fraction bits 32, found 31"),
        (lambda data: damaged(data, 16, b"\0"), "expected base model ababab.*, found 00ab"),
        (lambda data: damaged(data, 48, b"\0\0\0\0"), "expected tensor table .*, found 00000000"),
        (lambda data: damaged(data, 80, b"\xff" * 8), "contradict; the bytes are damaged"),
        (lambda data: damaged(data, 88, b"\xff" * 8), "contradict; the bytes are damaged"),
        (lambda data: damaged(data, 80, b"\0" * 8), "contradict; the bytes are damaged"),
        (lambda data: damaged(data, 96, b"\xff" * 8), "contradict; the bytes are damaged"),
        (lambda data: damaged(data, HEADER.size + 7, b"\x7f"), "a sum exceeds the bound"),
        (lambda data: damaged(data, HEADER.size, b"\0" * 7 + b"\x80"), "a sum exceeds the bound"),
    ],
)
def test_refuses_hostile_bytes(damage: Callable[[bytes], bytes], message: str, base: TensorFile) -> None:
    data = fold_of(base, [(tensors(np.random.default_rng(1)), 5)]).to_bytes()
    with pytest.raises(WeightsError, match=message):
        Fold.from_bytes(damage(data), base, SHA)


@settings(max_examples=100, deadline=None)
@given(noise=st.binary(max_size=HEADER.size + 8 * 72 + 8))
def test_random_bytes_are_never_a_fold(noise: bytes, base: TensorFile) -> None:
    with pytest.raises(WeightsError):
        Fold.from_bytes(noise, base, SHA)


def test_memory_allocated_does_not_grow_with_the_number_of_updates(make_workshop: Callable[..., Workshop]) -> None:
    config = LanguageModelConfig("lstm", 2000, 200, 200, 1)  # 1.1 M parameters: 4.5 MB of weights
    workshop = make_workshop(config)
    held, peaks = {}, {}
    with TensorFile(workshop.base_path) as base, UpdateFile(workshop.update(1)) as update:
        for count in (40, 120):  # the interpreter keeps some freed objects of the first ones
            gc.collect()
            tracemalloc.start()
            fold = Fold(base, workshop.base_sha256)
            for weight in range(1, count + 1):
                fold.accumulate(update, weight)
            held[count] = tracemalloc.get_traced_memory()[0]
            for _ in fold.finish():
                pass
            peaks[count] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    # Two peaks are not compared: how many tiles threads have in flight at once is chance, but has a bound.
    assert held[120] < held[40] + 2**16
    # Accumulators, the fold's two scratch tiles, and a few float32 tiles in flight.
    assert peaks[120] < 8 * config.parameters + 2 * 8 * 2**18 + 5 * 4 * 2**18


RSS = """
import json, sys
from pathlib import Path
from phonograd.device_runtime.base.system import memory_bytes
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.server_agg.aggregation.fold import Fold
base, update, sha, resident = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], []
with TensorFile(base) as file, UpdateFile(update) as source:
    fold = Fold(file, sha)
    for count in range(1, 121):
        fold.accumulate(source, count)
        resident.append(memory_bytes("VmRSS"))
print(json.dumps(resident))
"""


def test_resident_memory_does_not_grow_with_the_number_of_updates(make_workshop: Callable[..., Workshop]) -> None:
    workshop = make_workshop(LanguageModelConfig("lstm", 2000, 200, 200, 1))
    command: list[str | Path] = [
        sys.executable,
        "-c",
        RSS,
        workshop.base_path,
        workshop.update(1),
        workshop.base_sha256,
    ]
    resident = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS).stdout
    )
    assert len(resident) == 120
    assert max(resident) < resident[0] + 32 * 2**20  # threads' tiles and heaps are half of it; 120 updates are 540 MB
