"""Rounds of strategy transfer on the native engine, from the updates to the student."""

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import ArtifactsError, PhonogradError, StoppedError, TextError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import WrittenFile
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.server_agg.aggregation.strategy import ClientUpdate
from phonograd.server_agg.refusals import InvalidUpdateError
from phonograd.server_agg.report.document import read_report
from phonograd.server_agg.rounds import coordinator as coordinators
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.student import SlowJob, Students
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.transfer import TransferSettings, transfer
from tests.server_agg.test_closing_rounds import closed, send_two
from tests.server_agg.test_rounds import files, send
from tests.server_agg.workshop import Workshop, settings_with
from tests.support.artifacts import exported

MODEL = LanguageModelConfig("lstm", vocabulary=20, embedding=8, hidden=8, layers=1)
TRAINING = TrainingConfig(minibatch=2, bptt=5, learning_rate=0.5)
ARTIFACTS = exported(MODEL, TRAINING, distill=True)
MESSAGES = [f"w{number % 17} w{number % 5} w{number % 7}".encode() for number in range(40)]


@pytest.fixture
def pupils(tmp_path: Path) -> Workshop:
    """A workshop whose artifacts can train a student."""
    return Workshop(tmp_path, MODEL, ARTIFACTS)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "general.txt"
    path.write_bytes(b"\n".join(MESSAGES) + b"\n")
    return path


def chosen(text: Path | str, rate: float | None = None) -> ServerSettings:
    learning = TransferSettings(str(text), transfer_tokens=80, transfer_lr=rate)
    return settings_with(strategy="transfer", clients_per_round=2, transfer=learning)


def student(pupils: Workshop, text: Path | None) -> str:
    """The hash of the round's model, made without a server."""
    updates = []
    for seed in (1, 2):
        path = pupils.update(seed)
        updates.append(ClientUpdate(sha256_of_file(path), 1, {}, partial(UpdateFile, path)))
    metadata = {"round": "1", "parent_sha256": pupils.base_sha256}
    settings = TransferSettings("generated" if text is None else str(text), transfer_tokens=80)
    general = None if text is None else MESSAGES
    place = pupils.folder / "alone"
    made = transfer(ARTIFACTS, pupils.base_path, updates, settings, general, place, pupils.folder / "out", metadata)
    return made.sha256


@pytest.mark.parametrize("generated", [False, True])
def test_a_round_ends_with_the_student(generated: bool, pupils: Workshop, text: Path, tmp_path: Path) -> None:
    settings = chosen("generated" if generated else text)
    with contextlib.closing(Coordinator(ARTIFACTS, tmp_path / "state", settings)) as coordinator:
        send_two(pupils, coordinator)
        assert closed(coordinator) == student(pupils, None if generated else text)


class Interrupted(Students):
    """Stops after `windows` more windows, once."""

    windows = 0

    def make(
        self, job: SlowJob, out: Path, progress: Callable[[int, int], None], stop: Callable[[], int]
    ) -> WrittenFile:
        def counted(done: int, total: int) -> None:
            progress(done, total)
            Interrupted.windows -= 1
            if Interrupted.windows == 0:
                raise StoppedError("killed", 9)

        return super().make(job, out, counted, stop)


@pytest.mark.parametrize("windows", [1, 8, 16, 17, 20, 24])  # 2 teachers and the student, 8 windows each
def test_an_interrupted_student_is_the_same(
    windows: int, pupils: Workshop, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinators, "Students", Interrupted)
    monkeypatch.setattr(Interrupted, "windows", windows)
    with contextlib.closing(Coordinator(ARTIFACTS, tmp_path / "state", chosen(text))) as coordinator:
        send_two(pupils, coordinator)
        while coordinator.current.round == 1:
            coordinator.tick()
        assert coordinator.current.base_sha256 == student(pupils, text)
    assert Interrupted.windows < 0


def test_a_student_that_diverges_fails_the_round(pupils: Workshop, text: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with contextlib.closing(Coordinator(ARTIFACTS, state, chosen(text, rate=1e38))) as coordinator:
        send_two(pupils, coordinator)
        assert closed(coordinator) == pupils.base_sha256
        assert len(files(state / "updates")) == 2
        assert files(state / "closing") == set()
    (first, _) = read_report(state)["rounds"]
    assert first["ending"] == "failed"
    assert "transfer learning: the loss is" in first["reason"]
    assert "training diverged: lower `transfer_lr`" in first["reason"]


def test_a_teacher_that_is_not_finite_is_refused_when_it_comes(pupils: Workshop, text: Path, tmp_path: Path) -> None:
    with contextlib.closing(Coordinator(ARTIFACTS, tmp_path / "state", chosen(text))) as coordinator:
        wild = {name: np.full_like(values, 3e38) for name, values in pupils.trained(1).items()}
        with pytest.raises(InvalidUpdateError, match="differences from the base below"):
            send(coordinator, pupils.update(1, trained=wild), "a")


# What a start refuses


def plain_artifacts() -> Artifacts:
    return exported(MODEL, TRAINING)


@pytest.mark.parametrize(
    ("artifacts", "general", "error", "message"),
    [
        (plain_artifacts, "generated", ArtifactsError, "training_model_distill.onnx expected for transfer"),
        (lambda: ARTIFACTS, "nowhere.txt", TextError, "nowhere.txt: cannot be opened: No such file"),
        (lambda: ARTIFACTS, "short.txt", TextError, "general text: 10 tokens expected .* found 3; give more text"),
    ],
)
def test_a_start_without_what_the_student_needs(
    artifacts: Callable[[], Artifacts],
    general: str,
    error: type[PhonogradError],
    message: str,
    tmp_path: Path,
) -> None:
    (tmp_path / "short.txt").write_bytes(b"w1 w2\n")
    place = general if general == "generated" else tmp_path / general
    state = tmp_path / "state"
    with pytest.raises(error, match=message):
        Coordinator(artifacts(), state, chosen(place))
    assert not state.exists()


def test_generated_text_must_fill_a_window(tmp_path: Path) -> None:
    settings = settings_with(strategy="transfer", transfer=TransferSettings(transfer_tokens=9))
    with pytest.raises(TextError, match="found 9; give more text or raise `transfer_tokens`"):
        Coordinator(ARTIFACTS, tmp_path / "state", settings)


def test_a_round_that_was_begun_keeps_its_text(pupils: Workshop, text: Path, tmp_path: Path) -> None:
    """A restart with another strategy closes it as it began, and refuses where that cannot be."""
    state = tmp_path / "state"
    with contextlib.closing(Coordinator(ARTIFACTS, state, chosen(text))) as coordinator:
        send(coordinator, pupils.update(1), "a")
    averaging = settings_with(clients_per_round=2)
    aside = text.rename(tmp_path / "aside")
    with pytest.raises(TextError, match=r"general.txt: cannot be opened"):
        Coordinator(ARTIFACTS, state, averaging)
    aside.rename(text)
    with contextlib.closing(Coordinator(ARTIFACTS, state, averaging)) as coordinator:
        assert coordinator.current.strategy == "transfer"
        send(coordinator, pupils.update(2), "b")
        assert closed(coordinator) == student(pupils, text)
        assert coordinator.current.strategy == "fedavg"


def test_other_settings_of_the_student_are_taken_before_the_first_update(
    pupils: Workshop, text: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    for place in ("generated", text):
        with contextlib.closing(Coordinator(ARTIFACTS, state, chosen(place))) as coordinator:
            pass
    with contextlib.closing(Coordinator(ARTIFACTS, state, chosen(text))) as coordinator:
        send_two(pupils, coordinator)
        assert closed(coordinator) == student(pupils, text)


@pytest.mark.parametrize(("setting", "value"), [("server_optimizer", "adam"), ("server_lr", 0.5)])
def test_a_server_optimizer_does_not_go_with_students(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match="expected 'none' with 1 for transfer"):
        settings_with(strategy="transfer", **{setting: value})
