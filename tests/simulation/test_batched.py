"""Backend torch trains what the native engine trains, one phone at a time or several."""

import dataclasses
import json
import re
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

import phonograd
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.simulation.phone import PhoneJob, PhoneResult
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.workers import start_workers
from tests.support.artifacts import exported

LSTM = LanguageModelConfig("lstm", vocabulary=40, embedding=6, hidden=8, layers=2)
GRU = LanguageModelConfig("gru", vocabulary=40, embedding=6, hidden=8, layers=2)
TIED = LanguageModelConfig("gru", vocabulary=40, embedding=8, hidden=8, layers=1, tied=True)
PROJECTED = LanguageModelConfig("lstm", 40, 6, 8, 1, tied=True, output_bias=False)


def training(**changes: object) -> TrainingConfig:
    return TrainingConfig(minibatch=3, bptt=5, clip_norm=0.3, **changes)  # type: ignore[arg-type]


KINDS = {
    "lstm": (LSTM, training()),
    "lstm-unclipped-mean": (LSTM, TrainingConfig(3, 5, clip_norm=None, loss_reduction="mean")),
    "lstm-dropout": (LSTM, training(dropout=0.3)),
    "lstm-lwf": (LSTM, training(loss="lwf", user_share=0.3)),
    "gru": (GRU, training()),
    "gru-lwf-mean": (GRU, training(loss="lwf", loss_reduction="mean")),
    "gru-tied": (TIED, training()),
    "gru-tied-lwf-dropout": (TIED, training(loss="lwf", dropout=0.2)),
    "lstm-tied-projected": (PROJECTED, training()),
    "cifg": (msgspec.structs.replace(LSTM, cell="cifg"), training(dropout=0.3)),
    "cifg-tied-lwf": (msgspec.structs.replace(PROJECTED, cell="cifg"), training(loss="lwf")),
    "cifg-adapters": (msgspec.structs.replace(LSTM, cell="cifg", adapters=3), training()),
    "lstm-adapters": (msgspec.structs.replace(LSTM, adapters=3), training()),
    "gru-tied-adapters-lwf": (msgspec.structs.replace(TIED, adapters=3), training(loss="lwf")),
    "lstm-tied-projected-adapters": (msgspec.structs.replace(PROJECTED, adapters=2), training()),
}
GENERAL = [b"w%d w%d w%d w%d" % (n % 37, n % 5, n % 7, n % 3) for n in range(200)]
# Phones with 2 to 7 windows each, in no order of their lengths.
TEXTS = {
    f"user-{user}": [b"w%d w%d w%d" % ((user + line) % 30, user, (user * line) % 38) for line in range(lines)]
    for user, lines in enumerate((9, 25, 6, 14, 14))
}
# torch's float32 sums are in another order than the engine's.
TOLERANCE = 1e-4


def train(
    out: Path, artifacts: Artifacts, settings: SimulationSettings
) -> dict[str, tuple[PhoneResult, dict[str, Array]]]:
    """What each user's phone trained, and the weights that its update decodes to."""
    out.mkdir()
    base, base_sha256 = artifacts.path(WEIGHTS), artifacts.weights_sha256
    jobs = [
        PhoneJob(user, text, 1, base, base_sha256, place, out / user)
        for place, (user, text) in enumerate(TEXTS.items())
    ]
    with start_workers(1, artifacts, GENERAL, settings) as workers, TensorFile(base) as weights:
        found = {}
        for result in workers.train(jobs):
            with UpdateFile(out / result.user) as update:
                found[result.user] = result, update.weights(weights)
    assert sorted(found) == sorted(TEXTS)
    return found


@pytest.mark.parametrize("drawn", [None, 6], ids=["full", "sampled"])
@pytest.mark.parametrize("kind", KINDS)
def test_torch_trains_what_the_native_engine_trains(tmp_path: Path, kind: str, drawn: int | None) -> None:
    artifacts = exported(*KINDS[kind], spread=4)
    native = SimulationSettings(epochs=2, learning_rate=0.5, output_sample=drawn, codec="full-f32")
    by_torch = dataclasses.replace(native, backend="torch")
    expected = train(tmp_path / "native", artifacts, native)
    found = {
        size: train(tmp_path / f"{size}", artifacts, dataclasses.replace(by_torch, phones_per_batch=size))
        for size in (1, 3, 5)
    }
    for user, (result, weights) in expected.items():
        for size, phones in found.items():
            ours, ours_weights = phones[user]
            assert ours.tokens == result.tokens
            assert ours.losses == pytest.approx(result.losses, abs=TOLERANCE), size
            for name, values in weights.items():
                np.testing.assert_allclose(ours_weights[name], values, atol=TOLERANCE, rtol=0, err_msg=name)


MODEL = phonograd.LanguageModelConfig("lstm", vocabulary=40, embedding=6, hidden=8, layers=1)
SETTINGS = phonograd.SimulationSettings(
    rounds=2, clients_per_round=3, text_bytes=200, test_users=1, backend="torch", phones_per_batch=2
)


def run(
    out: Path,
    settings: phonograd.SimulationSettings = SETTINGS,
    general: Sequence[bytes] = GENERAL,
    stop: Callable[[], int] | None = None,
) -> phonograd.SimulationRecord:
    users = {name: [message.decode() for message in text] for name, text in TEXTS.items()}
    rehearsal = [message.decode() for message in general] or None
    artifacts = exported(MODEL, training())
    return phonograd.simulate(artifacts, users, out, settings, rehearsal=rehearsal, workers=1, stop=stop)


def models(record: phonograd.SimulationRecord) -> list[str]:
    return [ended.model_sha256 for ended in record.rounds]


def test_a_simulation_by_torch_is_as_good_over_rounds(tmp_path: Path) -> None:
    # Without rehearsal, whose draw follows from the model's hash: the last digits of a round would change the next.
    native = dataclasses.replace(SETTINGS, backend="native", phones_per_batch=None)
    expected = run(tmp_path / "native", native, general=())
    for ours, its in zip(run(tmp_path / "torch", general=()).rounds, expected.rounds, strict=True):
        assert ours.tokens == its.tokens
        assert ours.loss_last == pytest.approx(its.loss_last, abs=TOLERANCE)
        assert ours.quality is not None and its.quality is not None
        for one, other in zip(ours.quality.users, its.quality.users, strict=True):
            assert one.perplexity == pytest.approx(other.perplexity, rel=TOLERANCE)


def test_an_interrupted_simulation_by_torch_resumes_to_the_same_models(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    asked: list[int] = []

    def stop() -> int:
        asked.append(1)
        return signal.SIGTERM if len(asked) == 5 else 0

    with pytest.raises(phonograd.StoppedError, match="round 2"):
        run(tmp_path / "cut", stop=stop)
    assert models(run(tmp_path / "cut")) == models(whole)


def test_another_backend_is_another_simulation(tmp_path: Path) -> None:
    native = dataclasses.replace(SETTINGS, backend="native", phones_per_batch=None, rounds=1)
    run(tmp_path / "run", native)
    with pytest.raises(phonograd.StateError, match="holds a simulation with backend native, found torch"):
        run(tmp_path / "run")
    # A record of a version that had no other backend is one of the native engine.
    path = tmp_path / "run/simulation.json"
    document = json.loads(path.read_bytes())
    for name in ("backend", "device", "phones_per_batch"):
        del document["job"][name]
    path.write_text(json.dumps(document))
    with pytest.raises(phonograd.StateError, match="holds a simulation with backend native, found torch"):
        run(tmp_path / "run")
    assert len(run(tmp_path / "run", dataclasses.replace(native, rounds=2)).rounds) == 2


def test_divergence_is_said_as_the_native_engine_says_it(tmp_path: Path) -> None:
    found = []
    for backend, size in (("native", None), ("torch", 2)):
        settings = dataclasses.replace(SETTINGS, backend=backend, phones_per_batch=size, learning_rate=1e30)
        with pytest.raises(phonograd.TrainingError, match=r"round 1: step 2: loss is .* lower the learning") as error:
            run(tmp_path / backend, settings)
        found.append(re.sub(r"loss is \S+", "", str(error.value)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"backend": "jax"}, "`backend` is jax, expected native or torch"),
        ({"device": "tpu"}, "`device` is tpu, expected cpu or cuda with backend torch"),
        ({"backend": "native"}, "`phones_per_batch` is 2, expected none with backend native"),
        ({"backend": "native", "phones_per_batch": None, "device": "cuda"}, "`device` is cuda, expected cpu with"),
        ({"precision": "bf16"}, "`precision` is bf16, expected fp32 with backend torch"),
        ({"phones_per_batch": 0}, "`phones_per_batch` is 0, expected 1 to"),
    ],
)
def test_settings_that_do_not_go_together_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SETTINGS, **changes)


def test_without_a_gpu_device_cuda_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(phonograd.UnsupportedError, match="finds no CUDA device; use device cpu"):
        run(tmp_path, dataclasses.replace(SETTINGS, device="cuda"))


def test_without_torch_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("phonograd.simulation.batched.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(phonograd.UnsupportedError, match=r"needs PyTorch .* pip install 'phonograd\[export\]'"):
        run(tmp_path)


def test_a_batch_too_large_for_the_memory_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("phonograd.simulation.batched.batch.Batch.run", no_memory)
    with pytest.raises(phonograd.OutOfMemoryError, match="train 2 phones at once; use fewer `phones_per_batch`"):
        run(tmp_path)
