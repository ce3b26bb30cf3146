"""A few nodes train a model from scratch: by averaging, and with compressed gradients."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from phonograd.device_runtime.engine import BackendOptions
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.training.round import Round, RoundSettings
from phonograd.export.artifacts import export_artifacts
from phonograd.export.torch_layout import seeded_weights
from phonograd.papers.few_nodes.averaging import train_averaged
from phonograd.papers.few_nodes.dgc import train_compressed
from phonograd.papers.kinds import resnet
from phonograd.papers.node_round import NodeRound, Pass
from tests.support.margins import Margin

V = 30
CONFIG = LanguageModelConfig(cell="lstm", vocabulary=V, embedding=16, hidden=16, layers=1, tied=True)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory, seed: int) -> Artifacts:
    words = (b"<unk>", b"<eos>", *(f"w{number}".encode() for number in range(V - 2)))
    training = TrainingConfig(minibatch=4, bptt=8)
    folder = tmp_path_factory.mktemp("nodes") / "artifacts"
    return export_artifacts(folder, CONFIG, training, seeded_weights(CONFIG, seed), Vocabulary(words))


def streams() -> list[np.ndarray]:
    """A text in which a word follows from the one before."""
    follower = np.random.default_rng(1).permutation(np.arange(2, V))
    ids = [2]
    for _ in range(1599):
        ids.append(int(follower[ids[-1] - 2]))
    return np.array_split(np.array(ids, np.int64), 4)


@pytest.mark.learns
def test_nodes_train_in_turn_once_and_are_averaged_then(
    artifacts: Artifacts, tmp_path: Path, margin: Margin, threads: int
) -> None:
    losses: list[float] = []
    rounds = [Pass(4, 0.75), Pass(4, 0.75), Pass(4, 0.4)]
    model, uploads, nbytes = train_averaged(
        artifacts, streams(), rounds, tmp_path, threads, lambda _, loss: losses.append(loss)
    )
    assert uploads == 12 and len(losses) == 3
    margin("loss after the last round", losses[-1], high=math.log(V) / 2)
    floats = sum(values.size for values in load_tensors(model).values())
    assert 12 * 4 * floats < nbytes < 12 * (4 * floats + 4096)
    assert list(tmp_path.iterdir()) == [model]


def test_codecs_make_uploads_smaller(artifacts: Artifacts, tmp_path: Path) -> None:
    sizes = []
    for codec in ("full-f32", "delta-int8", "rot-q1"):
        _, uploads, nbytes = train_averaged(artifacts, streams(), [Pass(1, 2.0)] * 2, tmp_path, 1, codec=codec)
        sizes.append(nbytes)
        assert uploads == 8
    assert sizes[0] > 2 * sizes[1] > 2 * sizes[2]


def test_in_the_first_round_each_node_continues_the_model_of_the_one_before(
    artifacts: Artifacts, tmp_path: Path
) -> None:
    found, uploads, _ = train_averaged(artifacts, streams()[:2], [Pass(1, 2.0)], tmp_path, 1)
    assert uploads == 2
    weights = artifacts.path(WEIGHTS)
    for number, stream in enumerate(streams()[:2]):
        out = tmp_path / f"expected-{number}.safetensors"
        options = BackendOptions(threads=1)
        with Round(
            RoundSettings(artifacts.folder, stream=stream, weights=weights, learning_rate=2.0, out=out, options=options)
        ) as round_:
            round_.train()
        weights = out
    expected = load_tensors(weights)
    for name, values in load_tensors(found).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-5, atol=1e-6)


def test_a_round_is_the_plain_mean_of_its_nodes(tmp_path: Path) -> None:
    weights = {"a": np.arange(6, dtype=np.float32).reshape(2, 3)}
    save_tensors(tmp_path / "base.safetensors", weights)
    round_ = NodeRound(tmp_path / "base.safetensors", tmp_path, 3)
    round_.add("0", {"a": weights["a"] + 1}, 1000)
    round_.add("1", {"a": weights["a"] - 2}, 10)
    np.testing.assert_allclose(load_tensors(round_.close())["a"], weights["a"] - 0.5, rtol=1e-6)


@pytest.mark.learns
def test_compressed_gradients_train_with_a_part_of_the_bytes(
    artifacts: Artifacts, margin: Margin, seed: int, threads: int
) -> None:
    losses: list[float] = []
    weights = seeded_weights(CONFIG, seed)
    passes = [Pass(20, 0.75)]  # the steepest rate at which every kernel set and seed ends below 0.6
    trained, uploads, nbytes = train_compressed(
        artifacts.manifest, weights, streams(), passes, threads, lambda _, loss: losses.append(loss)
    )
    steps = -(-400 // (4 * 8))
    assert uploads == 20 * steps * 4
    margin("loss of the last epoch", losses[-1], high=math.log(V) / 2)
    dense = uploads * 4 * sum(values.size for values in weights.values())
    assert nbytes < dense / 10
    assert trained.keys() == weights.keys()


@pytest.mark.learns
def test_resnet_110_has_the_papers_size_and_trains_a_few_steps(margin: Margin, seed: int, threads: int) -> None:
    torch.manual_seed(seed)
    torch.set_num_threads(threads)
    # Table 6 has 76 uploads of 504.13 MB; ours differ by 125 of 1.74 million floats.
    assert 76 * resnet.upload_bytes(resnet.resnet()) / 2**20 == pytest.approx(504.13, rel=1e-4)
    images, labels = torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,))
    small = resnet.resnet(blocks=1)
    losses = resnet.train(small, [(images, labels)] * 16, 0.05)
    margin("loss after 16 steps, of that before", losses[-1] / losses[0], high=0.7)
    other = resnet.resnet(blocks=1)
    mean = resnet.average([small.state_dict(), other.state_dict()])
    for name, values in mean.items():
        if values.is_floating_point():
            torch.testing.assert_close(values, (small.state_dict()[name] + other.state_dict()[name]) / 2)
    block = resnet.Block(4, 4, 1)
    torch.nn.init.zeros_(block.second[1].weight)  # a branch of zeros leaves the shortcut
    x = torch.randn(2, 4, 8, 8)
    torch.testing.assert_close(block(x), torch.relu(x))
    small.load_state_dict(mean)
    assert small(images).shape == (16, 10)
