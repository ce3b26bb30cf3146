import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phonograd.device_runtime.base.errors import StorageError, WeightsError
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.update.update_file import DecodedUpdate
from phonograd.server_agg.aggregation.fold import FRACTION_BITS, HEADER, SUM_LIMIT, Fold
from tests.server_agg.rounds_of_updates import SHA, SHAPES, model
from tests.server_agg.trained_weights import TrainedWeights
from tests.server_agg.workshop import Workshop
from tests.support.waiting import PATIENCE_SECONDS


def tensors(rng: np.random.Generator) -> dict[str, Array]:
    """float32 of magnitudes 1e-6 to 8, both signs, all magnitudes alike."""
    return {
        name: (10.0 ** rng.uniform(-6, np.log10(8), shape) * rng.choice([-1, 1], shape)).astype(np.float32)
        for name, shape in SHAPES.items()
    }


@pytest.fixture(scope="module")
def base() -> Iterator[TensorFile]:
    with model(tensors(np.random.default_rng(0))) as file:
        yield file


def measure_first(fold: Fold, update: DecodedUpdate, weight: int) -> None:
    fold.accumulate(update, weight)


def in_one_pass(fold: Fold, update: DecodedUpdate, weight: int) -> None:
    reach = fold.take(update, weight)
    assert reach == max(update.norms("inf").values())


def fold_of(
    base: TensorFile,
    updates: list[tuple[dict[str, Array], int]],
    add: Callable[[Fold, DecodedUpdate, int], None] = measure_first,
) -> Fold:
    fold = Fold(base, SHA)
    for weights, weight in updates:
        add(fold, TrainedWeights(weights).on(base), weight)
    return fold


def average(fold: Fold) -> dict[str, Array]:
    """What `finish` gives, as tensors."""
    flat = np.concatenate([np.empty(0, np.float32), *fold.finish()])
    ends = np.cumsum([spec.elements for spec in fold.base.specs.values()])
    parts = np.split(flat, ends[:-1])
    return {spec.name: part.reshape(spec.shape) for spec, part in zip(fold.base.specs.values(), parts, strict=True)}


def bits(fold: Fold) -> bytes:
    return b"".join(tile.tobytes() for tile in fold.finish())


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_any_order_and_any_split_give_the_same_bits(data: st.DataObject, base: TensorFile) -> None:
    weights = data.draw(st.lists(st.integers(1, 100_000), min_size=1, max_size=6), label="weights")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32), label="seed"))
    updates = [(tensors(rng), weight) for weight in weights]
    straight = fold_of(base, updates)

    shuffled = data.draw(st.permutations(updates), label="order")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(updates)), max_size=3), label="cuts"))
    parts = [shuffled[a:b] for a, b in itertools.pairwise([0, *cuts, len(updates)])]
    folds = data.draw(st.permutations([fold_of(base, part, in_one_pass) for part in parts]), label="merge order")
    merged = folds[0]
    for fold in folds[1:]:
        merged.merge(fold)

    assert (merged.updates, merged.total_weight) == (len(updates), sum(weights))
    assert bits(merged) == bits(straight)
    assert merged.to_bytes() == straight.to_bytes()


@settings(max_examples=15, deadline=None)
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


def test_an_empty_fold_is_the_base_to_the_bit() -> None:
    odd = np.array([-0.0, 0.0, 1e-45, -1e-45, 3.4e38, -1.5], np.float32)
    with model({"odd": odd}) as base:
        assert bits(Fold(base, SHA)) == odd.tobytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({("bias", 9): np.nan}, "tensor bias: element 9 differs from the base by nan, expected a finite"),
        ({("bias", 9): -np.inf}, "tensor bias: element 9 differs from the base by -inf, expected a finite"),
        ({("bias", 9): 2.0**31}, r"expected differences from the base below 2\*\*30, found 2.14748e\+09"),
        (
            {(name, ...): 2.0**28 for name in SHAPES},
            r"would reach \d+, the limit is 2\*\*62; an update is far from the base",
        ),
    ],
)
@pytest.mark.parametrize("add", [measure_first, in_one_pass])
def test_refuses_an_update_and_changes_nothing(
    base: TensorFile,
    changes: dict[tuple[str, Any], float],
    message: str,
    add: Callable[[Fold, DecodedUpdate, int], None],
) -> None:
    """What is wrong with the last tensor is seen after the others."""
    evil = tensors(np.random.default_rng(2))
    for (name, element), value in changes.items():
        evil[name][element] = value
    fold = fold_of(base, [(tensors(np.random.default_rng(1)), 5)])
    before = fold.to_bytes()
    with pytest.raises(WeightsError, match=message):
        add(fold, TrainedWeights(evil).on(base), 5)
    assert fold.to_bytes() == before


def test_an_update_that_changes_while_it_is_added_makes_the_fold_unusable(
    base: TensorFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> float:
        raise StorageError("gone")

    fold = fold_of(base, [])
    monkeypatch.setattr(DecodedUpdate, "take", fail)
    with pytest.raises(StorageError, match="gone"):
        fold.take(TrainedWeights(tensors(np.random.default_rng(1))).on(base), 1)
    with pytest.raises(StorageError, match="could not be read to its end; fold the round's updates again"):
        fold.to_bytes()


def test_refuses_a_total_weight_beyond_its_counter(base: TensorFile) -> None:
    same = {name: base.read(name) for name in SHAPES}
    fold = fold_of(base, [(same, SUM_LIMIT - 1)])
    with pytest.raises(WeightsError, match="claims too large a weight"):
        fold.accumulate(TrainedWeights(same).on(base), 1)
    assert (fold.updates, fold.total_weight) == (1, SUM_LIMIT - 1)


def test_an_update_that_is_taken_out_again_was_never_there(base: TensorFile) -> None:
    """The same at weights where sums are beyond a double's whole numbers."""
    first, second = ((tensors(np.random.default_rng(n)), 10**n) for n in (6, 3))
    alone, scales = fold_of(base, [second]), dict.fromkeys(SHAPES, 0.3)
    fold = fold_of(base, [first, second])
    for weights, weight in (first, second):
        fold.accumulate(TrainedWeights(weights).on(base), weight, scales=scales)
    for weights, weight in (second, first):
        fold.accumulate(TrainedWeights(weights).on(base), -weight, scales=scales)
    fold.accumulate(TrainedWeights(first[0]).on(base), -first[1])
    assert fold.to_bytes() == alone.to_bytes()


def test_a_packed_fold_is_merged_like_itself(base: TensorFile, tmp_path: Path) -> None:
    first, second = ((tensors(np.random.default_rng(n)), n) for n in (1, 2))
    path = tmp_path / "sum"
    path.write_bytes(b"".join(fold_of(base, [second]).pack()))
    fold = fold_of(base, [first])
    with path.open("rb") as file, pytest.raises(WeightsError, match="2 updates expected, found 1"):
        fold.merge_packed(file, 2)
    assert fold.to_bytes() == fold_of(base, [first]).to_bytes()
    with path.open("rb") as file:
        fold.merge_packed(file, 1)
    assert fold.to_bytes() == fold_of(base, [second, first]).to_bytes()


def test_a_merge_that_would_overflow_changes_nothing(base: TensorFile) -> None:
    far = {name: np.full(shape, 2.0**28, np.float32) for name, shape in SHAPES.items()}
    fold, other = fold_of(base, [(far, 2)]), fold_of(base, [(far, 2)])
    with pytest.raises(WeightsError, match="would reach"):
        fold.merge(other)
    assert fold.to_bytes() == other.to_bytes()


def test_refuses_another_base_and_one_that_is_not_float32(base: TensorFile) -> None:
    with pytest.raises(WeightsError, match="expected a fold of model abababababab…, found one of cdcdcdcdcdcd…"):
        Fold(base, SHA).merge(Fold(base, "cd" * 32))
    with (
        model({"half": np.zeros(3, np.float16)}) as half,
        pytest.raises(WeightsError, match=r"half F16\[3\]: expected F32"),
    ):
        Fold(half, SHA)


def test_bytes_round_trip(base: TensorFile) -> None:
    first, second = (tensors(np.random.default_rng(n)) for n in (1, 2))
    fold = fold_of(base, [(first, 5)])
    back = Fold.from_bytes(fold.to_bytes(), base, SHA)
    back.accumulate(TrainedWeights(second).on(base), 9)
    assert back.to_bytes() == fold_of(base, [(second, 9), (first, 5)]).to_bytes()


def overwrite(data: bytes, offset: int, value: bytes) -> bytes:
    return data[:offset] + value + data[offset + len(value) :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", r"bytes for this model, found 0"),
        (lambda data: data[:-1], r"bytes for this model, found \d+"),
        (lambda data: data + b"\0", r"bytes for this model, found \d+"),
        (lambda data: overwrite(data, 0, b"X"), "expected magic 504847464f4c4400, found 58"),
        (lambda data: overwrite(data, 8, b"\x02"), "expected version 1, found 2"),
        (lambda data: overwrite(data, 12, b"\x1f"), "expected fraction bits 32, found 31"),
        (lambda data: overwrite(data, 16, b"\0"), "expected base model ababab.*, found 00ab"),
        (lambda data: overwrite(data, 48, b"\0\0\0\0"), "expected tensor table .*, found 00000000"),
        (lambda data: overwrite(data, 80, b"\xff" * 8), "contradict; the bytes are damaged"),
        (lambda data: overwrite(data, 88, b"\xff" * 8), "contradict; the bytes are damaged"),
        (lambda data: overwrite(data, 80, b"\0" * 8), "contradict; the bytes are damaged"),
        (lambda data: overwrite(data, 96, b"\xff" * 8), "contradict; the bytes are damaged"),
        (lambda data: overwrite(data, HEADER.size + 7, b"\x7f"), "a sum exceeds the bound"),
        (lambda data: overwrite(data, HEADER.size, b"\0" * 7 + b"\x80"), "a sum exceeds the bound"),
    ],
)
def test_refuses_hostile_bytes(damage: Callable[[bytes], bytes], message: str, base: TensorFile) -> None:
    data = fold_of(base, [(tensors(np.random.default_rng(1)), 5)]).to_bytes()
    with pytest.raises(WeightsError, match=message):
        Fold.from_bytes(damage(data), base, SHA)


RSS = """
import json, sys
from pathlib import Path
from phonograd.device_runtime.base.system import memory_bytes
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateFile
from phonograd.server_agg.aggregation.fold import Fold
base, update, sha, resident = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], []
with TensorFile(base) as file, UpdateFile(update) as source:
    fold = Fold(file, sha)
    for count in range(1, 121):
        with DecodedUpdate(source, file) as update:
            fold.accumulate(update, count)
        resident.append(memory_bytes("VmRSS"))
print(json.dumps(resident))
"""


@pytest.mark.long
def test_resident_memory_does_not_grow_with_the_number_of_updates(make_workshop: Callable[..., Workshop]) -> None:
    workshop = make_workshop(LanguageModelConfig("lstm", 2000, 200, 200, 1))
    command = [sys.executable, "-c", RSS, workshop.base_path, workshop.update(1), workshop.base_sha256]
    ended = subprocess.run([*map(str, command)], check=True, capture_output=True, timeout=PATIENCE_SECONDS)
    resident = json.loads(ended.stdout)
    assert len(resident) == 120
    assert max(resident) < resident[0] + 32 * 2**20  # threads' tiles and heaps are half of it; 120 updates are 540 MB
