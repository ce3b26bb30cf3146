"""An update is decoded once for the passes over it, if what it moved is small."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.formats.tensor_file import TensorFile, TensorSpec
from phonograd.device_runtime.update.update_file import Tile, UpdateFile
from phonograd.server_agg.aggregation import tile_source
from phonograd.server_agg.aggregation.tile_source import CachedTiles, named_tiles
from tests.server_agg.test_rounds import opened, send
from tests.server_agg.trained_weights import TrainedWeights
from tests.server_agg.workshop import Workshop, settings_with


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each tensor of any update is decoded."""
    counts: Counter[str] = Counter()
    original = UpdateFile.tiles

    def tiles(self: UpdateFile, spec: TensorSpec, base: TensorFile) -> Iterator[Tile]:
        counts[spec.name] += 1
        return original(self, spec, base)

    monkeypatch.setattr(UpdateFile, "tiles", tiles)
    return counts


def test_ingesting_an_update_decodes_it_once(workshop: Workshop, tmp_path: Path, decoded: Counter[str]) -> None:
    settings = settings_with(clients_per_round=2)
    with opened(workshop, tmp_path / "state", settings) as coordinator:
        send(coordinator, workshop.update(1, codec="top-rows"), "a")
    assert set(decoded.values()) == {1}


@pytest.mark.parametrize(("room", "passes"), [(0, 2), (-1, 3)])
def test_what_does_not_fit_is_decoded_again_and_not_held(
    room: int, passes: int, workshop: Workshop, monkeypatch: pytest.MonkeyPatch, decoded: Counter[str]
) -> None:
    """room: elements to spare once the update is held."""
    with TensorFile(workshop.base_path) as base, UpdateFile(workshop.update(1)) as update:
        elements = sum(spec.elements for spec in base.specs.values())
        monkeypatch.setattr(tile_source, "HELD_ELEMENTS", elements + room)
        held = CachedTiles(update)
        first, second = (list(named_tiles(held, base)) for _ in range(2))
        expected = list(named_tiles(update, base))
    assert [place[:2] for place in first] == [place[:2] for place in second] == [place[:2] for place in expected]
    for one, other, right in zip(first, second, expected, strict=True):
        assert one[2].tobytes() == other[2].tobytes() == right[2].tobytes()
    assert set(decoded.values()) == {passes}
    assert bool(held._held) == (room >= 0)


def test_a_tensor_that_could_not_be_read_to_its_end_is_not_held(workshop: Workshop) -> None:
    class Broken:
        broken = True

        def tiles(self, spec: TensorSpec, base: TensorFile) -> Iterator[Tile]:
            yield from TrainedWeights(weights).tiles(spec, base)
            if self.broken:
                raise OSError("gone")

    weights, source = workshop.trained(1), Broken()
    held = CachedTiles(source)
    with TensorFile(workshop.base_path) as base:
        with pytest.raises(OSError, match="gone"):
            list(named_tiles(held, base))
        source.broken = False
        found = {name: values for name, _, values in named_tiles(held, base)}
    assert all(np.array_equal(found[name], array.reshape(-1)) for name, array in weights.items())
