"""Transfer learning: the student of paper P's eq. 4, the same bits however it is run or interrupted, and in rounds."""

import contextlib
import errno
import functools
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import (
    ArtifactsError,
    PhonogradError,
    StoppedError,
    StorageError,
    TextError,
    TrainingError,
    WeightsError,
)
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.engine.backend import IGNORED, BackendOptions, Window
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import (
    Array,
    Floats,
    TensorFile,
    WrittenFile,
    load_tensors,
    save_tensors,
)
from phonograd.device_runtime.text.sampling import draw_texts
from phonograd.device_runtime.text.vocabulary import EOS, Ids
from phonograd.device_runtime.text.windows import windows
from phonograd.server_agg.aggregation.strategy import ClientUpdate
from phonograd.server_agg.refusals import InvalidUpdateError
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.transfer import closing
from phonograd.server_agg.transfer.closing import transfer
from phonograd.server_agg.transfer.settings import TransferSettings
from phonograd.server_agg.transfer.text import drawn_text, generated_text
from tests.server_agg.coordinators import send
from tests.server_agg.faults import raising
from tests.server_agg.slow_models import model_after, send_two
from tests.server_agg.trained_weights import TrainedWeights, decoded, stored
from tests.server_agg.workshop import Workshop, settings_with
from tests.support.artifacts import exported, words
from tests.support.margins import Margin

V, T, B = 20, 5, 2
MODEL = LanguageModelConfig("lstm", vocabulary=V, embedding=8, hidden=8, layers=1)
TRAINING = TrainingConfig(minibatch=B, bptt=T, learning_rate=0.5, dropout=0.2)
PLAIN = TrainingConfig(minibatch=B, bptt=T, learning_rate=0.5)
GENERAL = [f"w{number % 17} w{number % 5} w{number % 7} w{number % 3}".encode() for number in range(40)]
TOKENS = 77  # eight windows, the last one padded
SETTINGS = TransferSettings("general.txt", transfer_tokens=TOKENS)
WINDOW_BYTES = 4 * T * B * V


@functools.cache
def pupil() -> Artifacts:
    """Artifacts that can train a student; made here and not on import, as PyTorch exports them."""
    return exported(MODEL, TRAINING, spread=4, distill=True)


def base_path() -> Path:
    return pupil().path(WEIGHTS)


def update_of(name: str, weights: Mapping[str, Array]) -> ClientUpdate:
    return ClientUpdate(name * 64, 1, {}, lambda: decoded(TrainedWeights(weights), base_path()))


def moved_weights(seed: int) -> dict[str, Array]:
    """The base's weights, each a little elsewhere."""
    random = np.random.default_rng(seed)
    return {
        name: values + random.normal(0, 0.3, values.shape).astype(np.float32)
        for name, values in load_tensors(base_path()).items()
    }


def learn(*given: Any, artifacts: Artifacts | None = None, **named: Any) -> WrittenFile:
    """Make the student from updates, settings, messages, and so on, as `transfer` takes them."""
    return transfer(artifacts or pupil(), base_path(), *given, **named)


@functools.cache
def three_updates() -> list[ClientUpdate]:
    return [update_of(name, moved_weights(number)) for number, name in enumerate("abc")]


def student(
    folder: Path,
    settings: TransferSettings = SETTINGS,
    updates: Sequence[ClientUpdate] | None = None,
    threads: int = 1,
    general: Sequence[bytes] | None = GENERAL,
) -> bytes:
    """The bytes of the model that the round makes."""
    folder.mkdir(exist_ok=True)
    out = folder / "model"
    general = None if settings.generated else general
    updates = three_updates() if updates is None else updates
    learn(updates, settings, general, folder / "work", out, {"round": "3"}, threads=threads)
    return out.read_bytes()


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are cut into parts of three windows."""
    monkeypatch.setattr(closing, "PREDICTIONS_BYTES", 3 * WINDOW_BYTES)


def test_the_student_is_torchs(tmp_path: Path, small_parts: None) -> None:
    settings = TransferSettings("general.txt", transfer_tokens=TOKENS, transfer_epochs=2, transfer_lr=0.3)
    work, plain = tmp_path / "work", exported(MODEL, PLAIN, spread=4, distill=True)
    written = learn(three_updates(), settings, GENERAL, work, tmp_path / "model", {}, artifacts=plain)
    with TensorFile(tmp_path / "model") as file:
        assert file.sha256() == written.sha256
        found = {name: file.read(name) for name in file.specs}
    ids = np.frombuffer((tmp_path / "work" / "text-0.ids").read_bytes(), "<i8").astype(np.int64)
    layout = list(windows(ids, B, T))
    expected = load_tensors(base_path())
    for _ in range(2):
        for part in range(0, len(layout), 3):  # a part begins with zero states
            expected = torch_student(expected, layout[part : part + 3], 0.3)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, atol=1e-5, rtol=1e-5, err_msg=name)


def torch_student(start: Mapping[str, Array], layout: Sequence[Window], rate: float) -> dict[str, Array]:
    """Weights after training on the windows, by PyTorch."""
    import torch

    from phonograd.export.torch_model import LanguageModel

    teachers = [LanguageModel(MODEL) for _ in three_updates()]
    for number, teacher in enumerate(teachers):
        teacher.load(moved_weights(number))
    model = LanguageModel(MODEL)
    model.load(start)
    states = [other.zero_state(B) for other in (model, *teachers)]
    for window in layout:
        tokens, counts = torch.from_numpy(window.tokens), torch.from_numpy(window.targets != IGNORED)
        with torch.no_grad():
            made = [teacher(tokens, state) for teacher, state in zip(teachers, states[1:], strict=True)]
            mean = sum(torch.softmax(logits, -1) for logits, _ in made) / len(made)
        logits, state = model(tokens, states[0])
        model.zero_grad()
        loss = -(mean * torch.log_softmax(logits, -1)).sum(-1)[counts].sum() / B
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), PLAIN.clip_norm)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= rate * parameter.grad
        states = [tuple(part.detach() for part in kept) for kept in (state, *(after for _, after in made))]
    return model.weights()


def test_neither_order_nor_threads_change_a_bit(tmp_path: Path) -> None:
    expected = student(tmp_path / "1")
    assert student(tmp_path / "2", updates=three_updates()[::-1], threads=3) == expected
    assert student(tmp_path / "3", updates=three_updates()[:2]) != expected


class Killed(BaseException):
    """Ends a call as a kill would, as far as files go."""


@pytest.mark.usefixtures("small_parts")
def test_it_resumes_to_the_same_bits(tmp_path: Path) -> None:
    settings = TransferSettings("generated", transfer_tokens=TOKENS, transfer_cycles=2, transfer_epochs=2)
    expected = student(tmp_path / "whole", settings)
    seen: list[tuple[int, int]] = []
    work, out = tmp_path / "work", tmp_path / "model"
    for _ in range(40):
        steps = iter(range(14))  # less than two parts

        def note_or_die(done: int, total: int, steps: Iterator[int] = steps) -> None:
            seen.append((done, total))
            if next(steps, None) is None:
                raise Killed

        with contextlib.suppress(Killed):
            learn(three_updates(), settings, None, work, out, {"round": "3"}, note_or_die, threads=1)
            break
    assert out.read_bytes() == expected
    assert seen[-1] == (128, 128)  # 2 cycles x 2 epochs x 8 windows x (3 teachers + 1 student)
    assert len(seen) > 128, "it was never killed"


def test_a_signal_stops_it(tmp_path: Path) -> None:
    with pytest.raises(StoppedError) as stopped:
        learn(three_updates(), SETTINGS, GENERAL, tmp_path, tmp_path / "m", {}, stop=lambda: signal.SIGTERM)
    assert stopped.value.exit_code == 128 + signal.SIGTERM


def test_work_of_other_updates_is_not_resumed(tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "model"
    learn(three_updates()[:1], SETTINGS, GENERAL, work, out, {"round": "3"})
    learn(three_updates(), SETTINGS, GENERAL, work, out, {"round": "3"})
    assert out.read_bytes() == student(tmp_path / "fresh")


def test_epochs_of_one_part_ask_the_teachers_once(tmp_path: Path) -> None:
    settings = TransferSettings("general.txt", transfer_tokens=TOKENS, transfer_epochs=3)
    totals: set[int] = set()
    out = tmp_path / "model"
    learn(three_updates(), settings, GENERAL, tmp_path, out, {}, lambda _, total: totals.add(total))
    assert totals == {8 * 3 + 8 * 3}


@pytest.mark.learns
def test_a_student_of_one_teacher_comes_closer_to_it(tmp_path: Path, margin: Margin, seed: int, threads: int) -> None:
    settings = TransferSettings("general.txt", transfer_tokens=200, transfer_epochs=30)
    teacher = moved_weights(seed)
    student(tmp_path / "student", settings, [update_of("a", teacher)], threads)
    frozen = load_tensors(base_path())
    trained = load_tensors(tmp_path / "student" / "model")
    text = np.arange(40).reshape(20, 2) % V
    target = _chances(teacher, text, tmp_path)
    before, after = (np.abs(_chances(weights, text, tmp_path) - target).sum() for weights in (frozen, trained))
    margin("distance of the student, of that before", after / before, high=0.5)


def _chances(weights: Mapping[str, Array], tokens: Ids, folder: Path) -> Floats:
    save_tensors(folder / "weights", weights)
    backend = NativeBackend(pupil(), folder / "weights", BackendOptions())
    scores = backend.logits(tokens).astype(np.float64)
    backend.close()
    chances = np.exp(scores)
    return chances / chances.sum(axis=1, keepdims=True)


def test_drawn_text_has_each_message_once_and_the_size_asked_for() -> None:
    vocabulary = words(V)
    messages = [f"w{number}".encode() for number in range(18)]
    text = drawn_text(messages, vocabulary, 1000, seed=4)
    assert sorted(text) == sorted(vocabulary.encode(messages))
    assert list(text) != list(vocabulary.encode(messages))
    cut = drawn_text(messages, vocabulary, 9, seed=4)
    assert list(cut[:8]) == list(text[:8])
    assert len(cut) == 9
    assert cut[-1] == EOS
    assert list(drawn_text(messages, vocabulary, 9, seed=5)) != list(cut)


def test_generated_text_is_the_models_own() -> None:
    model = NativeBackend(pupil(), None, BackendOptions())
    text = generated_text(model, V, 502, seed=1)
    assert (len(text), text[-1]) == (502, EOS)
    drawn = draw_texts(model, V, 2, 251, seed=1).ids.T.reshape(-1)
    np.testing.assert_array_equal(text[:-1], drawn[:-1])
    assert list(generated_text(model, V, 60, seed=1)) != list(generated_text(model, V, 60, seed=2))
    model.close()


def test_what_it_refuses(tmp_path: Path) -> None:
    work, out = tmp_path / "work", tmp_path / "model"
    broken = moved_weights(1)
    broken["decoder.bias"][3] = np.nan
    with pytest.raises(WeightsError, match=r"update bad.*: tensor decoder\.bias: element 3 is nan.*discard it"):
        learn([*three_updates(), update_of("bad", broken)], SETTINGS, GENERAL, work, out, {})
    assert not out.exists()
    with pytest.raises(ValueError, match="no teachers"):
        learn([], SETTINGS, GENERAL, work, out, {})


@pytest.mark.parametrize("factor", [1e38, 5e18])  # weights, and scores, that are too large
def test_a_teacher_that_overflows_is_named(tmp_path: Path, factor: float) -> None:
    huge = {name: values * np.float32(factor) for name, values in moved_weights(1).items()}
    updates = [three_updates()[0], update_of("big", huge)]
    with pytest.raises(WeightsError, match=r"^update big.*; discard it$"):
        learn(updates, SETTINGS, GENERAL, tmp_path / "work", tmp_path / "model", {})


def test_a_rate_that_diverges_is_named(tmp_path: Path) -> None:
    artifacts = exported(MODEL, TrainingConfig(minibatch=B, bptt=T, clip_norm=None), spread=4, distill=True)
    settings = TransferSettings("general.txt", transfer_tokens=TOKENS, transfer_epochs=20, transfer_lr=1e30)
    with pytest.raises(TrainingError, match=r"diverged: lower `transfer_lr` \(1e\+30\)"):
        learn(three_updates(), settings, GENERAL, tmp_path / "work", tmp_path / "model", {}, artifacts=artifacts)


def test_a_full_disk_is_found_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows_done: list[int] = []
    work, out = tmp_path / "work", tmp_path / "model"
    with monkeypatch.context() as patched, pytest.raises(StorageError, match="No space left on device"):
        patched.setattr(os, "posix_fallocate", raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        learn(three_updates(), SETTINGS, GENERAL, work, out, {}, lambda done, _: windows_done.append(done))
    assert not windows_done
    learn(three_updates(), SETTINGS, GENERAL, work, out, {"round": "3"})
    assert out.read_bytes() == student(tmp_path / "fresh")
    assert sorted(path.name for path in work.iterdir()) == ["job.json", "student.safetensors", "text-0.ids"]


def test_space_that_cannot_be_reserved_is_taken_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """macOS has no call that reserves it."""
    monkeypatch.delattr(os, "posix_fallocate")
    work, out = tmp_path / "work", tmp_path / "model"
    learn(three_updates(), SETTINGS, GENERAL, work, out, {"round": "3"})
    assert out.read_bytes() == student(tmp_path / "fresh")


@pytest.mark.parametrize("setting", [{"transfer_tokens": 0}, {"transfer_lr": 0.0}, {"general": ""}])
def test_settings_out_of_range_are_named(setting: dict[str, float | str]) -> None:
    with pytest.raises(ValueError, match=next(iter(setting))):
        TransferSettings(**setting)  # type: ignore[arg-type]


@pytest.fixture
def pupils(tmp_path: Path) -> Workshop:
    """A workshop whose artifacts can train a student."""
    return Workshop(tmp_path, MODEL, pupil())


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "general.txt"
    path.write_bytes(b"\n".join(GENERAL) + b"\n")
    return path


def transfer_settings(text: Path | str, rate: float | None = None) -> ServerSettings:
    learning = TransferSettings(str(text), transfer_tokens=80, transfer_lr=rate)
    return settings_with(strategy="transfer", clients_per_round=2, transfer=learning)


def student_alone(pupils: Workshop, text: Path | None) -> str:
    """The hash of the round's model, made without a server."""
    updates = []
    for seed in (1, 2):
        path = pupils.update(seed)
        updates.append(ClientUpdate(sha256_of_file(path), 1, {}, partial(stored, path, base_path())))
    metadata = {"round": "1", "parent_sha256": pupils.base_sha256}
    settings = TransferSettings("generated" if text is None else str(text), transfer_tokens=80)
    general = None if text is None else GENERAL
    place = pupils.folder / "alone"
    made = transfer(pupil(), pupils.base_path, updates, settings, general, place, pupils.folder / "out", metadata)
    return made.sha256


@pytest.mark.parametrize("generated", [False, True])
def test_a_round_ends_with_the_student(generated: bool, pupils: Workshop, text: Path, tmp_path: Path) -> None:
    settings = transfer_settings("generated" if generated else text)
    with contextlib.closing(Coordinator(pupil(), tmp_path / "state", settings)) as coordinator:
        send_two(pupils, coordinator)
        assert model_after(coordinator) == student_alone(pupils, None if generated else text)


def test_a_teacher_that_is_not_finite_is_refused_when_it_comes(pupils: Workshop, text: Path, tmp_path: Path) -> None:
    with contextlib.closing(Coordinator(pupil(), tmp_path / "state", transfer_settings(text))) as coordinator:
        wild = {name: np.full_like(values, 3e38) for name, values in pupils.trained(1).items()}
        with pytest.raises(InvalidUpdateError, match="differences from the base below"):
            send(coordinator, pupils.update(1, trained=wild), "a")


# What a start refuses


@pytest.mark.parametrize(
    ("artifacts", "general", "error", "message"),
    [
        (
            lambda: exported(MODEL, TRAINING),
            "generated",
            ArtifactsError,
            r"training_model_distill\.onnx expected for transfer .* export .* `--distill`",
        ),
        (pupil, "nowhere.txt", TextError, "nowhere.txt: cannot be opened: No such file"),
        (pupil, "short.txt", TextError, "general text: 10 tokens expected .* found 3; give more text"),
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
        Coordinator(artifacts(), state, transfer_settings(place))
    assert not state.exists()


def test_generated_text_must_fill_a_window(tmp_path: Path) -> None:
    settings = settings_with(strategy="transfer", transfer=TransferSettings(transfer_tokens=9))
    with pytest.raises(TextError, match="found 9; give more text or raise `transfer_tokens`"):
        Coordinator(pupil(), tmp_path / "state", settings)


def test_a_round_that_was_begun_keeps_its_text(pupils: Workshop, text: Path, tmp_path: Path) -> None:
    """A restart with another strategy closes it as it began, and refuses where that cannot be."""
    state = tmp_path / "state"
    with contextlib.closing(Coordinator(pupil(), state, transfer_settings(text))) as coordinator:
        send(coordinator, pupils.update(1), "a")
    averaging = settings_with(clients_per_round=2)
    aside = text.rename(tmp_path / "aside")
    with pytest.raises(TextError, match=r"general.txt: cannot be opened"):
        Coordinator(pupil(), state, averaging)
    aside.rename(text)
    with contextlib.closing(Coordinator(pupil(), state, averaging)) as coordinator:
        assert coordinator.current.strategy == "transfer"
        send(coordinator, pupils.update(2), "b")
        assert model_after(coordinator) == student_alone(pupils, text)
        assert coordinator.current.strategy == "fedavg"


def test_other_settings_of_the_student_are_taken_before_the_first_update(
    pupils: Workshop, text: Path, state: Path
) -> None:
    for place in ("generated", text):
        with contextlib.closing(Coordinator(pupil(), state, transfer_settings(place))) as coordinator:
            pass
    with contextlib.closing(Coordinator(pupil(), state, transfer_settings(text))) as coordinator:
        send_two(pupils, coordinator)
        assert model_after(coordinator) == student_alone(pupils, text)


@pytest.mark.parametrize(("setting", "value"), [("server_optimizer", "adam"), ("server_lr", 0.5)])
def test_a_server_optimizer_does_not_go_with_students(setting: str, value: object) -> None:
    with pytest.raises(ValueError, match="expected 'none' with 1 for transfer"):
        settings_with(strategy="transfer", **{setting: value})
