"""phonograd phone-bench against stand-in phones, by real adb clients: tables, bytes, faults, signals."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from phonograd.android_harness.report.document import schema
from phonograd.android_harness.session import SessionSettings
from phonograd.android_harness.timing import bench as timing
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.formats.manifest import MANIFEST, WEIGHTS, FileEntry, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import save_tensors
from phonograd.export.torch_layout import seeded_weights
from tests.phone.stand_in import AdbServer, StandInPhone
from tests.support.artifacts import exported
from tests.support.command_line import Outcome
from tests.support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.standin
WORK = "data/local/tmp/phonograd"
MODEL = LanguageModelConfig("lstm", vocabulary=100, embedding=8, hidden=8, layers=1)
UNHURRIED = ("--set", "bench.cooldown_seconds=0")
QUICK = (*UNHURRIED, "--epochs", 1, "--set", "bench.warm_up=0", "--set", "bench.codecs=false", "--quiet")


class Benched(Outcome):
    """What a bench did."""

    @property
    def phones(self) -> list[dict[str, Any]]:
        phones: list[dict[str, Any]] = json.loads(self.out)["phones"]
        return phones


Bench = Callable[..., Benched]


@pytest.fixture
def bench(capfd: pytest.CaptureFixture[str]) -> Bench:
    """`phonograd phone-bench` in this process."""

    def call(*arguments: object) -> Benched:
        capfd.readouterr()
        code = run(phonograd, ["phone-bench", *map(str, arguments)])
        captured = capfd.readouterr()
        return Benched(code, captured.out, captured.err)

    return call


def tiny(training: TrainingConfig) -> Path:
    """A tiny model's artifacts. An epoch with the paper's minibatches takes a stand-in some seconds."""
    return exported(MODEL, training).folder


@pytest.fixture
def gone_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost phone is waited for a moment only: this test does not bring it back."""
    monkeypatch.setattr(timing, "SessionSettings", partial(SessionSettings, reconnect_seconds=0.5))


def training(phone: StandInPhone) -> bool:
    """Whether it trains now."""
    return any("phonograd-phone train" in line for line in phone.processes())


@pytest.fixture(scope="module")
def artifacts() -> Path:
    return tiny(TrainingConfig(minibatch=2, bptt=5))


@pytest.fixture(scope="module")
def next_round(artifacts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same folder with other weights."""
    folder = shutil.copytree(artifacts, tmp_path_factory.mktemp("next") / "artifacts")
    manifest = open_artifacts(folder).manifest
    file = save_tensors(folder / WEIGHTS, seeded_weights(manifest.model, 2))
    entries = {**manifest.files, WEIGHTS: FileEntry(file.nbytes, file.sha256)}
    msgspec.structs.replace(manifest, files=entries).write(folder)
    return folder


@pytest.fixture(scope="module")
def longer() -> Path:
    """Artifacts whose epochs take a stand-in some seconds: something can happen in the middle of one."""
    return tiny(TrainingConfig())


def left_on(phone: StandInPhone) -> list[str]:
    """Files in the phone's place for them."""
    place = phone.root / "data/local/tmp"
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


def pushed_since(phones: Sequence[StandInPhone], before: Sequence[int]) -> list[int]:
    return [phone.counters.pushed - was for phone, was in zip(phones, before, strict=True)]


def test_two_phones_at_once_and_only_missing_files(
    two_phones: list[StandInPhone], bench: Bench, artifacts: Path, next_round: Path, tmp_path: Path
) -> None:
    out = tmp_path / "result.json"
    page = tmp_path / "phones.html"
    first = bench(artifacts, "--epochs", 1, *UNHURRIED, "--keep", "--json", "--out", out, "--html", page)
    assert first.code == 0, first.err
    drawn = page.read_text("utf-8")  # browsers look at pages in test_report_browser
    assert all(phone.spec.model in drawn and phone.serial in drawn for phone in two_phones)
    document = json.loads(first.out)
    jsonschema.validate(document, dict(schema()))
    assert json.loads(out.read_text()) == document
    models = [phone["facts"]["model"] for phone in document["phones"]]
    assert sorted(models) == ["Stand-in A53", "Stand-in max"]
    for phone in document["phones"]:
        assert phone["failure"] is None
        assert [epoch["warm_up"] for epoch in phone["epochs"]] == [True, False]
        diagnosis = {(epoch["loss_first"], epoch["loss_last"]) for epoch in phone["epochs"]}
        assert len(diagnosis) == 1, "every epoch begins with the same weights"
        assert all(len(epoch["steps"]) == 20 for epoch in phone["epochs"])
        assert {"rows-f32", "delta-int8", "top-rows"} <= {cost["codec"] for cost in phone["epochs"][-1]["codecs"]}
        assert phone["samples"]
    before = [phone.counters.pushed for phone in two_phones]
    assert before == [phone["pushed"]["nbytes"] for phone in document["phones"]]
    assert all(count > 1_000_000 for count in before)

    second = bench(artifacts, *QUICK, "--keep", "--compare", out)
    assert second.code == 0, second.err
    assert pushed_since(two_phones, before) == [0, 0]
    assert all(model in second.out for model in models)

    third = bench(next_round, *QUICK, "--output-sample", 5, "--json")
    assert third.code == 0, third.err
    for phone in third.phones:
        full, sampled = (epoch["output_layer"] for epoch in phone["epochs"])
        assert (full["kind"], sampled["kind"]) == ("full", "sampled")
        assert sampled["words"] < full["words"]
    changed = (next_round / WEIGHTS).stat().st_size
    for phone, nbytes in zip(third.phones, pushed_since(two_phones, before), strict=True):
        files = {file["name"]: file["nbytes"] for file in phone["pushed"]["files"] if file["pushed"]}
        assert set(files) == {f"artifacts/{WEIGHTS}", f"artifacts/{MANIFEST}"}
        assert files[f"artifacts/{WEIGHTS}"] == changed
        assert nbytes == sum(files.values()) < changed + 5000
    for phone in two_phones:
        assert left_on(phone) == []
        assert phone.processes() == []


def test_a_signal_ends_the_phones_work_and_keeps_what_was_measured(
    adb_server: AdbServer, phone: StandInPhone, longer: Path
) -> None:
    line = [sys.executable, "-m", "phonograd", "phone-bench", longer, *QUICK, "--json"]
    with subprocess.Popen(
        [*map(str, line)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        until(lambda: training(phone))
        os.killpg(process.pid, signal.SIGTERM)  # as a terminal does it
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 128 + signal.SIGTERM
    # Where nothing is compiled yet, a line before it says so.
    assert err.splitlines()[-1] == f"phonograd: phone {phone.serial}: stopped after 0 of 1 epochs"
    (result,) = json.loads(out)["phones"]
    assert result["failure"]["exit_code"] == 128 + signal.SIGTERM
    assert result["pushed"]["nbytes"] > 1_000_000
    assert phone.processes() == []
    assert left_on(phone) == []
    assert adb_server.is_running


@pytest.mark.both_adbs
def test_a_cable_pulled_in_mid_push(gone_for_good: None, phone: StandInPhone, bench: Bench, longer: Path) -> None:
    phone.drop_in_push(after_bytes=300_000)
    done = bench(longer, *QUICK, "--json")
    (result,) = done.phones
    assert done.code == result["failure"]["exit_code"] == 21
    message = f"phone {phone.serial}: disconnected while files were pushed (cable pulled"
    assert result["failure"]["message"].startswith(message)
    until(lambda: phone.processes() == [] and not (phone.root / WORK / "lock").exists())


def test_an_aborted_run_leaves_nothing_that_the_next_one_does_not_remove(
    phone: StandInPhone, bench: Bench, longer: Path, artifacts: Path
) -> None:
    line = [sys.executable, "-m", "phonograd", "phone-bench", longer, *QUICK]
    with subprocess.Popen([*map(str, line)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: training(phone))
        process.send_signal(signal.SIGKILL)
    until(lambda: phone.processes() == [])  # adb's own clients live on, and end with their pipes
    until(lambda: not (phone.root / WORK / "lock").exists())
    done = bench(artifacts, *QUICK)
    assert done.code == 0, done.err
    assert left_on(phone) == []
