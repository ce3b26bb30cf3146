"""A few nodes train a model from scratch: by averaging, and with compressed gradients."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import TrainingError
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors
from phonograd.device_runtime.text.sampling import log_likelihoods
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.training.round import Round, RoundSettings
from phonograd.export.artifacts import export_artifacts
from phonograd.export.torch_layout import seeded_weights
from phonograd.papers.few_nodes.averaging import Averaging
from phonograd.papers.few_nodes.dgc import Compressed
from phonograd.papers.few_nodes.plateau import Plateau, Reached, TrainPass, train_to_plateau
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


def run_averaging(artifacts: Artifacts, work: Path, settings: Plateau, threads: int = 1, nodes: int = 4) -> Reached:
    train = Averaging(artifacts, streams()[:nodes], work, threads)
    return train_to_plateau(settings, artifacts.path(WEIGHTS), work, train, validator(artifacts))


def validator(artifacts: Artifacts) -> Callable[[Path], float]:
    """The perplexity of a model on the nodes' own text."""
    text = np.concatenate(streams())

    def perplexity(weights: Path) -> float:
        with NativeBackend(artifacts, weights, BackendOptions(threads=1)) as model:
            return float(np.exp(-log_likelihoods(model, V, text[:, None]).mean() / len(text)))

    return perplexity


@pytest.mark.learns
def test_nodes_train_in_turn_once_and_are_averaged_then(
    artifacts: Artifacts, tmp_path: Path, margin: Margin, threads: int
) -> None:
    settings = Plateau(learning_rate=0.75, factor=0.5, lowerings=9, limit=3, epochs=(4,))
    reached = run_averaging(artifacts, tmp_path, settings, threads)
    assert (reached.passes, reached.uploads) == (3, 12)
    margin("loss after the last round", math.log(reached.perplexity), high=math.log(V) / 2)
    floats = sum(values.size for values in load_tensors(tmp_path / reached.model).values())
    assert 12 * 4 * floats < reached.nbytes < 12 * (4 * floats + 4096)
    assert {path.name for path in tmp_path.iterdir()} == {"state.json", reached.model, reached.best}


def test_in_the_first_round_each_node_continues_the_model_of_the_one_before(
    artifacts: Artifacts, tmp_path: Path
) -> None:
    reached = run_averaging(artifacts, tmp_path, Plateau(2.0, 1.0, 9, 1), nodes=2)
    assert reached.uploads == 2
    weights = artifacts.path(WEIGHTS)
    for number, stream in enumerate(streams()[:2]):
        out = tmp_path / f"expected-{number}.safetensors"
        options = BackendOptions(threads=1)
        with Round(
            RoundSettings(
                folder=artifacts.folder, stream=stream, weights=weights, learning_rate=2.0, out=out, options=options
            )
        ) as round_:
            round_.train()
        weights = out
    expected = load_tensors(weights)
    for name, values in load_tensors(tmp_path / reached.model).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-5, atol=1e-6)


@pytest.mark.learns
@pytest.mark.long
def test_compressed_gradients_train_with_a_part_of_the_bytes(
    artifacts: Artifacts, tmp_path: Path, margin: Margin, threads: int
) -> None:
    settings = Plateau(0.75, 1.0, 99, 20)  # the steepest rate at which every kernel set and seed ends below 0.6
    train = Compressed(artifacts.manifest, streams(), tmp_path, threads)
    reached = train_to_plateau(settings, artifacts.path(WEIGHTS), tmp_path, train, validator(artifacts))
    steps = -(-400 // (4 * 8))
    assert reached.uploads == 20 * steps * 4
    margin("loss of the best epoch", math.log(reached.perplexity), high=math.log(V) / 2)
    weights = load_tensors(artifacts.path(WEIGHTS))
    assert reached.nbytes < reached.uploads * 4 * sum(values.size for values in weights.values()) / 10
    assert load_tensors(tmp_path / reached.best).keys() == weights.keys()


def test_what_a_node_has_not_sent_waits_for_the_next_epoch(artifacts: Artifacts, tmp_path: Path) -> None:
    train = Compressed(artifacts.manifest, streams(), tmp_path, 1)
    first, _, _ = train(artifacts.path(WEIGHTS), 1, Reached(0.75))
    ended = []
    for kept in (1, 0):
        memory = {name: values * kept for name, values in load_tensors(first.with_suffix(".memory")).items()}
        save_tensors(first.with_suffix(".memory"), memory)
        ended.append(load_tensors(train(first, 1, Reached(0.75, passes=1))[0])["embedding.weight"])
    assert not np.array_equal(*ended)


@pytest.mark.long
@pytest.mark.parametrize("method", ["averaging", "DGC"])
def test_training_resumes_in_the_same_bits(artifacts: Artifacts, tmp_path: Path, method: str) -> None:
    settings, ended = Plateau(0.75, 0.5, 9, 4), []
    for name, stops in (("whole", []), ("killed", [2, 3])):
        work = tmp_path / name
        work.mkdir()
        train: TrainPass = (
            Averaging(artifacts, streams(), work, 1)
            if method == "averaging"
            else Compressed(artifacts.manifest, streams(), work, 1)
        )
        for limit in stops:  # killed after so many passes, while the next model is checked
            with pytest.raises(KeyboardInterrupt):
                validate = killed_at(limit, validator(artifacts))
                train_to_plateau(settings, artifacts.path(WEIGHTS), work, train, validate)
        ended.append(train_to_plateau(settings, artifacts.path(WEIGHTS), work, train, validator(artifacts)))
        assert (work / ended[-1].model).exists()
    assert ended[0] == ended[1]
    models = [(tmp_path / name / ended[0].model).read_bytes() for name in ("whole", "killed")]
    assert models[0] == models[1]


def killed_at(passes: int, validate: Callable[[Path], float]) -> Callable[[Path], float]:
    """`validate`, which is killed at the first model after so many passes of this folder's training."""

    def perplexity(weights: Path) -> float:
        state = weights.parent / "state.json"
        if state.exists() and json.loads(state.read_bytes())["passes"] == passes:
            raise KeyboardInterrupt
        return validate(weights)

    return perplexity


def test_a_plateau_lowers_the_learning_rate_and_then_stops(tmp_path: Path) -> None:
    perplexities = [100.0, 90.0, 89.9, 80.0, 81.0, 79.8, 70.0]  # 89.9 and 79.8 are falls of less than 0.5 %
    seen: list[tuple[str, int, float]] = []

    def train_pass(model: Path, epochs: int, reached: Reached) -> tuple[Path, int, int]:
        seen.append((model.name, epochs, reached.learning_rate))
        trained = tmp_path / f"{reached.passes + 1}.safetensors"
        trained.touch()
        return trained, 2, 10

    settings = Plateau(learning_rate=1.0, factor=0.5, lowerings=3, limit=7, epochs=(4, 2))
    job = settings, tmp_path / "first", tmp_path, train_pass, lambda model: perplexities[int(model.stem) - 1]
    reached = train_to_plateau(*job)
    rates = [1.0, 1.0, 1.0, 0.5, 0.5, 0.25]
    assert [rate for *_, rate in seen] == rates
    assert [epochs for _, epochs, _ in seen] == [4, 4, 4, 2, 2, 2]
    assert [name for name, *_ in seen] == ["first", *(f"{number}.safetensors" for number in range(1, 6))]
    assert (reached.passes, reached.uploads, reached.nbytes, reached.lowered) == (6, 12, 60, 3)
    assert (reached.best, reached.best_pass, reached.perplexity) == ("6.safetensors", 6, 79.8)
    assert train_to_plateau(*job) == reached and len(seen) == 6


def test_the_best_model_stays_and_the_limit_ends_training(tmp_path: Path) -> None:
    def train_pass(_model: Path, _epochs: int, reached: Reached) -> tuple[Path, int, int]:
        for suffix in (".safetensors", ".memory"):
            (tmp_path / f"{reached.passes + 1}{suffix}").touch()
        return tmp_path / f"{reached.passes + 1}.safetensors", 1, 1

    settings = Plateau(1.0, 0.5, 9, 4)
    reached = train_to_plateau(settings, tmp_path, tmp_path, train_pass, lambda model: abs(int(model.stem) - 2) + 1.0)
    assert (reached.passes, reached.best) == (4, "2.safetensors")
    assert sorted(path.stem for path in tmp_path.glob("[0-9]*")) == ["2", "2", "4", "4"]
    with pytest.raises(TrainingError, match=r"not finite at learning rate 1\.0"):
        train_to_plateau(settings, tmp_path, tmp_path / "no", train_pass, lambda _: math.inf)
