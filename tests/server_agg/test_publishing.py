"""What a round publishes: the base and a link. Lossy links leave something out, which later ones bring."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, load_tensors, save_tensors
from phonograd.device_runtime.update.links import pull_links
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update
from phonograd.server_agg.aggregation.publishing import Publication, Publish, PublishedFiles, publish
from tests.reference.codecs import read_parts

LOSSLESS = Publish("rows-f32", 1, 4)
LOSSY = Publish("top-rows", 60, 4)
SHAPES = {"embedding": (600, 16), "kernel": (1, 64, 80), "bias": (300,), "head": (500, 12), "still": (7, 3)}


def weights(seed: int, scale: float = 1.0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: (scale * rng.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}


@dataclass
class Chain:
    """Models 0, 1, ... in a folder, each the one before and a delta; `how` they are published."""

    folder: Path
    how: Publish
    number: int = 0

    def __post_init__(self) -> None:
        save_tensors(self.model(0), weights(0), {"kind": "exported", "frozen": "still"})

    def model(self, number: int) -> Path:
        return self.folder / f"model-{number}"

    def link(self, number: int) -> Path:
        return self.folder / f"link-{number}"

    def residual(self, number: int) -> Path:
        return self.folder / f"residual-{number}"

    def round(self, delta: Mapping[str, Array]) -> Publication:
        """Publish the last model and `delta`."""
        before, self.number = self.model(self.number), self.number + 1
        number = self.number
        moved = {name: values + delta.get(name, np.float32(0)) for name, values in load_tensors(before).items()}
        draft = self.folder / "draft"
        written = save_tensors(draft, moved, {"round": str(number), "frozen": "still", "é": "\N{SNOWMAN}"})
        old = self.residual(number - 1)
        files = PublishedFiles(self.model(number), self.link(number), self.residual(number))
        with TensorFile(before) as base:
            kept = old if old.exists() else None
            return publish(self.how, base, sha256_of_file(before), draft, written, kept, files)


def delta(seed: int, rows: int = 40, scale: float = 0.01) -> dict[str, Array]:
    """A delta that moves some rows of the embedding, and all of the rest but what is frozen."""
    moved = weights(seed, scale)
    moved["embedding"][rows:] = 0
    del moved["still"]
    return moved


@pytest.fixture(params=[LOSSLESS, LOSSY], ids=lambda how: how.codec)
def chain(request: pytest.FixtureRequest, tmp_path: Path) -> Chain:
    return Chain(tmp_path, request.param)


def join_links(chain: Chain, first: int, last: int) -> Path:
    path = chain.folder / f"links-{first}-{last}"
    path.write_bytes(b"".join(chain.link(number).read_bytes() for number in range(first, last + 1)))
    return path


def follow(chain: Chain, links: Path, base: int, last: int) -> Path:
    out = chain.folder / "followed"
    pull_links(links, chain.model(base), out, sha256_of_file(chain.model(last)))
    return out


def test_links_lead_to_the_published_models_to_the_bit(chain: Chain) -> None:
    for seed in (1, 2, 3):
        published = chain.round(delta(seed))
        assert published.model.sha256 == sha256_of_file(chain.model(seed))
        assert published.link is not None and published.link.sha256 == sha256_of_file(chain.link(seed))
    for first, last in ((1, 1), (2, 3), (1, 3)):
        path = follow(chain, join_links(chain, first, last), first - 1, last)
        assert path.read_bytes() == chain.model(last).read_bytes()
    with TensorFile(path) as model:
        assert model.metadata == {"round": "3", "frozen": "still", "é": "\N{SNOWMAN}"}
    assert np.array_equal(load_tensors(path)["still"], weights(0)["still"])


def test_a_lossless_link_is_the_update_of_its_codec_and_its_model_the_draft(tmp_path: Path) -> None:
    chain = Chain(tmp_path, LOSSLESS)
    published = chain.round(delta(1))
    assert (published.residual, published.distance) == (None, 0.0)
    parts, about = read_parts(chain.link(1))
    with TensorFile(chain.model(0)) as base:
        moved = delta(1)
        trained = {name: base.read(name) + moved.get(name, np.float32(0)) for name in base.specs}
        assert {name: model.tobytes() for name, model in load_tensors(chain.model(1)).items()} == {
            name: values.tobytes() for name, values in trained.items()
        }
        write_update(tmp_path / "update", base, trained, UpdateInfo(about["base_sha256"], 1, 1, "rows-f32", 0))
    expected, _ = read_parts(tmp_path / "update")
    assert list(expected) == list(parts)
    assert all(np.array_equal(expected[name], parts[name]) for name in parts)


def test_a_lossy_link_holds_the_rows_of_largest_norm_of_all_matrices_together(tmp_path: Path) -> None:
    chain = Chain(tmp_path, Publish("top-rows", 3, 4))
    moved = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    for name, row, size in (("embedding", 5, 3.0), ("kernel", 9, 2.0), ("head", 499, 4.0), ("embedding", 7, 1.0)):
        moved[name].reshape(-1, SHAPES[name][-1])[row, 2] = size
    del moved["still"]
    chain.round(moved)
    before, after = load_tensors(chain.model(0)), load_tensors(chain.model(1))
    changed = {
        name: np.flatnonzero((before[name] != after[name]).reshape(-1, SHAPES[name][-1]).any(axis=1)).tolist()
        for name in SHAPES
    }
    assert changed == {"embedding": [5], "kernel": [9], "bias": [], "head": [499], "still": []}
    assert load_tensors(chain.residual(1))["embedding"][7, 2] == pytest.approx(1, rel=1e-6)


def test_a_link_of_one_bit_has_the_scales_of_least_error(tmp_path: Path) -> None:
    """0.36 of a Gaussian's square is left; the scales that make the mean right would leave 0.57."""
    chain = Chain(tmp_path, Publish("top-rows", 10_000, 1))
    published = chain.round({"embedding": weights(1)["embedding"]})
    assert published.distance is not None and 0.34 < published.distance**2 < 0.39


def test_what_a_link_leaves_out_comes_later(tmp_path: Path) -> None:
    chain = Chain(tmp_path, LOSSY)
    distances = [chain.round(delta(1)).distance, *(chain.round({}).distance for _ in range(30))]
    assert distances[0] is not None and 0.3 < distances[0] < 1
    assert distances[1] is None  # of a delta of 0
    wanted, found = weights(0), load_tensors(chain.model(31))
    error = {name: np.abs(found[name] - wanted[name] - moved).max() for name, moved in delta(1).items()}
    assert max(error.values()) < 5e-4
    left_out = {name: np.abs(values).max() for name, values in load_tensors(chain.residual(31)).items()}
    assert max(left_out.values()) < 5e-4


def test_a_lossless_round_after_lossy_ones_brings_all_that_they_left_out(tmp_path: Path) -> None:
    chain = Chain(tmp_path, LOSSY)
    chain.round(delta(1))
    chain.how = LOSSLESS
    published = chain.round({})
    assert published.residual is None
    wanted = {name: values + delta(1).get(name, np.float32(0)) for name, values in weights(0).items()}
    found = load_tensors(chain.model(2))
    assert all(np.allclose(found[name], wanted[name], rtol=0, atol=1e-6) for name in wanted)
    assert follow(chain, join_links(chain, 1, 2), 0, 2).read_bytes() == chain.model(2).read_bytes()


def test_a_link_no_smaller_than_its_model_is_not_kept(tmp_path: Path) -> None:
    chain = Chain(tmp_path, LOSSLESS)
    published = chain.round({**delta(1, rows=600), "still": np.float32(0)})
    assert published.link is None and not chain.link(1).exists()


@pytest.mark.parametrize("other", ["another model's", "another shape"])
def test_a_residual_of_another_model_is_refused(other: str, tmp_path: Path) -> None:
    chain = Chain(tmp_path, LOSSY)
    chain.round(delta(1))
    with TensorFile(chain.residual(1)) as residual:
        metadata = dict(residual.metadata)
    tensors = load_tensors(chain.residual(1))
    if other == "another shape":
        tensors["bias"] = tensors["bias"][1:]
    else:
        metadata["model_sha256"] = "0" * 64
    save_tensors(chain.residual(1), tensors, metadata)
    with pytest.raises(WeightsError, match="model_sha256" if other == "another model's" else "bias"):
        chain.round({})
