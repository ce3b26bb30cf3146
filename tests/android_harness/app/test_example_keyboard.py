"""The example keyboard's logic on a JVM: what the strip shows, when a word is learned, what the delete key does."""

import json
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import phonograd
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from tests.android_harness.app.jvm import Jvm
from tests.android_harness.app.libraries import Libraries, host_library
from tests.support.artifacts import exported
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.apk

MODEL = LanguageModelConfig("lstm", vocabulary=60, embedding=16, hidden=16, layers=1)
# Of Android's InputType and EditorInfo.
TEXT, PASSWORD, WEB_PASSWORD, VISIBLE, EMAIL, NUMBER = 0x1, 0x81, 0xE1, 0x91, 0x21, 0x2
NO_SUGGESTIONS, NOT_PERSONAL = 0x80001, 0x1000000
Typed = Callable[..., list[tuple[str, list[str], set[str]]]]


@pytest.fixture(scope="module")
def artifacts() -> Artifacts:
    return exported(MODEL, spread=14.0)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Libraries:
    return host_library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def typed(jvm: Jvm, library: Libraries, artifacts: Artifacts, tmp_path: Path) -> Typed:
    """Types; after each step: what the field holds, the strip, and the words that were learned, with their counts."""

    def drive(*steps: list[object]) -> list[tuple[str, list[str], set[str]]]:
        words = (str(artifacts.folder), str(tmp_path / "words"))
        options = (f"-Djava.library.path={library.folder}", f"-Dphone={tmp_path}")
        line = [*jvm.java("org.phonograd.keyboard.TypingDrive", *options), *words]
        told = "".join(json.dumps(step) + "\n" for step in steps)
        done = subprocess.run(line, input=told, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
        found = [json.loads(answer) for answer in done.stdout.splitlines()]
        return [(text, strip, set(learned)) for text, strip, learned in found]

    return drive


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The phone's folder, with a server."""
    folder = tmp_path / "no_backup" / "phonograd"
    folder.mkdir(parents=True)
    (folder / "server.json").write_text('{"server": "https://example.org", "phone": "phone-17"}')
    return folder


def field(kind: int = TEXT, options: int = 0, before: str = "", model: bool = True) -> list[object]:
    return ["field", kind, options, before, model]


def strip(artifacts: Artifacts, context: str, prefix: str = "") -> list[str]:
    return [word.word for word in phonograd.predict(artifacts, context, prefix)]


def test_the_strip_follows_the_keys(typed: Typed, artifacts: Artifacts) -> None:
    """Nothing was learned before, so it is the model's."""
    found = typed(field(before="w3 w4 half"), ["keys", "w"], ["keys", "1"], ["pick", 1], ["delete", 1], ["delete", 2])
    assert found[0][1] == strip(artifacts, "w3 w4")
    assert found[1][1] == strip(artifacts, "w3 w4", "w")
    assert found[2][1] == strip(artifacts, "w3 w4", "w1")
    picked = found[2][1][1]
    assert found[3][:2] == (f"w3 w4 half{picked} ", strip(artifacts, f"w3 w4 {picked}"))
    assert found[4][:2] == (f"w3 w4 half{picked}", strip(artifacts, "w3 w4", picked))
    assert found[5][0] == f"w3 w4 half{picked}"[:-2]


def test_a_word_is_learned_once_the_next_one_is_there(typed: Typed) -> None:
    """A word that is not finished is not learned when the field is left."""
    found = typed(field(), ["keys", "hello "], ["keys", "zora"], ["keys", "."], ["keys", " x"], ["end"])
    assert [learned for _, _, learned in found[:4]] == [set(), set(), set(), {"hello 1"}]
    assert found[4][2] == found[5][2] == {"hello 1", "zora 1", ". 1"}


def test_learning_late_leaves_the_text_as_it_is(typed: Typed, artifacts: Artifacts) -> None:
    """Words with digits are learned the third time, so the strip is the model's."""
    words = [f"w{number * 7 % 50}" for number in range(30)]
    found = typed(field(), *(["keys", f"{word} "] for word in words))
    for count, (_, shown, learned) in enumerate(found):
        assert (shown, learned) == (strip(artifacts, " ".join(words[:count])), set())


def test_words_end_where_the_rules_of_text_end_them(typed: Typed, artifacts: Artifacts) -> None:
    """Marks of Hindi, an apostrophe within and before a word, and a space that is no U+0020 before the cursor."""
    words = ["\u0939\u093f\u0928\u094d\u0926\u0940", "don\u2019t", "'so", "col\u00b7lega"]
    assert typed(field(before="w3\u00a0w4\u3000ha"))[0][1] == strip(artifacts, "w3 w4 ")
    found = typed(field(), ["keys", " ".join(words) + " end "])
    assert found[1][2] == {f"{words[0]} 1", "don't 1", "' 1", "so 1", f"{words[3]} 1"}


def test_what_was_learned_is_suggested(typed: Typed) -> None:
    found = typed(field(), ["keys", "hello zora "], ["end"], field(), ["keys", "hello "], ["keys", "z"])
    assert "zora" in found[4][1]
    assert found[5][1] == ["zora"]


def test_a_slip_that_is_deleted_at_once_is_not_learned(typed: Typed) -> None:
    found = typed(field(), ["keys", "hello zorra "], ["delete", 3], ["keys", "a "], ["end"])
    assert [text for text, _, _ in found[1:4]] == ["hello zorra ", "hello zor", "hello zora "]
    assert found[4][2] == {"hello 1", "zora 1"}


def test_going_back_into_learned_words_counts_none_twice(typed: Typed) -> None:
    found = typed(field(), ["keys", "hello zora oops "], ["delete", 11], ["keys", "  there "], ["end"])
    assert found[1][2] == {"hello 1", "zora 1"}
    assert found[2][0] == "hello"
    assert found[4][2] == {"hello 1", "zora 1", "there 1"}


def test_what_was_deleted_was_never_typed(typed: Typed) -> None:
    opened = field(options=NOT_PERSONAL)
    never = typed(opened, ["keys", "w3 w4 "])
    deleted = typed(opened, ["keys", "w3 w9 w8 "], ["delete", 6], ["keys", "w4 "])
    assert deleted[3] == never[1]


def test_more_words_back_than_the_keyboard_keeps(typed: Typed, artifacts: Artifacts) -> None:
    text = "".join(f"w{number % 10} " for number in range(20))
    found = typed(field(options=NOT_PERSONAL), ["keys", text], ["delete", len(text) - 4])
    assert found[2][:2] == ("w0 w", strip(artifacts, "w0", "w"))


def test_the_cursor_was_moved(typed: Typed, artifacts: Artifacts) -> None:
    """What is deleted then is what is before the cursor, a whole emoji at a time."""
    found = typed(field(before="w3 w1 😀"), ["delete", 1], ["delete", 1], ["delete", 9])
    assert [text for text, _, _ in found] == ["w3 w1 😀", "w3 w1 ", "w3 w1", ""]
    assert found[1][1] == strip(artifacts, "w3 w1")


def test_fields_that_the_model_does_not_see(typed: Typed) -> None:
    typing: list[list[object]] = [
        ["keys", "secret w1 "],
        ["delete", 4],
        ["keys", "x "],
        ["end"],
        field(),
        ["keys", "s"],
    ]
    kinds = [PASSWORD, WEB_PASSWORD, VISIBLE, NUMBER, NO_SUGGESTIONS]
    found = typed(*(step for kind in kinds for step in (field(kind), *typing)))
    for kind, (_, there, deleted, more, _, _, later) in zip(kinds, zip(*[iter(found)] * 7, strict=True), strict=True):
        assert (there[:2], deleted[0]) == (("secret w1 ", []), "secret"), kind
        assert (more[:2], later[1:]) == (("secretx ", []), ([], set())), kind


def test_fields_that_are_not_learned(typed: Typed, artifacts: Artifacts) -> None:
    typing: list[list[object]] = [["keys", "secret w1 "], ["end"]]
    found = typed(field(TEXT, NOT_PERSONAL), *typing, field(EMAIL), *typing)
    for there, ended in (found[1:3], found[4:6]):
        assert there[1:] == (strip(artifacts, "secret w1"), set())
        assert ended[2] == set()


def test_without_a_model_it_types(typed: Typed) -> None:
    found = typed(field(model=False), ["keys", "see yo"], ["delete", 2], ["keys", "us\n"], ["delete", 2], ["end"])
    assert [text for text, _, _ in found] == ["", "see yo", "see ", "see us\n", "see u", "see u"]
    assert all(not shown and not learned for _, shown, learned in found)


def test_rounds_train_on_what_was_learned(typed: Typed, workspace: Path) -> None:
    """What was deleted is not in it, nor what stands in fields that are not learned."""
    typed(field(), ["keys", "hello zorra. "], ["delete", 4], ["keys", "a. you "], ["end"])
    assert (workspace / "recent.txt").read_text() == "hello zora. you\n"
    typed(field(), ["keys", "one two three "], ["move", 4], ["delete", 1], ["keys", " four "], ["end"])
    typed(field(options=NOT_PERSONAL), ["keys", "secret w1 "], ["end"], field(PASSWORD), ["keys", "w1 "], ["end"])
    assert (workspace / "recent.txt").read_text() == "hello zora. you\none two\nfour\n"


def test_the_newest_lines_are_kept(typed: Typed, workspace: Path) -> None:
    lines = [f"{number:05} " + "é" * (number % 90) + "\n" for number in range(400)]
    typed(field(), *(["add", line] for line in ("".join(lines[:100]), "", *lines[100:])))
    kept = (workspace / "recent.txt").read_bytes()
    assert "".join(lines).encode().endswith(b"\n" + kept)
    assert 20480 - 190 < len(kept) <= 20480
    typed(field(), ["add", "x" * 20480 + "\n"])  # a line that is too long
    assert (workspace / "recent.txt").read_bytes() == kept
    typed(field(), ["add", "x" * 20479 + "\n"])
    assert (workspace / "recent.txt").read_text() == "x" * 20479 + "\n"


def test_without_a_server_no_text_is_kept(typed: Typed, workspace: Path) -> None:
    (workspace / "server.json").unlink()
    typed(field(), ["add", "hello\n"])
    assert not list(workspace.iterdir())


SECRET = "a1" * 8
SERVER = {"server": "https://example.org", "phone": "phone-17", "token": f"pgd_{SECRET}_{SECRET * 4}"}


def zip_model(path: Path, folder: Path, *names: str) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.write(folder / name, f"artifacts/{name}")
    return str(path)


def test_an_app_enrolls_its_phone(typed: Typed, artifacts: Artifacts, tmp_path: Path) -> None:
    """The model is unpacked once, and text is kept from here on."""
    names = [path.name for path in artifacts.folder.iterdir() if path.is_file()]
    model, none = zip_model(tmp_path / "zip", artifacts.folder, *names), zip_model(tmp_path / "none", artifacts.folder)
    who = (SERVER["server"], SERVER["token"])
    found = typed(
        field(),
        ["add", "too early\n"],
        ["enroll", model, who[0], "phone-17", who[1]],
        ["add", "hello\n"],
        ["enroll", none, who[0], "phone-18", who[1]],
        ["phone"],
    )
    assert found[-1][0] == "phone-18"
    workspace = tmp_path / "no_backup" / "phonograd"
    assert (workspace / "recent.txt").read_text() == "hello\n"
    assert {path.name for path in workspace.iterdir()} == {"artifacts", "recent.txt", "round.lock", "server.json"}
    for name in names:
        assert (workspace / "artifacts" / name).read_bytes() == (artifacts.folder / name).read_bytes()


@pytest.mark.parametrize(
    ("names", "phone", "why"),
    [
        (("weights.safetensors",), "phone-17", "a ZIP of an artifacts folder expected, found no manifest.json in it"),
        (("manifest.json",), "no/name", "phone: 1 to 64 of"),
    ],
)
def test_a_phone_that_cannot_be_enrolled(
    typed: Typed, artifacts: Artifacts, tmp_path: Path, names: tuple[str, ...], phone: str, why: str
) -> None:
    model = zip_model(tmp_path / "zip", artifacts.folder, *names)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        typed(field(), ["enroll", model, SERVER["server"], phone, SERVER["token"]])
    assert why in refused.value.stderr
    assert not {"artifacts", "server.json"} & {path.name for path in (tmp_path / "no_backup/phonograd").iterdir()}


@pytest.mark.parametrize("said", [SERVER, SERVER | {"token": None}])
def test_the_server(typed: Typed, workspace: Path, said: dict[str, str | None]) -> None:
    (workspace / "server.json").write_text(json.dumps(said))
    assert typed(field(), ["phone"])[1][0] == "phone-17"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (json.dumps(SERVER | {"token": SECRET}), "token: pgd_..._... expected"),
        (json.dumps({"token": SECRET}), '{"server": URL, "phone": name'),
        (json.dumps(SERVER)[:-1], '{"server": URL, "phone": name'),
    ],
)
def test_a_wrong_server(typed: Typed, workspace: Path, said: str, why: str) -> None:
    (workspace / "server.json").write_text(said)
    with pytest.raises(subprocess.CalledProcessError) as refused:
        typed(field(), ["phone"])
    assert f"server.json: {why}" in refused.value.stderr
    assert SECRET not in refused.value.stderr
