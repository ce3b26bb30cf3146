"""What holds for every strategy: order, restarts, splitting into tiles, what is refused, empty rounds, memory."""

import gc
import io
import random
import tracemalloc

import numpy as np
import pytest
from msgspec import structs

from phonograd.device_runtime.base.errors import StorageError, WeightsError
from phonograd.device_runtime.formats.tensor_file import TILE_ELEMENTS, TensorFile
from phonograd.device_runtime.update.update_file import UpdateInfo
from phonograd.server_agg.aggregation.settings import AVERAGES, StrategySettings
from phonograd.server_agg.aggregation.stacked import BLOCK_ELEMENTS
from phonograd.server_agg.aggregation.strategies import strategy_of
from phonograd.server_agg.aggregation.strategy import FoldedAggregation, RoundContext
from phonograd.server_agg.refusals import InvalidUpdateError
from tests.server_agg.rounds_of_updates import CONTEXT, SHA, SHAPES, Round, all_bits, averaged, model, trained
from tests.server_agg.trained_weights import MovedRows, TrainedWeights

SHORT_RUN = {"planned_rounds": 10, "min_separation": 5, "max_participations": 2}
EVERY = [
    *(StrategySettings(strategy=name, **(SHORT_RUN if name == "dp-ftrl" else {})) for name in AVERAGES),
    StrategySettings(strategy="fedavg", weighting="equal"),
    StrategySettings(strategy="fedatt", attention_norm="1", attention_noise=0.1),
    StrategySettings(strategy="dp-fedavg", estimator="clipped", per_layer=True, token_cap=150),
    StrategySettings(strategy="norm-bound", norm_bound=0.05),
]
FOLDED = [
    *(settings for settings in EVERY if issubclass(strategy_of(settings).aggregation, FoldedAggregation)),
    StrategySettings(strategy="dp-fedavg", adaptive_clip=0.5, clip_norm=0.4, noise_multiplier=1.0),
]
every_strategy = pytest.mark.parametrize("settings", EVERY, ids=lambda settings: settings.strategy)


@every_strategy
def test_order_and_restart_do_not_change_a_bit(settings: StrategySettings) -> None:
    # A base of zeros and deltas of very different sizes: sums of floating-point numbers would depend on their order.
    with model({name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}) as base:
        updates = [(MovedRows(trained(base, seed, 10.0 ** (-3 * seed)), base), 37 * seed) for seed in range(1, 8)]
        first = Round(base, settings)
        for number, (update, tokens) in enumerate(updates):
            first.take(update, tokens, sha256=f"{number:064x}")
        shuffled = first.updates[:]
        random.Random(1).shuffle(shuffled)
        assert shuffled != first.updates

        # After a restart: a new aggregation, the kept weights and measures, another order, other members' order.
        second = Round(base, settings)
        for stored in shuffled:
            with stored.open() as update:
                second.aggregation.add(update, stored.weight, stored.measures)
        result = all_bits(first.result())
        assert all_bits(second.result(shuffled)) == result
        assert all_bits(first.result(shuffled)) == result, "closing twice gives the same, noise too"
        assert any(result)


@pytest.mark.parametrize("settings", FOLDED, ids=lambda settings: settings.strategy)
def test_parts_of_a_sum_merge_to_the_same_bits(settings: StrategySettings) -> None:
    """One of them with an update that was taken out again."""
    with model() as base:
        whole, parts = Round(base, settings), [Round(base, settings), Round(base, settings)]
        for seed in range(1, 8):
            update = TrainedWeights(trained(base, seed, 0.02 * seed))
            for round_ in (whole, parts[seed % 2]):
                round_.take(update, 37 * seed)
        late = parts[0].take(TrainedWeights(trained(base, 9)), 37)
        first, second = (part.aggregation for part in parts)
        assert isinstance(first, FoldedAggregation)
        assert isinstance(second, FoldedAggregation)
        with late.open() as opened:
            first.add(opened, -late.weight, late.measures)
        first.merge(io.BytesIO(b"".join(second.fold.pack())), parts[1].updates)
        assert all_bits(parts[0].result()) == all_bits(whole.result())
        assert first.metadata() == whole.aggregation.metadata()


@every_strategy
def test_what_a_codec_leaves_out_did_not_move(settings: StrategySettings) -> None:
    with model() as base:
        weights = [trained(base, seed) for seed in range(1, 8)]
        for number, update in enumerate(weights[1:]):
            update["kernel"][0, number] = base.read("kernel")[0, number]
        for array in weights[0].values():
            array[...] = 0.5
        cut, whole = Round(base, settings), Round(base, settings)
        for update in weights:
            cut.take(MovedRows(update, base))
            whole.take(TrainedWeights(update))
        for name, found in cut.result().items():
            np.testing.assert_allclose(found, whole.result()[name], rtol=1e-9, atol=1e-12)


@every_strategy
def test_a_round_without_updates_moves_nothing_but_by_noise(settings: StrategySettings) -> None:
    with model() as base:
        assert any(all_bits(averaged(base, settings, []))) == settings.private


@pytest.mark.parametrize("settings", [s for s in EVERY if not s.private and not s.attention_noise], ids=str)
def test_what_no_update_moved_is_exactly_zero(settings: StrategySettings) -> None:
    with model() as base:
        updates = [trained(base, seed) for seed in range(1, 8)]
        for update in updates:
            update["kernel"] = base.read("kernel")
        result = averaged(base, settings, updates)
    assert not any(result["kernel"].tobytes())
    assert result["bias"].any()


@pytest.mark.parametrize(
    ("settings", "bad"), [*((settings, np.nan) for settings in EVERY), (EVERY[0], np.inf), (EVERY[0], -np.inf)], ids=str
)
def test_values_that_are_not_finite_are_refused(settings: StrategySettings, bad: float) -> None:
    with model() as base:
        evil = trained(base, 1)
        evil["bias"][9] = bad
        with pytest.raises(WeightsError, match="tensor bias: element 9 differs from the base by .*, expected"):
            Round(base, settings).take(TrainedWeights(evil))


@pytest.mark.parametrize("strategy", ["fedavg", "fedsgd", "median", "trimmed-mean", "multi-krum", "fedatt"])
def test_updates_far_from_the_base_are_refused(strategy: str) -> None:
    with model() as base:
        far = trained(base, 1)
        far["bias"][9] = 2.0**31
        with pytest.raises(WeightsError, match=r"update: .*expected .*(delta|differences)"):
            Round(base, StrategySettings(strategy=strategy)).take(TrainedWeights(far))


@every_strategy
def test_claims_of_too_many_tokens_are_refused(settings: StrategySettings) -> None:
    strategy = strategy_of(structs.replace(settings, max_tokens=1000))
    assert strategy.weight(UpdateInfo(SHA, 1, 1000, "full-f32", 0, steps=1)) >= 1
    with pytest.raises(InvalidUpdateError, match="claims 1001 tokens, the limit is 1000"):
        strategy.weight(UpdateInfo(SHA, 1, 1001, "full-f32", 0, steps=1))


@every_strategy
def test_strategies_of_single_steps_refuse_an_epoch(settings: StrategySettings) -> None:
    epoch = UpdateInfo(SHA, 1, 1000, "full-f32", 0)
    if settings.strategy not in {"fedsgd", "dp-fedsgd"}:
        assert strategy_of(settings).weight(epoch) >= 1
        return
    with pytest.raises(InvalidUpdateError, match=r"-?fedsgd averages single steps; train again with `steps` 1"):
        strategy_of(settings).weight(epoch)


def test_names_and_sizes_of_rounds() -> None:
    for settings in EVERY:
        assert strategy_of(settings).name == settings.strategy
        assert 1 <= strategy_of(settings).min_updates <= strategy_of(settings).max_updates
    assert strategy_of(StrategySettings(strategy="multi-krum", krum_byzantine=2)).min_updates == 7


def test_a_fold_that_could_not_read_an_update_gives_nothing_more() -> None:
    with model() as base:
        round_ = Round(base, StrategySettings())
        good = round_.take(TrainedWeights(trained(base, 1)))
        evil = trained(base, 2)
        evil["bias"][9] = np.nan  # in the last tensor: the others have been added by then
        with pytest.raises(WeightsError, match="element 9"):
            round_.aggregation.add(TrainedWeights(evil).on(base), 1, good.measures)
        with pytest.raises(StorageError, match="could not be read to its end; fold the round's updates again"):
            round_.result()
        with pytest.raises(StorageError, match="fold the round's updates again"):
            round_.aggregation.add(TrainedWeights(trained(base, 1)).on(base), 1, good.measures)


def test_private_strategies_want_a_key_and_phones() -> None:
    settings = StrategySettings(strategy="dp-fedavg")
    with model() as base:
        with pytest.raises(ValueError, match="noise_key has 0 bytes, expected 32"):
            strategy_of(settings).begin(base, SHA, RoundContext(1, population=5))
        with pytest.raises(ValueError, match="population is 0, expected at least 1"):
            strategy_of(settings).begin(base, SHA, RoundContext(1, CONTEXT.noise_key))


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["fedavg", "fedatt", "median", "multi-krum", "dp-fedavg"])
def test_memory_does_not_grow_with_the_number_of_phones(strategy: str) -> None:
    shapes = {"matrix": (3000, 300), "vector": (5,)}
    rng = np.random.default_rng(1)
    weights = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    elements = sum(array.size for array in weights.values())
    peaks = {}
    with model(weights) as base:
        update = TrainedWeights({name: array + np.float32(0.01) for name, array in weights.items()})
        for count in (5, 20):
            peaks[count] = peak_bytes(base, StrategySettings(strategy=strategy), update, count)
    if strategy in {"median", "multi-krum"}:  # no fold, but a tile of each update, and blocks of 16 MiB whatever K
        assert peaks[20] < peaks[5] + 15 * 4 * TILE_ELEMENTS + 2**22
        assert peaks[20] < 20 * 4 * TILE_ELEMENTS + 4 * 8 * BLOCK_ELEMENTS
    else:  # two threads hold some tiles at a time, more or fewer by chance: 20 updates would be 72 MB
        assert peaks[20] < 8 * elements + 14 * 2**20


def peak_bytes(base: TensorFile, settings: StrategySettings, update: TrainedWeights, count: int) -> int:
    gc.collect()
    tracemalloc.start()
    round_ = Round(base, settings)
    for _ in range(count):
        round_.take(update)
    for _ in round_.aggregation.deltas(round_.updates):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak
