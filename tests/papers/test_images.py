"""Nodes that learn images of a new kind: what rehearsal keeps, and the files images come from."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import TextError, TrainingError
from phonograd.device_runtime.formats.tensor_file import save_tensors
from phonograd.export.perceptron import PerceptronConfig, first_weights, write_perceptron
from phonograd.papers.images.dataset import Images, load_mnist, made_images
from phonograd.papers.images.node import Classifier, Data, FineTuning, Phase, accuracy, fine_tune, train
from tests.support.margins import Margin

PIXELS = 36
CONFIG = PerceptronConfig((PIXELS, 32, 32, 10))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory, seed: int, threads: int) -> Classifier:
    folder = tmp_path_factory.mktemp("perceptron")
    write_perceptron(folder, CONFIG, minibatch=10, evaluated=64)
    save_tensors(folder / "first.safetensors", first_weights(CONFIG, seed))
    return Classifier(folder, minibatch=10, evaluated=64, threads=threads)


def test_accuracy_counts_every_image_once(classifier: Classifier) -> None:
    images = made_images(100, 10, PIXELS, seed=1)
    weights = classifier.folder / "first.safetensors"
    each = [accuracy(classifier, weights, images.take(np.array([place]))) for place in range(100)]
    assert accuracy(classifier, weights, images) == pytest.approx(np.mean(each))


@pytest.mark.learns
def test_nodes_learn_a_new_kind_and_rehearsal_keeps_the_old(
    classifier: Classifier, tmp_path: Path, margin: Margin
) -> None:
    general, kept_back = made_images(1000, 10, PIXELS, 1), made_images(200, 10, PIXELS, 1, 1)
    order = np.random.default_rng(2).permutation(PIXELS)
    nodes, tested = (made_images(count, 10, PIXELS, 1, shown).permuted(order) for count, shown in ((240, 2), (200, 3)))
    first = train(classifier, classifier.folder / "first.safetensors", general, 0.1, 8, 1)
    margin("loss of the last epoch, of the first", first.losses[-1] / first.losses[0], high=0.7)
    save_tensors(tmp_path / "general.safetensors", first.weights)
    before = accuracy(classifier, tmp_path / "general.safetensors", tested)
    ended = []
    for rehearsal in (True, False):
        settings = FineTuning(4, 60, 2, (Phase(28, 0.2), Phase(2, 0.05)))
        work = tmp_path / f"rehearsal-{rehearsal}"
        work.mkdir()
        data, weights = Data(general, nodes, kept_back, tested), tmp_path / "general.safetensors"
        ended += fine_tune(classifier, weights, data, settings, rehearsal, 1, work, lambda n: n == 30)
        assert [path.name for path in work.iterdir()] == ["30.safetensors"]
    kept, forgotten = ended
    margin("accuracy that nodes gain", min(kept.nodes, forgotten.nodes) - before, low=0.1)
    margin("accuracy that rehearsal keeps", kept.general - forgotten.general, low=0.02)
    floats = sum(values.size for values in first.weights.values())
    assert 2 * 4 * floats < kept.bytes_up < 2 * 4 * floats + 4096


def test_too_few_images(classifier: Classifier, tmp_path: Path) -> None:
    images = made_images(9, 10, PIXELS, 1)
    weights = classifier.folder / "first.safetensors"
    with pytest.raises(TrainingError, match="9 images: expected at least a minibatch, 10"):
        train(classifier, weights, images, 0.1, 1, 1)
    settings = FineTuning(1, 10, 1, (Phase(1, 0.1),))
    rounds = fine_tune(classifier, weights, Data(*[images] * 4), settings, True, 1, tmp_path, bool)
    with pytest.raises(TrainingError, match="10 images of the nodes expected, found 9"):
        next(rounds)


def test_a_rate_that_is_too_large_is_said(classifier: Classifier) -> None:
    images = made_images(200, 10, PIXELS, 1)
    with pytest.raises(TrainingError, match="not finite at learning rate 1e\\+30"):
        train(classifier, classifier.folder / "first.safetensors", images, 1e30, 3, 1)


def write_idx(path: Path, magic: int, values: np.ndarray, cut: int = 0) -> None:
    data = struct.pack(f">{1 + values.ndim}I", magic, *values.shape) + values.astype(np.uint8).tobytes()
    data = data[: len(data) - cut]
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def test_mnist_files_are_read_and_checked(tmp_path: Path) -> None:
    pixels = np.arange(3 * 2 * 2).reshape(3, 2, 2)
    write_idx(tmp_path / "train-images-idx3-ubyte.gz", 0x803, pixels)
    write_idx(tmp_path / "train-labels-idx1-ubyte", 0x801, np.array([3, 1, 2]))
    images = load_mnist(tmp_path, "train")
    assert isinstance(images, Images) and images.pixels.dtype == np.float32 and len(images) == 3
    np.testing.assert_allclose(images.pixels, pixels.reshape(3, 4) / 255, rtol=1e-6)
    np.testing.assert_array_equal(images.labels, [3, 1, 2])
    write_idx(tmp_path / "train-labels-idx1-ubyte", 0x801, np.array([3, 1]))
    with pytest.raises(TextError, match="3 images of 'train' expected to have as many labels, found 2"):
        load_mnist(tmp_path, "train")
    write_idx(tmp_path / "train-labels-idx1-ubyte", 0x801, np.array([3, 1, 2]), cut=1)
    with pytest.raises(TextError, match="truncated"):
        load_mnist(tmp_path, "train")
    write_idx(tmp_path / "train-labels-idx1-ubyte", 0x803, np.array([3, 1, 2]))
    with pytest.raises(TextError, match="begins with 0x801"):
        load_mnist(tmp_path, "train")
    with pytest.raises(TextError, match="cannot be read"):
        load_mnist(tmp_path, "t10k")
