"""Nodes that learn images of a new kind: what rehearsal keeps, and the files images come from."""

import gzip
import struct
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import TextError, TrainingError
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors
from phonograd.export.perceptron import PerceptronConfig, first_weights, write_perceptron
from phonograd.papers.images.dataset import Images, load_mnist, made_images
from phonograd.papers.images.node import Classifier, Data, FineTuning, Phase, accuracy, fine_tune, in_turn, train
from phonograd.papers.images.pretrain import Pretraining, pretrain
from phonograd.papers.images.together import together
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
@pytest.mark.long
def test_nodes_learn_a_new_kind_and_rehearsal_keeps_the_old(
    classifier: Classifier, tmp_path: Path, margin: Margin
) -> None:
    general, kept_back = made_images(1000, 10, PIXELS, 1), made_images(200, 10, PIXELS, 1, 1)
    order = np.random.default_rng(2).permutation(PIXELS)
    nodes, tested = (made_images(count, 10, PIXELS, 1, shown).permute(order) for count, shown in ((240, 2), (200, 3)))
    first = load_tensors(classifier.folder / "first.safetensors")
    phases = [Pretraining(8, 0.01, 0.9, 0.0002), Pretraining(2, 0.001, 0.95, 0.0005)]
    trained = pretrain(CONFIG, first, general, phases, 10, 1, classifier.threads, tmp_path / "state.pt")
    save_tensors(tmp_path / "general.safetensors", trained)
    margin("accuracy of the general model", accuracy(classifier, tmp_path / "general.safetensors", kept_back), low=0.6)
    before = accuracy(classifier, tmp_path / "general.safetensors", tested)
    ended = []
    for rehearsal in (True, False):
        settings = FineTuning(4, 60, 4, (Phase(40, 0.2), Phase(4, 0.05)))
        work = tmp_path / f"rehearsal-{rehearsal}"
        work.mkdir()
        data, weights = Data(general, nodes, kept_back, tested), tmp_path / "general.safetensors"
        assert list(fine_tune(partial(in_turn, classifier), weights, data, settings, rehearsal, 1, work)) == list(
            range(1, 45)
        )
        model = work / "44.safetensors"
        assert list(work.iterdir()) == [model]
        ended.append([accuracy(classifier, model, images) for images in (kept_back, tested)])
    kept, forgotten = ended
    margin("accuracy on the nodes' kind", min(kept[1], forgotten[1]), low=0.15)
    assert min(kept[1], forgotten[1]) > before
    margin("accuracy that rehearsal keeps", kept[0] - forgotten[0], low=0.02)


def test_fine_tuning_resumes_after_the_last_round_in_the_same_bits(classifier: Classifier, tmp_path: Path) -> None:
    images, weights = made_images(60, 10, PIXELS, 1), classifier.folder / "first.safetensors"
    job = (
        partial(in_turn, classifier),
        weights,
        Data(*[images] * 4),
        FineTuning(4, 15, 2, (Phase(3, 0.2), Phase(2, 0.1))),
        True,
        1,
    )
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    assert list(fine_tune(*job, tmp_path / "whole")) == [1, 2, 3, 4, 5]
    rounds = []
    for stop in (2, 4, 5):  # killed after that round
        for number in fine_tune(*job, tmp_path / "killed"):
            rounds.append(number)
            if number == stop:
                break
    assert rounds == [1, 2, 2, 3, 4, 4, 5]
    models = [(tmp_path / name / "5.safetensors").read_bytes() for name in ("whole", "killed")]
    assert models[0] == models[1]


@pytest.mark.long
def test_the_general_model_is_trained_as_torchs_sgd_says(tmp_path: Path) -> None:
    """One step a phase, by hand: v = momentum v + clipped gradient + weight decay w; w = w - rate v."""
    config = PerceptronConfig((PIXELS, 10), input_dropout=0.0, clip_norm=0.01)
    images, first = made_images(20, 10, PIXELS, 1), first_weights(config, 1)
    phases = [Pretraining(1, 0.1, 0.9, 0.0002), Pretraining(1, 0.01, 0.95, 0.5)]
    found = pretrain(config, first, images, phases, 20, 1, 1, tmp_path / "state.pt")
    W, b = first["0.weight"].astype(np.float64), first["0.bias"].astype(np.float64)
    velocity = [np.zeros_like(W), np.zeros_like(b)]
    for phase in phases:
        scores = np.exp(images.pixels @ W.T + b)
        error = (scores / scores.sum(1, keepdims=True) - np.eye(10)[images.labels]) / 20
        gradients = [error.T @ images.pixels, error.sum(0)]
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
        assert norm > 0.01
        for place, weights in enumerate((W, b)):
            velocity[place] *= phase.momentum
            velocity[place] += gradients[place] * 0.01 / norm + phase.weight_decay * weights
        W, b = W - phase.learning_rate * velocity[0], b - phase.learning_rate * velocity[1]
    np.testing.assert_allclose(found["0.weight"], W, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found["0.bias"], b, rtol=1e-4, atol=1e-6)


def test_pretraining_resumes_after_each_epoch_in_the_same_bits(tmp_path: Path) -> None:
    images, first = made_images(50, 10, PIXELS, 1), first_weights(CONFIG, 1)
    job = CONFIG, first, images, [Pretraining(3, 0.1, 0.9, 0.0002), Pretraining(2, 0.01, 0.95, 0.0005)], 20, 1, 1
    whole = pretrain(*job, tmp_path / "whole.pt")
    heard = []

    def kill(done: int, _epochs: int) -> None:
        heard.append(done)
        if done in (2, 4):
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            pretrain(*job, tmp_path / "killed.pt", kill)
    resumed = pretrain(*job, tmp_path / "killed.pt", lambda done, _: heard.append(done))
    assert heard == [1, 2, 3, 4, 5]
    for name, values in whole.items():
        np.testing.assert_array_equal(resumed[name], values)
    other = pretrain(*job[:5], 2, 1, tmp_path / "other.pt")
    assert not np.array_equal(other["0.weight"], whole["0.weight"])


def test_nodes_in_one_batch_train_as_the_engine_does(tmp_path: Path, seed: int, threads: int) -> None:
    """No dropout; the norm clips some gradients."""
    config = PerceptronConfig((PIXELS, 16, 16, 10), 0.0, 0.0, clip_norm=0.5)
    classifier = Classifier(tmp_path / "graphs", 10, 64, threads)
    write_perceptron(classifier.folder, config, classifier.minibatch, classifier.evaluated)
    save_tensors(tmp_path / "first.safetensors", first := first_weights(config, seed))
    images = made_images(105, 10, PIXELS, 1)
    nodes = {name: images.take(np.arange(place, 105, 3)) for place, name in enumerate("abc")}
    models = []
    for kind, train_round in (("engine", partial(in_turn, classifier)), ("torch", partial(together, config, 10))):
        (tmp_path / kind).mkdir()
        model = train_round(tmp_path / "first.safetensors", tmp_path / kind, 3, nodes, 0.2)
        assert model == tmp_path / kind / "3.safetensors"
        models.append(load_tensors(model))
    for name, values in models[0].items():
        change = np.abs(values - first[name]).max()
        assert change > 0
        np.testing.assert_allclose(models[1][name], values, atol=1e-3 * change, rtol=1e-4)


def test_too_few_images(classifier: Classifier, tmp_path: Path) -> None:
    images = made_images(9, 10, PIXELS, 1)
    weights = classifier.folder / "first.safetensors"
    with pytest.raises(TrainingError, match="9 images: expected at least a minibatch, 10"):
        train(classifier, weights, images, 0.1, 1)
    with pytest.raises(TrainingError, match="9 images: expected at least a minibatch, 10"):
        together(CONFIG, 10, weights, tmp_path, 1, {"a": images}, 0.1)
    settings = FineTuning(1, 10, 1, (Phase(1, 0.1),))
    rounds = fine_tune(partial(in_turn, classifier), weights, Data(*[images] * 4), settings, True, 1, tmp_path)
    with pytest.raises(TrainingError, match="10 images of the nodes expected, found 9"):
        next(rounds)


def test_a_rate_that_is_too_large_is_said(classifier: Classifier, tmp_path: Path) -> None:
    images = made_images(200, 10, PIXELS, 1)
    with pytest.raises(TrainingError, match="not finite at learning rate 1e\\+30"):
        train(classifier, classifier.folder / "first.safetensors", images, 1e30, 1)
    with pytest.raises(TrainingError, match="not finite at learning rate 1e\\+30"):
        together(CONFIG, 10, classifier.folder / "first.safetensors", tmp_path, 1, {"a": images}, 1e30)
    with pytest.raises(TrainingError, match="not finite at learning rate 1e\\+30"):
        phases = [Pretraining(3, 1e30, 0.9, 0.0)]
        pretrain(CONFIG, first_weights(CONFIG, 1), images, phases, 20, 1, 1, tmp_path / "state.pt")


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
