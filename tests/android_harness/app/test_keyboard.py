"""Keyboard on a JVM, with Android's library: what it suggests, what it takes back, what it refuses."""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import phonograd
from phonograd.android_harness.app import Tools
from phonograd.device_runtime.engine.personal import PersonalWords
from phonograd.device_runtime.engine.predictor import SuggestOptions
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.native_build.targets import NATIVE
from phonograd.device_runtime.text.vocabulary import EOS_WORD, UNK_WORD, Vocabulary
from tests.android_harness.app.jvm import Jvm
from tests.android_harness.app.libraries import Libraries, android_library
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.apk

WORDS = ("😀", "😁😁", "café", "cafés", "see", "you", "to", "tonight", "👩‍👩‍👧", "日本", *(f"w{n}" for n in range(60)))
MODEL = LanguageModelConfig("lstm", vocabulary=len(WORDS) + 2, embedding=20, hidden=24, layers=2)
CLOSED = ["IllegalStateException", "the keyboard is closed; open another"]
DONE = [None]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    from phonograd.export.artifacts import export_artifacts
    from phonograd.export.torch_layout import seeded_weights

    weights = {name: array * np.float32(14) for name, array in seeded_weights(MODEL, 1).items()}
    vocabulary = Vocabulary((UNK_WORD, EOS_WORD, *(word.encode() for word in WORDS)))
    folder = tmp_path_factory.mktemp("model") / "artifacts"
    return export_artifacts(folder, MODEL, TrainingConfig(), weights, vocabulary)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    """Android's; this host's is that of test_example_keyboard."""
    return android_library(tmp_path_factory.mktemp("libraries"))


def drive(jvm: Jvm, libraries: Libraries, *lines: Sequence[object]) -> list[Any]:
    """What each line came to. -Xcheck:jni: the JVM looks at each call of the library's, and says what is wrong."""
    checks = ("-Xcheck:jni", "-XX:+DisplayVMOutputToStderr")
    command = jvm.java("KeyboardDrive", *checks, f"-Djava.library.path={libraries.folder}")
    told = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run(
        command,
        input=told,
        env=os.environ | libraries.variables,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert "native method" not in done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines)
    return answers


EMOJI = ["BY_PLACE", True, False, 0, None]  # a wish: shift, emoji, slips, their cost, neighbours


def predictions_of(
    artifacts: Artifacts, context: str, prefix: str = "", options: SuggestOptions | None = None
) -> list[list[tuple[str, float]]]:
    found = phonograd.predict(artifacts, context, prefix, suggest=options)
    return [[(word.word, word.probability) for word in found]]


def parse_suggestions(answer: Any) -> list[list[tuple[str, float]]]:
    return [[(word, float(probability)) for word, probability in words] for words in answer]


def test_suggestions_are_pythons(jvm: Jvm, libraries: Libraries, artifacts: Artifacts, tmp_path: Path) -> None:
    quantized = tmp_path / "int8"
    phonograd.quantize(artifacts, quantized)
    lines = [
        ["feed", "See you"],
        ["feed", "😀 café\n日本"],
        ["suggest", "", 3],
        ["suggest", "😁", 3, EMOJI],
        ["suggest", "ca", 1],
    ]
    folder = str(artifacts.folder)
    answers = drive(jvm, libraries, ["open", folder, None], *lines, ["close"], ["open", folder, str(quantized)], *lines)
    text = "See you 😀 café\n日本"
    assert parse_suggestions(answers[3]) == predictions_of(artifacts, text)
    assert parse_suggestions(answers[4]) == predictions_of(artifacts, text, "😁", SuggestOptions(emoji=True)) != [[]]
    assert parse_suggestions(answers[5]) == [predictions_of(artifacts, text, "ca")[0][:1]]
    smaller = [(word.word, word.probability) for word in phonograd.predict(artifacts, text, weights=quantized)]
    assert parse_suggestions(answers[10]) == [smaller] != parse_suggestions(answers[3])


def test_wishes_blocked_words_and_scores_are_pythons(jvm: Jvm, libraries: Libraries, artifacts: Artifacts) -> None:
    wishes = {
        ("t", "ALL", False, ""): ["ALL", False, False, 0, None],
        ("tonigth", "by-place", True, ""): ["BY_PLACE", False, True, 3, None],
        ("qo", "first", True, "qt"): ["FIRST", False, True, 3, "qt"],
    }
    words = ["see", "cafés", "nobody"]
    asked = [["suggest", prefix, 3, wish] for (prefix, *_), wish in wishes.items()]
    answers = drive(
        jvm,
        libraries,
        *(["open", str(artifacts.folder), None], ["feed", "see you"], *asked, ["scores", " ".join(words)]),
        *(["block", "TONIGHT cafés"], ["suggest", "ton", 3], ["scores", " ".join(["see"] * 65)], ["block", "no-one"]),
    )
    with phonograd.open_predictor(artifacts) as predictor:
        predictor.feed("see you")
        for answer, (prefix, shift, slips, neighbours) in zip(answers[2:], wishes, strict=False):
            options = SuggestOptions(shift.lower(), False, slips, 3, neighbours or None)  # type: ignore[arg-type]
            expected = [(word.word, word.probability) for word in predictor.suggest(prefix, 3, options)]
            assert parse_suggestions(answer) == [expected] != [[]]
        assert [float(score) for score in answers[5][0]] == predictor.scores(words)
    assert answers[7] == [[]]
    assert answers[8][:2] == answers[9][:2] == ["ProgramException", 2]


def test_a_word_taken_back_was_never_typed(jvm: Jvm, libraries: Libraries, artifacts: Artifacts) -> None:
    ask = ["suggest", "", 40]
    answers = drive(
        jvm,
        libraries,
        ["open", str(artifacts.folder), None],
        *(["feed", "see"], ask, ["feed", "you\nw7 w8"], ["feed", "😀"], ask, ["correct"], ["correct"], ask),
        *(["feed", "tonight"], ask, ["reset"], ["correct"], ["feed", "see tonight"], ask),
    )
    assert answers[2] == answers[8] != answers[5]
    assert answers[6:8] == [[True], [True]]
    assert answers[10] == answers[14]
    assert answers[12] == [False]


def test_the_last_sixteen_are_kept(jvm: Jvm, libraries: Libraries, artifacts: Artifacts) -> None:
    opened = ["open", str(artifacts.folder), None]
    answers = drive(
        jvm, libraries, opened, *([["feed", "see"], ["feed", "w9"]] * 9), *([["correct"]] * 17), ["suggest", "", 3]
    )
    assert answers[19:36] == [[True]] * 16 + [[False]]
    assert parse_suggestions(answers[36]) == predictions_of(artifacts, "see w9")


def test_what_is_no_text(jvm: Jvm, libraries: Libraries, artifacts: Artifacts) -> None:
    opened, ask = ["open", str(artifacts.folder), None], ["suggest", "", 3]
    bad = [["feed", "a\0b"], ["suggest", "\0", 3], ["suggest", "", 0], ask]
    half = [["feed", "\ud83d"], ask, ["suggest", "\ud83d", 3]]
    answers = drive(jvm, libraries, opened, ["feed", "see"], ask, *bad, *half)
    nul = ["IllegalArgumentException", "a text without U+0000 expected, found one with it"]
    assert answers[3:5] == [nul, nul]
    assert answers[5] == ["IllegalArgumentException", "most: at least 1 expected, found 0"]
    assert answers[6] == answers[2]
    assert parse_suggestions(answers[8]) == predictions_of(artifacts, "see ?")
    assert answers[9] == [[]]


def test_personal_words(jvm: Jvm, libraries: Libraries, artifacts: Artifacts, tmp_path: Path) -> None:
    """Learned, suggested, deleted, vetoed, forgotten, and kept in their file. Python's are the same."""
    opened = ["open", str(artifacts.folder), None, str(tmp_path / "words")]
    text = "see you Zora 🦊\n" * 5
    answers = drive(
        jvm,
        libraries,
        *(opened, ["learn", text], ["words"], ["feed", "see you"], ["suggest", "Z", 3]),
        *(["suggest", "🦊", 3, EMOJI], ["save"]),
        *(["close"], opened, ["words"], ["delete", "zora"], ["delete", "zora"], ["veto", "🦊"], ["learn", text]),
        *(["words"], ["save"], ["forget"], ["words"], ["close"], opened, ["words"], ["learn", "🦊"], ["words"]),
    )
    with phonograd.open_predictor(artifacts) as predictor, PersonalWords() as personal:
        predictor.use(personal)
        predictor.learn(text)
        predictor.feed("see you")
        assert answers[2] == [[[word, count] for word, count in personal.list().words.items()]]
        assert parse_suggestions(answers[4]) == [[(word.word, word.probability) for word in predictor.suggest("Z")]]
    assert sorted(answers[2][0]) == [["Zora", 5], ["see", 5], ["you", 5], ["🦊", 5]]
    assert answers[5][0][0][0] == "🦊"
    assert answers[9] == answers[2]
    assert answers[10:12] == [[True], [False]]
    assert sorted(answers[14][0]) == [["Zora", 5], ["see", 10], ["you", 10]]
    assert answers[17] == answers[20] == [[]]
    assert answers[22] == [[["🦊", 1]]]


def test_vetoes_are_listed_and_taken_back(jvm: Jvm, libraries: Libraries, artifacts: Artifacts, tmp_path: Path) -> None:
    opened = ["open", str(artifacts.folder), None, str(tmp_path / "words")]
    vetoed, allowed = ["vetoed"], ["allow", "ZORA"]
    lines = [["veto", "Zora"], vetoed, ["learn", "zora"], allowed, allowed, vetoed, ["learn", "zora"], ["words"]]
    answers = drive(jvm, libraries, opened, *lines)
    assert answers[2:3] + answers[4:7] == [[["zora"]], [True], [False], [[]]]
    assert answers[8] == [[["zora", 1]]]


def test_what_was_learned_and_taken_back(jvm: Jvm, libraries: Libraries, artifacts: Artifacts, tmp_path: Path) -> None:
    opened, ask = ["open", str(artifacts.folder), None, str(tmp_path / "words")], ["suggest", "", 20]
    taken_back = [["feed", "see"], ["feed", "tonight"], ["correct"], ["feed", "you"], ask]
    never = [["reset"], ["feed", "see"], ["feed", "you"], ask]
    learned = [["feed", "see"], ask, ["learn", "tonight"], ["correct"], ["words"]]
    answers = drive(jvm, libraries, opened, ["learn", "see you\nyou see"], ["reset"], *taken_back, *never, *learned)
    assert answers[7] == answers[11] != answers[13]
    assert ["tonight", 1] in answers[16][0]


def test_a_store_that_is_damaged_or_missing(
    jvm: Jvm, libraries: Libraries, artifacts: Artifacts, tmp_path: Path
) -> None:
    damaged, folder = tmp_path / "words", str(artifacts.folder)
    damaged.write_bytes(b"words")
    answers = drive(
        jvm, libraries, ["open", folder, None, str(damaged)], ["open", folder, None], ["learn", "see"], ["words"]
    )
    assert answers[0][:3] == ["ProgramException", 17, "STATE_REFUSED"]
    assert damaged.read_bytes() == b"words"
    without = ["IllegalStateException", "the keyboard was opened without a file of personal words"]
    assert answers[2:] == [without, without]


def test_after_close(jvm: Jvm, libraries: Libraries, artifacts: Artifacts) -> None:
    lines = [["close"], ["feed", "see"], ["suggest", "", 3], ["correct"], ["reset"], ["close"]]
    answers = drive(jvm, libraries, ["open", str(artifacts.folder), None], *lines)
    assert answers == [DONE, DONE, CLOSED, CLOSED, CLOSED, CLOSED, DONE]


def test_errors_are_the_librarys(jvm: Jvm, libraries: Libraries, artifacts: Artifacts, tmp_path: Path) -> None:
    missing = tmp_path / "fehlt 😀"
    lines = [["open", str(missing), None], ["open", str(artifacts.folder), str(missing)]]
    first, second = drive(jvm, libraries, *lines)
    assert first[:3] == ["ProgramException", 5, "FAILED"]
    assert second[:3] == ["ProgramException", 6, "FAILED"]
    for answer in (first, second):
        assert f"{missing}" in answer[3]


def test_weights_that_are_cut_off(jvm: Jvm, libraries: Libraries, artifacts: Artifacts, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.write_bytes(artifacts.path("weights.safetensors").read_bytes())
    lines = [["feed", "see"], ["truncate", str(weights)], ["suggest", "", 3], ["close"]]
    answers = drive(jvm, libraries, ["open", str(artifacts.folder), str(weights)], *lines)
    assert answers[3][:3] == ["ProgramException", 6, "FAILED"]
    assert str(weights) in answers[3][3]


def test_threads_take_turns(jvm: Jvm, libraries: Libraries, artifacts: Artifacts) -> None:
    opened, ask = ["open", str(artifacts.folder), None], ["suggest", "", 40]
    answers = drive(jvm, libraries, opened, ["feed", "see"], ask, ["crowd", "you w1", 300], ask, ["unlocked"])
    assert answers[5] == [[]]
    assert answers[3] == [[]]
    assert answers[4] == answers[2]


def test_a_phone_without_the_library(jvm: Jvm, artifacts: Artifacts, tmp_path: Path) -> None:
    (answer,) = drive(jvm, Libraries(tmp_path, {}), ["open", str(artifacts.folder), None])
    assert answer == ["IOException", "libphonograd.so: not in this app for this phone's CPU; it ships for 64-bit ARM"]


def test_the_function_table_is_the_jdks(tools: Tools) -> None:
    """The numbers that the library has by hand."""
    jni = (tools.javac.resolve().parents[1] / "include" / "jni.h").read_text()
    table = jni.split("struct JNINativeInterface_ {")[1].split("\n};")[0]
    names = re.findall(r"void \*(reserved\d);|\(JNICALL \*(\w+)\)", table)
    numbers = {entry or reserved: at for at, (reserved, entry) in enumerate(names)}
    ours = (NATIVE / "src" / "capi" / "keyboard_jni.cpp").read_text().split("enum JniFunction")[1].split("};")[0]
    found = {name: int(number) for name, number in re.findall(r"(\w+) = (\d+),", ours)}
    assert len(found) >= 5
    assert found == {name: numbers[name] for name in found}
