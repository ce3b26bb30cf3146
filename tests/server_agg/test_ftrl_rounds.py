"""Rounds of dp-ftrl: the noise that models carry, its buffers, and a run whose terms nobody can change."""

import contextlib
import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, load_tensors, save_tensors
from phonograd.server_agg.aggregation.correlation.run import RUN, begin_run
from phonograd.server_agg.aggregation.correlation.sensitivity import sensitivity
from phonograd.server_agg.aggregation.model_writer import model_metadata, write_model
from phonograd.server_agg.aggregation.privacy.ftrl.buffers import CorrelatedNoise, apply_seal, seal_of
from phonograd.server_agg.aggregation.privacy.noise import NoiseStream
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategies import strategy_of
from phonograd.server_agg.aggregation.strategy import RoundContext
from tests.server_agg.ftrl_runs import matrix
from tests.server_agg.rounds_of_updates import SHA, Round, deltas_of, length, model, random_weights, trained
from tests.server_agg.trained_weights import TrainedWeights

SETTINGS = StrategySettings(
    strategy="dp-ftrl",
    planned_rounds=6,
    min_separation=2,
    max_participations=2,
    noise_buffers=3,
    noise_multiplier=0.7,
    clip_norm=0.5,
)
SHAPES = {"matrix": (250, 300), "vector": (500,)}
PHONES = 4


def key(number: int) -> bytes:
    return bytes([number]) * 32


class Rounds:
    """A run of rounds without updates, whose models and buffers are files."""

    sealed = False

    def __init__(self, folder: Path, settings: StrategySettings = SETTINGS, metadata: dict[str, str] | None = None):
        self.folder = folder
        self.settings = settings
        save_tensors(self.model(0), random_weights(0, 1.0, SHAPES), metadata)

    def model(self, number: int) -> Path:
        return self.folder / f"{number}.safetensors"

    def buffers(self, number: int) -> Path:
        return self.folder / f"{number}.buffers.safetensors"

    def close(self, number: int, base: int | None = None, buffers: int | None = None) -> None:
        """Close a round on the model and the buffers after other ones, by default those after the round before."""
        base = number - 1 if base is None else base
        kept = self.buffers(base if buffers is None else buffers)
        with contextlib.ExitStack() as resources:
            weights = resources.enter_context(TensorFile(self.model(base)))
            old = resources.enter_context(TensorFile(kept)) if kept.exists() else None
            seals = (seal_of(key(base)), seal_of(key(number))) if self.sealed else (None, None)
            context = RoundContext(number, key(number), 0, PHONES, old, *seals)
            sha256 = sha256_of_file(self.model(base))
            aggregation = strategy_of(self.settings).begin(weights, sha256, context)
            metadata = model_metadata(number, sha256)
            aggregation.write_buffers(self.buffers(number), metadata)
            paths = self.model(number), self.folder / "none"
            write_model(self.settings, aggregation, [], weights, None, *paths, metadata)

    def move_of(self, number: int) -> Array:
        """How far a round moved the model, all tensors in a row."""
        before, now = load_tensors(self.model(number - 1)), load_tensors(self.model(number))
        return np.concatenate([(now[name].astype(np.float64) - before[name]).ravel() for name in SHAPES])


def normals(number: int) -> Array:
    stream = NoiseStream(key(number), number, "ftrl")
    return np.concatenate([stream.normals(name, 0, math.prod(shape)) for name, shape in SHAPES.items()])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    rounds = Rounds(tmp_path_factory.mktemp("run"))
    for number in range(1, 7):
        rounds.close(number)
    return rounds


def test_the_models_of_a_run_carry_the_noise_of_the_matrix(whole: Rounds) -> None:
    run = begin_run(SETTINGS)
    z = np.stack([normals(number) for number in range(1, 7)])
    column = run.blt.coefficients(6)
    std = 0.7 * 0.5 * sensitivity(column, 2, 2)
    expected = np.linalg.solve(matrix(column), z) * std / PHONES
    for number in range(1, 7):
        np.testing.assert_allclose(whole.move_of(number), expected[number - 1], atol=2e-6)
    total = sum(whole.move_of(number) for number in range(1, 7)).std()
    assert total < 0.8 * std / PHONES * math.sqrt(6)  # later noise took back what earlier noise had added


def test_each_model_says_the_terms_of_its_run(whole: Rounds) -> None:
    texts = set()
    for number in range(1, 7):
        with TensorFile(whole.model(number)) as file:
            texts.add(file.metadata[RUN])
    (text,) = texts
    terms = json.loads(text)
    for name in ("planned_rounds", "min_separation", "max_participations", "noise_multiplier", "clip_norm"):
        assert terms[name] == getattr(SETTINGS, name)
    assert (tuple(terms["decays"]), tuple(terms["scales"])) == (begin_run(SETTINGS).decays, begin_run(SETTINGS).scales)


def test_rewound_or_missing_buffers_are_refused(whole: Rounds, tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"2\.buffers\.safetensors: expected round 3, that of .*, found 2; restore"):
        whole.close(4, buffers=2)
    with pytest.raises(WeightsError, match=r"3\.safetensors: the noise buffers of its round expected, found none"):
        whole.close(4, buffers=99)
    other = Rounds(tmp_path)  # the same round of another run
    save_tensors(other.model(0), random_weights(1, 1.0, SHAPES))
    for number in (1, 2, 3):
        other.close(number)
    whole.buffers(98).write_bytes(other.buffers(3).read_bytes())
    with pytest.raises(WeightsError, match=r"expected parent_sha256 \w+, that of .*, found"):
        whole.close(4, buffers=98)
    other.buffers(0).write_bytes(other.buffers(1).read_bytes())
    with pytest.raises(WeightsError, match="expected dp_ftrl none"):
        other.close(1)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("planned_rounds", 7),
        ("min_separation", 1),
        ("max_participations", 3),
        ("noise_buffers", 2),
        ("noise_multiplier", 0.6),
        ("clip_norm", 0.6),
    ],
)
def test_the_terms_of_a_run_are_fixed(whole: Rounds, field: str, value: float) -> None:
    changed = Rounds.__new__(Rounds)
    changed.folder, changed.settings = whole.folder, structs.replace(SETTINGS, **{field: value})
    with pytest.raises(WeightsError, match=rf"`{field}` is {value}, expected .*, with which the run of dp-ftrl began"):
        changed.close(4)


def test_a_damaged_run_is_refused(tmp_path: Path) -> None:
    for text in ("{", '{"planned_rounds": 6}', begin_run(SETTINGS).text.replace('"decays":[0.', '"decays":[7.')):
        rounds = Rounds(tmp_path, metadata={RUN: text})
        with pytest.raises(WeightsError, match=r"0\.safetensors: dp_ftrl: .*; restore the file"):
            rounds.close(1)


@contextlib.contextmanager
def noise_of(rounds: Rounds, number: int) -> Iterator[CorrelatedNoise]:
    with TensorFile(rounds.model(number)) as base, TensorFile(rounds.buffers(number)) as buffers:
        stream, seal = NoiseStream(key(number + 1), number + 1, "ftrl"), seal_of(key(number)) if rounds.sealed else None
        yield CorrelatedNoise(SETTINGS, base, stream, RoundContext(number + 1, buffers=buffers, seal=seal))


def sealed_run(folder: Path) -> Rounds:
    rounds = Rounds(folder)
    rounds.sealed = True
    for number in (1, 2):
        rounds.close(number)
    return rounds


def test_sealed_buffers_make_the_same_models_and_tell_nothing_without_the_seal(whole: Rounds, tmp_path: Path) -> None:
    rounds = sealed_run(tmp_path)
    for number in (1, 2):
        assert rounds.model(number).read_bytes() == whole.model(number).read_bytes()
        for name, open_ in load_tensors(whole.buffers(number)).items():
            closed = load_tensors(rounds.buffers(number))[name]
            ones = np.unpackbits((closed.view(np.uint64) ^ open_.view(np.uint64)).view(np.uint8)).mean()
            assert ones == pytest.approx(0.5, abs=5 / math.sqrt(64 * closed.size) / 2)  # 5 standard errors
            for seal, same in ((seal_of(key(number)), True), (seal_of(key(3 - number)), False)):
                tensor = name.removesuffix(".buffers")
                assert (apply_seal(closed.copy(), seal, tensor, 0).tobytes() == open_.tobytes()) == same


@pytest.mark.parametrize("seal", [False, True])
def test_noise_depends_on_the_position_and_not_on_how_it_is_cut(whole: Rounds, seal: bool, tmp_path: Path) -> None:
    if seal:
        whole = sealed_run(tmp_path)
    with noise_of(whole, 2) as noise:
        row = noise.normals("matrix", 0, 75_000)
        for start, stop in ((0, 1), (32_767, 32_769), (7, 75_000)):
            assert noise.normals("matrix", start, stop).tobytes() == row[start:stop].tobytes()


def test_one_phone_moves_the_sum_by_the_bound_and_the_divisor_is_public() -> None:
    settings = structs.replace(SETTINGS, noise_multiplier=0.0, mean_weight=0.5)
    with model() as base:
        far = trained(base, 1, 3.0)
        for others in (0, 3):
            context = RoundContext(1, key(1), phones=PHONES)
            with_it, without = Round(base, settings, context), Round(base, settings, context)
            for seed in range(others):
                for round_ in (with_it, without):
                    round_.take(TrainedWeights(trained(base, 10 + seed)))
            with_it.take(TrainedWeights(far))
            mine, none = with_it.result(), without.result()
            moved = {name: mine[name] - none[name] for name in mine}
            assert length(moved) == pytest.approx(0.5 / (PHONES * 0.5), rel=1e-6)
            assert length(moved) <= 0.5 / (PHONES * 0.5)
        assert length(deltas_of(base, far)) > 10


def test_the_published_sum_is_a_whole_number_of_steps() -> None:
    with model() as base:
        round_ = Round(base, SETTINGS, RoundContext(1, key(1), phones=PHONES))
        round_.take(TrainedWeights(trained(base, 1)))
        for tile in round_.result().values():
            steps = tile * (PHONES * 2.0**32)
            assert np.array_equal(steps, np.rint(steps))


def test_frozen_tensors_get_no_noise_and_no_buffers(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path, metadata={"frozen": "vector"})
    rounds.close(1)
    first, second = load_tensors(rounds.model(0)), load_tensors(rounds.model(1))
    assert np.array_equal(first["vector"], second["vector"])
    assert (first["matrix"] != second["matrix"]).mean() > 0.99
    with TensorFile(rounds.buffers(1)) as file:
        assert list(map(str, file.specs.values())) == ["matrix.buffers F64[250, 300, 3]"]


def test_what_a_run_can_not_be_is_refused(whole: Rounds) -> None:
    with pytest.raises(WeightsError, match=r"all 6 rounds of its run of dp-ftrl are over"):
        whole.close(7)
    with model() as base, pytest.raises(ValueError, match="phones is 0, expected at least 1 in a round"):
        strategy_of(SETTINGS).begin(base, SHA, RoundContext(1, key(1)))
    with pytest.raises(ValueError, match=r"`adaptive_clip` is 0\.5, expected none for dp-ftrl"):
        structs.replace(SETTINGS, adaptive_clip=0.5)
