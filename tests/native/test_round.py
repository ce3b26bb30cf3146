"""Python's face of a round: progress, stopping, what a callback raises, and ids in place of texts.

tests/native/test_round_abi.py holds the round itself to the phone's command.
"""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from phonograd.device_runtime.base.errors import StoppedError, TextError, UsageError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.rehearsal import mix
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.training.round import ResumableState, Round, RoundSettings, Trained
from tests.support.phone_command import STEPS, Place

ONE_THREAD = BackendOptions(threads=1)


def settings_of(place: Place, tmp_path: Path, **changes: object) -> RoundSettings:
    settings = RoundSettings(
        folder=place.artifacts.folder, user=place.user, seed=0, update=tmp_path / "update", options=ONE_THREAD
    )
    return replace(settings, **changes)


def finish(settings: RoundSettings) -> Trained:
    with Round(settings) as round_:
        return round_.train()


def test_progress_is_told_and_reported(place: Place, tmp_path: Path) -> None:
    heard: list[tuple[int, int, float]] = []
    with Round(settings_of(place, tmp_path)) as round_:
        text = round_.text
        trained = round_.train(lambda *step: heard.append(step))
    report = trained.report
    assert heard == [(step, STEPS, loss) for step, loss in enumerate(report.losses, 1)]
    assert (report.user_tokens, report.user_unknown_share) == (text.user_tokens, text.user_unknown_share)
    assert trained.update is not None
    assert trained.update.sha256 == sha256_of_file(tmp_path / "update")
    assert (trained.weights, trained.seed, report.user_share) == (None, 0, text.user_share)


def test_ids_train_as_the_text_that_they_are_of(place: Place, tmp_path: Path) -> None:
    vocabulary = Vocabulary.load(place.artifacts.path(VOCABULARY))
    texts = read_messages(place.user), read_messages(place.general)
    stream = mix(*texts, 0.8, vocabulary, 0).stream
    mixed = finish(settings_of(place, tmp_path, rehearsal=place.general, user_share=0.8))
    known = {"weights": place.artifacts.path(WEIGHTS), "weights_sha256": place.artifacts.weights_sha256}
    assert finish(settings_of(place, tmp_path, user=None, stream=stream, **known)).update == mixed.update
    memory = {"user": place.user.read_bytes(), "rehearsal": place.general.read_bytes(), "user_share": 0.8}
    assert finish(settings_of(place, tmp_path, **memory)).update == mixed.update


@pytest.mark.parametrize("saved", [False, True])
def test_a_stop_is_an_error_that_says_what_is_left(place: Place, tmp_path: Path, saved: bool) -> None:
    whole = finish(settings_of(place, tmp_path)).update
    (tmp_path / "update").unlink()
    state = ResumableState(tmp_path / "state") if saved else None
    settings, steps = settings_of(place, tmp_path, state=state), list[int]()
    left = "the state is saved: run the same command to resume" if saved else "nothing is saved"
    with Round(settings) as round_, pytest.raises(StoppedError, match=f"after step 7 of {STEPS}; {left}") as found:
        round_.train(lambda step, *_: steps.append(step), lambda: 15 * (len(steps) == 7))
    assert (found.value.exit_code, (tmp_path / "update").exists()) == (143, False)
    with Round(settings) as round_, pytest.raises(StoppedError, match=f"after step {7 * saved} of"):
        round_.train(stop=lambda: 2)
    with Round(settings) as round_:
        again = round_.train()
        round_.discard_state()
    assert (again.update, again.report.resumed_at) == (whole, 7 * saved)
    assert len(again.report.losses) == STEPS


@pytest.mark.parametrize("kind", [LookupError, KeyboardInterrupt])
@pytest.mark.parametrize("which", ["progress", "stop"])
def test_what_a_callback_raises_ends_the_training(
    place: Place, tmp_path: Path, kind: type[BaseException], which: str
) -> None:
    asked: list[object] = []

    def failing(*heard: object) -> int:
        asked.append(heard)
        if len(asked) == 3:
            raise kind
        return 0

    with Round(settings_of(place, tmp_path)) as round_, pytest.raises(kind):
        round_.train(**{which: failing})
    assert len(asked) == 3
    assert not (tmp_path / "update").exists()


def test_an_interrupt_ends_the_training_wherever_it_comes(place: Place, tmp_path: Path) -> None:
    """The library runs, here in a rest of days, and the interrupt is raised before a callback's first line."""
    asked: list[int] = []

    def stop() -> int:
        asked.append(1)
        if len(asked) == 3:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        return 15 * (len(asked) > 1000)

    before = signal.getsignal(signal.SIGINT)
    with Round(settings_of(place, tmp_path, duty=1e-9)) as round_, pytest.raises(KeyboardInterrupt):
        round_.train(stop=stop)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"stream": np.arange(30)}, UsageError, "`user`, `tokens` and `stream` exclude each other"),
        ({"user": None}, UsageError, "`user`: no text"),
        (
            {"user": None, "stream": np.array([1, 600])},
            TextError,
            "token 1 is 600, expected an id from 0 to",
        ),
        ({"user": None, "stream": np.array([-1])}, TextError, "token 0 is -1"),
        ({"weights_sha256": "abc"}, UsageError, "weights_sha256: 64 lower-case hexadecimal digits expected"),
    ],
)
def test_refusals(place: Place, tmp_path: Path, changes: dict[str, object], kind: type, said: str) -> None:
    with pytest.raises(kind, match=said):
        Round(settings_of(place, tmp_path, **changes))
