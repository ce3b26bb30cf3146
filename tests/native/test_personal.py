"""The user's own words in a predictor's suggestions: held to a plain writing of FORMAT.md, and to their file."""

import hashlib
import itertools
import json
import shutil
import stat
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import phonograd
from phonograd.device_runtime.base.errors import StateError, StorageError, UsageError
from phonograd.device_runtime.engine.personal import PersonalWords
from phonograd.device_runtime.engine.predictor import Predictor, SuggestOptions
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.native_build.targets import NATIVE
from tests.native.limits import files_of_at_most
from tests.reference.personal import END, Personal, pieces
from tests.support.artifacts import exported

MODEL = LanguageModelConfig("lstm", vocabulary=60, embedding=8, hidden=9, layers=1)
SENTENCES = ("w3 hallo zürich", "Hallo  w3!", "w4 hallo w5 w6", "", "pin 4711 4711", "w3 hallo zürich w9", "a@b w3")


def artifacts() -> Artifacts:
    return exported(MODEL, spread=14.0)


def everything(predictor: Predictor, prefix: str = "") -> list[tuple[str, float]]:
    """All words as they are suggested, without capitals."""
    return [(one.word, one.probability) for one in predictor.suggest(prefix, 60, SuggestOptions(shift="none"))]


def alone(predictor: Predictor) -> dict[bytes, float]:
    """The model's own probabilities, of which there are few enough to be all suggested."""
    return {word.encode(): share for word, share in everything(predictor)}


def write(predictor: Predictor, plain: Predictor, personal: Personal, message: str) -> None:
    """Write a message: the library learns it, and so does the reference, by the same model's probabilities."""
    predictor.learn(message + "\n")
    for words, guarded in pieces(message.encode()):
        for word in words:
            personal.learn(word, guarded, alone(plain))
            plain.feed(word.decode())
    if pieces(message.encode()):
        personal.end()
    plain.feed("\n")


def expected_suggestions(personal: Personal, model: dict[bytes, float], prefix: str = "") -> list[tuple[str, float]]:
    mixed = personal.mix(model)
    words = sorted(
        mixed.keys() - {b"!"}, key=lambda word: (-mixed[word], int(word[1:]) if word in model else len(model), word)
    )
    return [(word.decode(), mixed[word]) for word in words if word.startswith(prefix.encode())][:60]


@settings(deadline=None, max_examples=12)
@given(
    messages=st.lists(st.sampled_from(SENTENCES), max_size=12),
    deleted=st.sampled_from(["", "hallo", "w3", "zürich"]),
    half=st.text("w34 hal", max_size=4),
)
def test_suggestions_are_those_of_the_plain_writing(messages: list[str], deleted: str, half: str) -> None:
    personal, words = Personal(), PersonalWords()
    with (
        phonograd.open_predictor(artifacts(), personal=words) as predictor,
        phonograd.open_predictor(artifacts()) as plain,
    ):
        for number, message in enumerate(messages):
            write(predictor, plain, personal, message)
            if number == 4 and deleted:
                words.delete(deleted)
                personal.delete(deleted.encode())
        for text in ("", "w3", "hallo", half):
            predictor.feed(text)
            plain.feed(text)
            for parts, _ in pieces(text.encode()):
                for word in parts:
                    personal.before = (word, personal.before[0])
            for prefix in ("", "w", "h", "zü"):
                assert everything(predictor, prefix) == expected_suggestions(personal, alone(plain), prefix)
    assert words.list().words == {word.decode(): count for word, count in personal.counts.items()}


def test_without_words_the_suggestions_are_the_models() -> None:
    with phonograd.open_predictor(artifacts()) as plain, phonograd.open_predictor(artifacts()) as predictor:
        predictor.use(PersonalWords())
        assert everything(predictor, "w1") == everything(plain, "w1")


class Store:
    """A model, a file, and a predictor that learns into it."""

    def __init__(self, path: Path):
        self.path = path
        self.words = PersonalWords(path, new=True)
        self.predictor = phonograd.open_predictor(artifacts(), personal=self.words)

    def learn(self, *messages: str) -> None:
        for message in messages:
            self.predictor.learn(message + "\n")

    def save(self) -> dict[str, int]:
        self.words.save()
        return dict(PersonalWords(self.path).list().words)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "own.words")


def test_a_saved_store_goes_on_as_if_it_had_not_been_closed(store: Store) -> None:
    store.learn(*SENTENCES, *SENTENCES)
    assert store.save() == dict(store.words.list().words)
    again = Store(store.path)
    assert again.words.list() == store.words.list()
    for one in (again, store):
        one.predictor.reset()
        one.learn("w3 hallo")
    for text in ("w3", "hallo w3"):
        store.predictor.feed(text)
        again.predictor.restore(store.predictor.state())
        assert everything(again.predictor) == everything(store.predictor)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_the_share_of_the_users_words_follows_what_they_explain(store: Store) -> None:
    """Words that come once are the model's to explain, in contexts not seen; those that come back, the user's."""
    store.learn("hallo", " ".join(f"w{number}" for number in range(2, 60)))
    assert _shares(store)[0] < 0.2
    store.learn(*["eigene worte schreiben"] * 60)
    assert _shares(store)[2] > 0.8


def test_the_file_is_that_of_the_plain_writing(store: Store) -> None:
    """Long enough that the shares' counts are halved."""
    personal = Personal()
    with phonograd.open_predictor(artifacts()) as plain:
        for message in (*SENTENCES, *["w4 hallo w5 w6 zürich"] * 120):
            write(store.predictor, plain, personal, message)
    store.words.save()
    number = {word: count for count, word in enumerate((END, *personal.counts))}
    after = {
        (number[context[0]], number[context[1]] if context[1:] else -2): {number[word]: n for word, n in words.items()}
        for context, words in personal.followers.items()
    }
    document = json.loads(store.path.read_text().partition("\n")[2])
    assert document == {
        "forgotten": 0,
        "weights": personal.weights,
        "words": [
            [word.decode(), count, *([personal.plain[word]] if word in personal.plain else [])]
            for word, count in personal.counts.items()
        ],
        "after": document["after"],
        "waiting": sorted(
            ([str(key(word)), n] for word, n in personal.waiting.items()), key=lambda one: int(str(one[0]))
        ),
        "vetoed": [],
    }
    assert {tuple(row[:2]): dict(zip(row[2::2], row[3::2], strict=True)) for row in document["after"]} == after


def key(word: bytes) -> int:
    return int.from_bytes(hashlib.sha256(word).digest()[:8], "big")


def _shares(store: Store) -> list[float]:
    store.words.save()
    weights = json.loads(store.path.read_text().partition("\n")[2])["weights"]
    return [own / every for own, every in weights]


@pytest.mark.parametrize("piece", ["4711", "user@example", "abc1", "x@"])
def test_numbers_and_addresses_are_learned_the_third_time(store: Store, piece: str) -> None:
    for _ in range(2):
        store.learn(f"{piece} hallo")
        assert store.save() == {"hallo": store.words.list().words["hallo"]}
        assert all(word.decode() not in store.path.read_text() for words, _ in pieces(piece.encode()) for word in words)
    store.learn(piece)
    assert set(store.save()) == {"hallo"} | {word.decode() for words, _ in pieces(piece.encode()) for word in words}
    assert set(store.save().values()) == {2, 3}


def test_what_is_never_learned(store: Store) -> None:
    store.words.veto("Geheim")
    store.learn("geheim <unk> " + "x" * 65 + " " + "y" * 64)
    store.predictor._library.call("pg_predictor_learn", store.predictor.handle, b"\xff\xfe \xc3")
    assert store.save() == {"y" * 64: 1}
    assert PersonalWords(store.path).list().vetoed == ("geheim",)
    assert "geheim" not in {one.word for one in store.predictor.suggest("ge")}


def test_what_is_fed_is_not_learned(store: Store) -> None:
    store.predictor.feed("passwort hallo\n")
    assert store.words.list().words == {}


def test_deleted_words_come_back_only_if_they_are_written_again(store: Store) -> None:
    store.learn(*["w3 wort hallo"] * 3)
    assert store.words.delete("WORT")
    assert not store.words.delete("wort")
    store.predictor.feed("w3")
    assert "wort" not in {word for word, _ in everything(store.predictor)}
    assert store.save() == {"hallo": 3, "w3": 3}
    store.learn("wort")
    assert store.save()["wort"] == 1
    store.words.forget()
    assert store.save() == {}
    assert "hallo" not in store.path.read_text()


def turkish_artifacts(folder: Path) -> Path:
    """A copy of the artifacts, with a Turkish vocabulary."""
    shutil.copytree(artifacts().folder, folder)
    words = (folder / "vocab.txt").read_bytes().replace(b"\n", b"\tturkish\n", 1)
    (folder / "vocab.txt").write_bytes(words)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["vocab.txt"] = {"bytes": len(words), "sha256": hashlib.sha256(words).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def test_words_to_delete_and_to_veto_fold_as_the_vocabularys_do(tmp_path: Path) -> None:
    words = PersonalWords(tmp_path / "words", new=True)
    with phonograd.open_predictor(turkish_artifacts(tmp_path / "artifacts"), personal=words) as predictor:
        predictor.learn("I\u015eIK ILIK evet\n")
        assert words.delete("ILIK")
        words.save()
    again = PersonalWords(tmp_path / "words")
    assert set(again.list().words) == {"\u0131\u015f\u0131k", "evet"}
    again.veto("I\u015eIK")
    again.forget()
    again.save()
    again = PersonalWords(tmp_path / "words")
    again.veto("ILIK")
    with phonograd.open_predictor(artifacts(), personal=again):
        again.veto("ILIK")
    assert set(again.list().vetoed) == {"ilik", "\u0131l\u0131k"}


def seal(document: object) -> bytes:
    """A file with a right checksum."""
    text = json.dumps(document).encode() if not isinstance(document, bytes) else document
    return b"phonograd-personal-1 %08x\n" % zlib.crc32(text) + text


EMPTY = {"forgotten": 0, "weights": [[1, 2], [1, 2], [1, 2]], "words": [], "after": [], "waiting": [], "vetoed": []}


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"{",
        b"[]",
        {},
        EMPTY | {"forgotten": -1},
        EMPTY | {"weights": [[1, 2]]},
        EMPTY | {"weights": [[3, 2]] * 3},
        EMPTY | {"weights": [[0, 0]] * 3},
        EMPTY | {"words": [["a", 1], ["a", 2]]},
        EMPTY | {"words": [["a", 0]]},
        EMPTY | {"words": [["a", 1 << 32]]},
        EMPTY | {"words": [["x" * 65, 1]]},
        EMPTY | {"words": ["a"]},
        EMPTY | {"turkish": False},
        EMPTY | {"words": [["a", 1]], "vetoed": ["a"]},
        EMPTY | {"words": [["a", 1]], "after": [[2, -2, 1, 1]]},
        EMPTY | {"words": [["a", 1]], "after": [[1, -2, 2, 1]]},
        EMPTY | {"words": [["a", 1]], "after": [[1, -2, 1]]},
        EMPTY | {"words": [["a", 1]], "after": [[1, -2, 1, 0]]},
        EMPTY | {"words": [["a", 1]], "after": [[1, -2, 1, 1, 1, 1]]},
        EMPTY | {"words": [["a", 1]], "after": [[1, -2, 1, 1], [1, -2, 0, 1]]},
        EMPTY | {"words": [["a", 1]], "after": [[1, -1, 1, 1]]},
        EMPTY | {"words": [["a", 1]], "after": [[-2, 1, 1, 1]]},
        EMPTY | {"words": [["A", 1]]},
        EMPTY | {"waiting": [["1", 3]]},
        EMPTY | {"waiting": [["1", 2], ["1", 1]]},
        EMPTY | {"waiting": [["x", 2]]},
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, wrong: object) -> None:
    path = tmp_path / "own.words"
    path.write_bytes(seal(EMPTY))
    assert PersonalWords(path).list().words == {}
    path.write_bytes(seal(wrong))
    with pytest.raises(StateError, match=r"own\.words"):
        PersonalWords(path)
    assert path.read_bytes() == seal(wrong)


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize(("words", "followers", "new"), [(8191, 1, "neu"), (300, 65536, "n0")])
def test_counts_are_halved_past_a_bound(tmp_path: Path, words: int, followers: int, new: str, missing: int) -> None:
    """8,192 words, a message's end among them, and 65,536 followers are not past it; one word or follower comes in."""
    path = tmp_path / "own.words"
    learned = [[f"n{number}", 5] for number in range(words - missing)]
    rows = [[0, -2, 1, 5], *([*context, 1, 5] for context in itertools.product(range(1, 300), repeat=2))]
    path.write_bytes(seal(EMPTY | {"words": learned, "after": rows[: max(1, followers - missing)]}))
    kept = PersonalWords(path)
    with phonograd.open_predictor(artifacts(), personal=kept) as predictor:
        predictor.learn(new)
    counts = kept.list().words
    assert (counts["n1"], counts.get(new, 0)) == (
        (5, 6 if new == "n0" else 1) if missing else (2, 3 if new == "n0" else 0)
    )


def test_ties_are_by_id_then_by_bytes(tmp_path: Path) -> None:
    path = tmp_path / "own.words"
    words = [["b", 1], ["w15", 1], ["a", 1], ["w3", 1]]
    path.write_bytes(seal(EMPTY | {"weights": [[1, 1]] * 3, "words": words}))
    with phonograd.open_predictor(artifacts(), personal=PersonalWords(path)) as predictor:
        assert everything(predictor)[:4] == [("w3", 0.25), ("w15", 0.25), ("a", 0.25), ("b", 0.25)]


def test_a_full_disk_leaves_the_old_file(store: Store) -> None:
    store.learn("hallo w3")
    store.words.save()
    before = store.path.read_bytes()
    store.learn("hallo zürich")
    with files_of_at_most(99), pytest.raises(StorageError, match="File too large"):
        store.words.save()
    assert store.path.read_bytes() == before
    assert {path.name for path in store.path.parent.iterdir()} == {"own.words", "own.words.lock"}


def test_a_damaged_file_is_refused(store: Store) -> None:
    store.learn("hallo w3")
    store.words.save()
    whole = store.path.read_bytes()
    for at in range(len(whole)):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
            store.path.write_bytes(damaged)
            with pytest.raises(StateError, match="delete it and begin again"):
                PersonalWords(store.path)


def test_what_cannot_be_done_is_said(tmp_path: Path, store: Store) -> None:
    with phonograd.open_predictor(artifacts()) as predictor, pytest.raises(UsageError, match="no personal words"):
        predictor.learn("hallo")
    with pytest.raises(UsageError, match="without a file"):
        PersonalWords().save()
    with pytest.raises(UsageError, match="does not exist"):
        PersonalWords(tmp_path / "none.words")
    with pytest.raises(UsageError, match="at most 64 bytes"):
        store.words.veto("x" * 65)
    gone = PersonalWords(tmp_path / "no folder" / "own.words", new=True)
    with pytest.raises(StorageError, match="no folder"):
        gone.save()


def test_what_several_processes_save_is_merged(store: Store) -> None:
    other = Store(store.path)
    store.learn("hallo wort pin 4711")
    other.learn("hallo zürich 4711")
    store.words.save()
    store.words.delete("wort")
    assert other.save() == {"hallo": 2, "wort": 1, "pin": 1, "zürich": 1}
    store.learn("4711")
    assert store.save() == {"hallo": 2, "pin": 1, "zürich": 1, "4711": 3} == dict(store.words.list().words)
    assert store.predictor.suggest("zü")[0].word == "Zürich"


def test_a_veto_of_another_process_holds_until_it_is_taken_back(store: Store) -> None:
    store.learn("geheim hallo")
    store.words.save()
    settings = PersonalWords(store.path)
    settings.veto("Geheim")
    settings.save()
    store.learn("geheim hallo")
    assert store.save() == {"hallo": 2}
    assert store.words.list() == PersonalWords(store.path).list()
    assert store.words.list().vetoed == ("geheim",)
    assert settings.allow("GEHEIM")
    assert not settings.allow("geheim")
    settings.save()
    assert store.save() == {"hallo": 2}
    store.learn("geheim")
    assert store.save() == {"hallo": 2, "geheim": 1}


def test_what_another_process_forgot_stays_forgotten(store: Store) -> None:
    other = Store(store.path)
    store.learn("alt")
    other.learn("anders")
    other.words.forget()
    other.learn("danach")
    other.words.save()
    assert store.save() == {"danach": 1}
    store.learn("neu")
    assert store.save() == {"danach": 1, "neu": 1}


def test_no_save_among_many_is_lost(store: Store) -> None:
    """Each thread is a process's store; the library's calls run at the same time."""

    def write(name: str) -> None:
        mine = Store(store.path)
        for number in range(20):
            mine.learn(f"{name}{chr(97 + number)}")
            mine.words.save()

    with ThreadPoolExecutor() as threads:
        list(threads.map(write, ["eins", "zwei", "drei", "vier"]))
    assert set(PersonalWords(store.path).list().words.values()) == {1}
    assert len(PersonalWords(store.path).list().words) == 80


def test_vetoes_are_bounded(store: Store) -> None:
    for number in range(4096):
        store.words.veto(f"v{number}")
    store.words.veto("v7")
    with pytest.raises(UsageError, match="4096"):
        store.words.veto("one more")


def test_a_predictor_keeps_the_words_that_it_uses(store: Store) -> None:
    store.learn("hallo")
    store.words.close()
    assert store.predictor.suggest("hal")[0].word == "Hallo"


def test_nothing_that_trains_or_sends_can_read_personal_words() -> None:
    """Folders that may include them; the round, training, updates and the engine are not among them."""
    sources = (NATIVE / "src").rglob("*.*")
    readers = {path.parent.name for path in sources if '#include "personal/' in path.read_text("utf-8")}
    assert readers == {"personal", "predict"}
    users = {
        path.parent.name for path in (NATIVE / "src").rglob("*.*") if '#include "predict/' in path.read_text("utf-8")
    }
    assert users == {"predict", "capi", "phone"}
