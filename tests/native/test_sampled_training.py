"""`phonograd-phone train --output-sample`: what is drawn, trained, written and resumed."""

import json
import math
import signal
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors
from phonograd.device_runtime.text.output_sample import SampleDraw, draw_output_sample
from phonograd.device_runtime.text.vocabulary import Ids, Vocabulary
from tests.support.phone_command import MODEL, STEPS, Place, outcome_of, outputs, read_outputs, until_step

STATE = "state.safetensors"
DRAWN, SEED = 60, 11
SAMPLE = ("--output-sample", DRAWN, "--sample-seed", SEED)


@pytest.fixture(scope="module")
def undisturbed(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """What an epoch without a state ends in."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert place.train(*SAMPLE, *outputs(folder)).only("report")["steps"] == STEPS
    return read_outputs(folder)


def stream_file(path: Path) -> Ids:
    """A token file of a third of the vocabulary, with ids that the draw is likely to leave out."""
    ids: Ids = np.random.default_rng(3).integers(300, 500, STEPS * 15)
    path.write_bytes(ids.astype("<i4").tobytes())
    return ids


def test_the_words_trained_are_those_of_the_rule(place: Place, tmp_path: Path) -> None:
    stream = stream_file(tmp_path / "tokens")
    vocabulary = Vocabulary.load(place.artifacts.path("vocab.txt"))
    counts = vocabulary.frequencies()
    sample = draw_output_sample(stream, counts, SampleDraw(DRAWN, SEED))
    line = place.line("train", place.artifacts.folder, "--tokens", tmp_path / "tokens", *SAMPLE, *outputs(tmp_path))
    done = outcome_of(line)
    layer = {"kind": "sampled", "words": len(sample)}
    assert done.only("start")["output_layer"] == done.only("report")["output_layer"] == layer
    with TensorFile(tmp_path / "update") as update:
        np.testing.assert_array_equal(update.read("decoder.weight.rows"), sample.candidates)
        np.testing.assert_array_equal(update.read("embedding.weight.rows"), np.union1d(stream[:-1], [1]))
    base, trained = load_tensors(place.artifacts.path("weights.safetensors")), load_tensors(tmp_path / "out")
    outside = np.setdiff1d(np.arange(MODEL.vocabulary), sample.candidates)
    for name in ("decoder.weight", "decoder.bias", "embedding.weight"):
        np.testing.assert_array_equal(trained[name][outside], base[name][outside])
    assert (trained["decoder.bias"][sample.candidates] != base["decoder.bias"][sample.candidates]).all()


@pytest.mark.parametrize("step", [1, 7])
def test_a_kill_loses_nothing_and_the_seed_is_the_states(
    place: Place, undisturbed: Mapping[str, bytes], tmp_path: Path, step: int
) -> None:
    sampled = ("--output-sample", DRAWN, "--state", tmp_path / "state", "--save-every", 3, *outputs(tmp_path))
    killed = until_step(place.train_line(*sampled, "--sample-seed", SEED), step, signal.SIGKILL, 0.002)
    assert killed.code == -signal.SIGKILL
    given = () if (tmp_path / "state" / STATE).exists() else ("--sample-seed", SEED)
    assert place.train(*sampled, *given, "--threads", 3).code == 0
    assert read_outputs(tmp_path) == undisturbed
    assert list((tmp_path / "state").iterdir()) == []


@pytest.fixture
def stopped(place: Place, tmp_path: Path) -> Path:
    """A state folder of an epoch that was killed after a few steps: of step 6, long before the next save."""
    folder = tmp_path / "state"
    line = place.train_line(*SAMPLE, "--state", folder, "--save-every", 6)
    assert until_step(line, 7, signal.SIGKILL).code == -signal.SIGKILL
    return folder


def test_a_state_holds_what_format_md_says(place: Place, stopped: Path) -> None:
    with TensorFile(stopped / STATE) as file:
        metadata, specs = dict(file.metadata), file.specs
    assert (metadata["version"], metadata["output_sample"], metadata["sample_seed"]) == ("2", str(DRAWN), str(SEED))
    assert metadata["training_model_sha256"] == place.artifacts.manifest.files["training_model_sampled.onnx"].sha256
    assert len(metadata["candidates_sha256"]) == 64
    by_rows = [f"{name}.{part}" for name in ("decoder.weight", "decoder.bias") for part in ("rows", "values")]
    assert [name for name in specs if name.startswith("decoder.")] == by_rows
    count = specs["decoder.weight.rows"].shape[0]
    assert DRAWN < count < MODEL.vocabulary
    assert specs["decoder.weight.values"].shape == (count, MODEL.hidden)
    assert specs["decoder.bias.values"].shape == (count, 1)
    assert specs["embedding.weight.rows"].shape[0] < count


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--output-sample", DRAWN, "--sample-seed", 12), "differs in sample_seed, candidates_sha256 ("),
        (("--output-sample", 61), "differs in output_sample (61 expected, found 60), candidates_sha256 ("),
        ((), "one of an epoch without an output sample expected, found one with; go on with the same options"),
    ],
)
def test_the_state_of_another_sample_is_refused_and_kept(
    place: Place, stopped: Path, options: tuple[object, ...], said: str
) -> None:
    raw = (stopped / STATE).read_bytes()
    found = place.train("--state", stopped, *options)
    assert (found.code, found.events) == (17, [])
    assert said in found.err
    assert f"{SEED} " not in found.err  # the seed is never shown
    assert (stopped / STATE).read_bytes() == raw
    restarted = place.train("--state", stopped, "--restart", *options)
    assert restarted.only("start")["resumed_at"] == 0


def test_the_state_of_a_full_softmax_is_not_a_samples(place: Place, tmp_path: Path) -> None:
    line = place.train_line("--state", tmp_path, "--save-every", 2)
    assert until_step(line, 4, signal.SIGKILL).code == -signal.SIGKILL
    found = place.train("--state", tmp_path, *SAMPLE)
    assert (found.code, found.events) == (17, [])
    assert "one of an epoch with an output sample expected, found one without" in found.err
    assert outcome_of(line).only("start")["resumed_at"] >= 2


def test_the_seed_is_random_and_leaves_the_phone_in_no_way(place: Place, tmp_path: Path) -> None:
    seeds = set()
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        line = place.train_line("--output-sample", 200, "--state", folder / "state", "--save-every", 2)
        done = until_step([*line, "--update", str(folder / "update")], 4, signal.SIGTERM)
        with TensorFile(folder / "state" / STATE) as state:
            seed = state.metadata["sample_seed"]
        resumed = outcome_of([*line, "--update", str(folder / "update")])
        assert resumed.code == 0
        seeds.add(seed)
        assert seed not in json.dumps([done.events, resumed.events]) + done.err + resumed.err
        assert seed.encode() not in (folder / "update").read_bytes()
    assert len(seeds) == 2
    assert max(len(seed) for seed in seeds) > 16  # of 64 bits: a chance of 10^-7 that both are small


def test_divergence_is_judged_by_the_words_that_are_trained(place: Place) -> None:
    words = place.train(*SAMPLE).only("report")["output_layer"]["words"]
    found = place.train(*SAMPLE, "--lr", "1e6")
    assert (found.code, found.events[-1]["event"]) == (12, "step")
    limit = 10 * math.log(words)
    assert f"expected {limit:.6g} at most" in found.err
    assert limit < 10 * math.log(MODEL.vocabulary) - 1
