"""The 2x650 model of 30,000 words on a stand-in phone: 183 MB pushed, a step trained, its update pulled."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.adb.tool import find_adb
from phonograd.android_harness.phone_artifacts import ARTIFACTS_FOLDER, phone_artifacts
from phonograd.android_harness.session import PROGRAM, PhoneSession, SessionSettings
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import WEIGHTS, TrainingConfig
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.native_build import build_phone_binary
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.export.artifacts import export_artifacts
from phonograd.export.presets import PRESETS
from phonograd.export.torch_layout import seeded_weights
from tests.phone.stand_in import AdbServer, StandInPhone

pytestmark = pytest.mark.standin
# qemu takes a minute where a phone takes seconds.
PATIENCE_SECONDS = 1200.0


def test_a_step_at_full_size(adb_server: AdbServer, phone: StandInPhone, tmp_path: Path) -> None:
    # A small window: under qemu the usual one takes minutes, and shows no more.
    model, training = PRESETS["popov-2x650"].model, TrainingConfig(minibatch=2, bptt=3)
    words = (b"<unk>", b"<eos>", *(b"w%05d" % number for number in range(model.vocabulary - 2)))
    weights = seeded_weights(model, seed=1)
    artifacts = export_artifacts(tmp_path / "artifacts", model, training, weights, Vocabulary(words))
    nbytes = artifacts.path(WEIGHTS).stat().st_size
    assert nbytes > 183_000_000
    window = training.minibatch * training.bptt
    tokens = np.random.default_rng(1).integers(0, model.vocabulary, window).astype("<i4")
    (tmp_path / "tokens").write_bytes(tokens.tobytes())
    (tmp_path / "scratch").mkdir()
    files = {PROGRAM: build_phone_binary().path, **phone_artifacts(artifacts, tmp_path / "scratch")}
    reports: list[dict[str, Any]] = []

    def hear(at_s: float, event: dict[str, Any]) -> None:
        if event["event"] == "report":
            reports.append(event)

    with PhoneSession(Adb(find_adb()), phone.serial, SessionSettings(exit_seconds=60)) as session:
        pushed = session.sync({**files, session.transient("tokens"): tmp_path / "tokens"})
        assert pushed.nbytes == phone.counters.pushed > nbytes
        there = {file.name: file.sha256 for file in pushed.files}
        assert there[f"{ARTIFACTS_FOLDER}/{WEIGHTS}"] == artifacts.weights_sha256
        options = ("--tokens", "run/tokens", "--update", session.transient("update"), "--threads", 2)
        line = [*map(str, ("train", ARTIFACTS_FOLDER, *options))]
        session.run(line, hear, threading.Event())
        (report,) = reports
        assert report["steps"] == 1
        session.pull(session.transient("update"), tmp_path / "update", report["update"]["sha256"])
    assert sha256_of_file(tmp_path / "update") == report["update"]["sha256"]
    assert (tmp_path / "update").stat().st_size == report["update"]["nbytes"] == phone.counters.pulled
    with UpdateFile(tmp_path / "update") as update, TensorFile(artifacts.path(WEIGHTS)) as base:
        update.check(base, artifacts.weights_sha256)
        trained = update.weights(base)
    moved = {name for name, tensor in trained.items() if not np.array_equal(tensor, weights[name])}
    assert moved == set(weights)
    assert phone.processes() == []
    assert not (phone.root / "data/local/tmp/phonograd").exists()
