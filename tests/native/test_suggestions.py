"""What a keyboard shows: words as they are written, never marks, and after a slip the word that was meant."""

import itertools
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import phonograd
from phonograd.device_runtime.base.errors import StateError, UsageError
from phonograd.device_runtime.engine.personal import PersonalWords
from phonograd.device_runtime.engine.predictor import Predictor, Shift, SuggestOptions
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.messages import tokenize
from phonograd.device_runtime.text.vocabulary import EOS_WORD, UNK_WORD, Vocabulary
from phonograd.export.artifacts import export_artifacts
from phonograd.export.torch_layout import seeded_weights

# Words and their forms, the most probable first after any text: each is e^-0.5 times as probable as the one before.
WORDS = {
    ".": "", ",": "", "😂": "", "the": "", "<reserved-0>": "", "i": "I", "i'm": "I'm", "paris": "Paris", "part": "",
    "iphone": "iPhone", "github": "GitHub", "nasa": "NASA", "tomorrow": "", "they": "", "ärger": "Ärger",
    "οδοσ": "οδος", "привет": "", "ღვინო": "", "ᏣᎳᎩ": "", "parts": "",
}  # fmt: skip


def export(folder: Path, words: Sequence[str], forms: Sequence[str], turkish: bool = False) -> Artifacts:
    """A model whose scores are its biases."""
    model = LanguageModelConfig("lstm", vocabulary=len(words) + 2, embedding=4, hidden=4, layers=1)
    weights = {name: array * np.float32(0) for name, array in seeded_weights(model, 1).items()}
    weights["decoder.bias"] = np.arange(len(words) + 2, dtype=np.float32) * np.float32(-0.5)
    encoded = [word.encode() for word in words]
    shown = (b"", b"", *(form.encode() for form in forms))
    vocabulary = Vocabulary((UNK_WORD, EOS_WORD, *encoded), forms=shown, turkish=turkish)
    return export_artifacts(folder / "artifacts", model, TrainingConfig(), weights, vocabulary)


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    return export(tmp_path_factory.mktemp("model"), tuple(WORDS), tuple(WORDS.values()))


@pytest.fixture
def predictor(artifacts: Artifacts) -> Iterator[Predictor]:
    with phonograd.open_predictor(artifacts) as opened:
        yield opened


def words_of(predictor: Predictor, prefix: str = "", count: int = 3, **options: object) -> list[str]:
    return [one.word for one in predictor.suggest(prefix, count, SuggestOptions(**options))]  # type: ignore[arg-type]


def test_marks_are_never_suggested_and_emoji_if_asked(predictor: Predictor) -> None:
    predictor.feed("see")
    everything = words_of(predictor, count=60)
    assert everything[:4] == ["the", "I", "I'm", "Paris"]
    assert not {".", ",", "😂", "<reserved-0>", "<unk>", "<eos>"} & set(everything)
    assert len(everything) == len(WORDS) - 4
    assert words_of(predictor, emoji=True) == ["😂", "the", "I"]
    assert words_of(predictor, ".") == words_of(predictor, "<") == []


@pytest.mark.parametrize(
    ("text", "prefix", "shift", "expected"),
    [
        ("", "t", "by-place", ["The", "Tomorrow", "They"]),
        ("see. ", "t", "by-place", ["The", "Tomorrow", "They"]),
        ("see, ", "t", "by-place", ["the", "tomorrow", "they"]),
        ("see", "p", "by-place", ["Paris", "part", "parts"]),
        ("see? \U0001f602 \"", "ip", "by-place", ["iPhone"]),  # at a sentence's start too
        ("see \"", "t", "by-place", ["the", "tomorrow", "they"]),
        ("see.\n", "part", "by-place", ["Part", "Parts"]),
        ("", "t", "none", ["the", "tomorrow", "they"]),
        ("see", "ip", "first", ["IPhone"]),
        ("see", "gi", "all", ["GITHUB"]),
        ("see", "Pa", "by-place", ["Paris", "Part", "Parts"]),
        ("see", "PA", "by-place", ["PARIS", "PART", "PARTS"]),
        ("see", "NA", "by-place", ["NASA"]),
        ("see", "iPh", "by-place", ["iPhone"]),
        ("see", "pArt", "by-place", ["pArt", "pArts"]),
        ("see", "gith", "by-place", ["GitHub"]),
        ("see '", "they", "by-place", ["they"]),
        ("see \u061f", "they", "by-place", ["They"]),
        ("see \u3002", "they", "by-place", ["They"]),
        ("see \u060c", "they", "by-place", ["they"]),
        ("see", "ä", "by-place", ["Ärger"]),
        ("see", "a\u0308", "by-place", ["Ärger"]),
        ("", "ο", "by-place", ["Οδος"]),
        ("", "п", "by-place", ["Привет"]),
        ("", "ღ", "by-place", ["ღვინო"]),
        ("", "ღ", "all", ["ᲦᲕᲘᲜᲝ"]),
        ("", "Ꮳ", "all", ["ᏣᎳᎩ"]),
    ],
)  # fmt: skip
def test_words_are_shown_as_they_are_written(
    predictor: Predictor, text: str, prefix: str, shift: Shift, expected: list[str]
) -> None:
    predictor.feed(text)
    assert words_of(predictor, prefix, shift=shift) == expected
    state = predictor.state()
    predictor.reset()
    predictor.restore(state)
    assert words_of(predictor, prefix, shift=shift) == expected


def test_capitals_of_turkish(tmp_path: Path) -> None:
    with phonograd.open_predictor(export(tmp_path, ["istanbul", "ısı"], ["İstanbul", ""], turkish=True)) as predictor:
        predictor.feed("bu")
        assert words_of(predictor) == ["İstanbul", "ısı"]
        assert words_of(predictor, "I") == ["Isı"]
        assert words_of(predictor, "is", shift="all") == ["İSTANBUL"]


def test_a_block_holds_in_any_case_and_for_own_words(artifacts: Artifacts) -> None:
    words = PersonalWords()
    with phonograd.open_predictor(artifacts, personal=words) as predictor:
        predictor.learn("see Zwiebel\nsee Zwiebel\n")
        predictor.feed("see")
        assert words_of(predictor)[0] == "Zwiebel"
        predictor.block(["ZWIEBEL", "", "Ga\u0308rger", "PARIS", "a\u0308rger", "The"])
        assert words_of(predictor) == ["see", "I", "I'm"]
        assert words_of(predictor, "par") == ["part", "parts"]
        assert words_of(predictor, "ä") == words_of(predictor, "zwiebl", slips=True) == []
        with pytest.raises(UsageError, match="one word a line expected, found 'new york' on line 2"):
            predictor.block(["the", "new york"])
        assert "the" not in words_of(predictor)
        predictor.block([])
        assert "Paris" in words_of(predictor, "par")


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ("tpm", "tomorrow"),  # a neighbouring key
        ("tomorow", "tomorrow"),
        ("omo", "tomorrow"),
        ("tomrorow", "tomorrow"),
        ("otmo", "tomorrow"),
        ("tommorrow", "tomorrow"),
        ("tomorroww", "tomorrow"),
        ("githib", "GitHub"),
        ("teh", "the"),
        ("ttp", None),  # two slips
        ("pm", None),
        ("tomorrowx", None),
        ("x", None),
    ],
)
def test_a_slip_is_no_dead_end(predictor: Predictor, typed: str, word: str | None) -> None:
    predictor.feed("see")
    assert not words_of(predictor, typed)
    assert words_of(predictor, typed, slips=True)[:1] == ([word] if word else [])


def test_a_slip_costs(artifacts: Artifacts) -> None:
    """Behind what fits exactly, unless it is so much more probable; own words too; keys as the keyboard has them."""
    words = PersonalWords()
    with phonograd.open_predictor(artifacts, personal=words) as predictor:
        predictor.feed("see")
        assert words_of(predictor, "par", slips=True) == ["Paris", "part", "parts"]
        assert words_of(predictor, "to", slips=True, slip_cost=0.01, neighbours="ho") == ["the", "tomorrow", "they"]
        assert words_of(predictor, "to", slips=True, neighbours="ho")[0] == "tomorrow"
        assert words_of(predictor, "to", slips=True, neighbours="") == ["tomorrow"]
        exact, slipped = (predictor.suggest(typed, 1, SuggestOptions(slips=True))[0] for typed in ("they", "tehy"))
        assert exact == slipped  # the probability is the word's
        predictor.learn("Zwiebel")
        assert words_of(predictor, "zweb", slips=True) == ["Zwiebel"]


def test_candidates_have_their_probabilities(artifacts: Artifacts) -> None:
    words = PersonalWords()
    with phonograd.open_predictor(artifacts, personal=words) as predictor:
        for _ in range(2):
            predictor.feed("see")
            known = {one.word: one.probability for one in predictor.suggest(count=60)}
            found = predictor.scores([*known, "Tomorrow.", "unheard", "", "<unk>"])
            assert found[: len(known)] == pytest.approx([math.log(share) for share in known.values()])
            assert found[len(known)] == pytest.approx(math.log(known["tomorrow"]))
            assert found[-3:] == [-math.inf] * 3
            predictor.learn("see Zwiebel tomorrow\n")
        assert predictor.scores([]) == []
        with pytest.raises(UsageError, match="scores: at most 64 words expected, found 65"):
            predictor.scores(["the"] * 65)


def test_own_words_keep_the_form_that_the_user_writes(artifacts: Artifacts, tmp_path: Path) -> None:
    path = tmp_path / "words"
    words = PersonalWords(path, new=True)
    with phonograd.open_predictor(artifacts, personal=words) as predictor:
        predictor.learn("see my Zwiebel\nZWIEBEL\n. ZWIEBEL\nand Zwiebel and zwiebel\n")
        predictor.learn("am i what i am\nyes I do\nin Paris\n")
        predictor.feed("see")
        assert words_of(predictor, "zw") == ["Zwiebel"]
        assert words_of(predictor, "i", 1) == ["i"]
        assert words_of(predictor, "pa") == ["Paris", "part", "parts"]
        words.save()
    again = PersonalWords(path)
    assert {"Zwiebel", "i", "Paris"} <= set(again.list().words)
    assert again.delete("zWIEBEL")
    again.veto("PARIS")
    with phonograd.open_predictor(artifacts, personal=again) as predictor:
        predictor.learn("in pARIS\nin Paris\n")
        assert not {"paris", "pARIS", "Paris", "Zwiebel"} & set(again.list().words)


def test_four_forms_of_a_word_are_kept_halved_with_it_and_read_strictly(artifacts: Artifacts, tmp_path: Path) -> None:
    path, words = tmp_path / "words", PersonalWords(tmp_path / "words", new=True)
    with phonograd.open_predictor(artifacts, personal=words) as predictor:
        for form in ("abCD", "ABcd", "AbCd", "abcd", "abcd", "aBcD"):
            predictor.learn(f"see {form}\n" * 2)
        words.save()
        assert read_words(path)["abcd"] == [12, 4, "AbCd", 2, "aBcD", 2, "abCD", 2]
        predictor.learn(
            " ".join(map("".join, itertools.islice(itertools.product("abcdefghij", repeat=4), 8200))) + "\n"
        )
        words.save()
    assert read_words(path)["abcd"] == [6, 2, "AbCd", 1, "aBcD", 1, "abCD", 1]
    for wrong in ('["abcd",6,2,"other",1', '["abcd",6,2,"AbCd"', '["abcd",6,2,"AbCd",0'):
        document = path.read_text().partition("\n")[2].replace('["abcd",6,2,"AbCd",1', wrong)
        damaged = tmp_path / "damaged"
        damaged.write_text(f"phonograd-personal-1 {zlib.crc32(document.encode()):08x}\n{document}")
        with pytest.raises(StateError):
            PersonalWords(damaged)


def read_words(path: Path) -> dict[str, list[object]]:
    return {word: rest for word, *rest in json.loads(path.read_text().partition("\n")[2])["words"]}


def test_a_turkish_form_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "words"
    words = PersonalWords(path, new=True)
    with phonograd.open_predictor(export(tmp_path, ["bu"], [""], turkish=True), personal=words) as predictor:
        predictor.learn("bu Il\u0131k\nbu Istanbul\n")
        words.save()
    assert set(PersonalWords(path).list().words) == {"bu", "Il\u0131k", "Istanbul"}


@pytest.mark.parametrize("pin", ["4242", "a@b", "\u0664\u0662", "\u0967\u0968"])
def test_a_guarded_piece_counts_once_a_message(artifacts: Artifacts, pin: str) -> None:
    words = PersonalWords()
    with phonograd.open_predictor(artifacts, personal=words) as predictor:
        word = tokenize(pin.encode())[-1].decode()
        for piece in (f"{pin} {pin} {pin}", f" {pin}\n", f"{pin} {pin}\n"):
            predictor.learn(piece)
        assert word not in words.list().words
        predictor.reset()
        predictor.learn(f"{pin} is it, {pin}\n")
        assert words.list().words[word] == 4


def test_suggestions_go_on_behind_an_elision_or_a_hyphen(tmp_path: Path) -> None:
    words = ["l'", "homme", "e", "-", "mail", "don't", "do"]
    with phonograd.open_predictor(export(tmp_path, words, ["", "Homme", *[""] * 5])) as predictor:
        predictor.feed("see")
        before = predictor.state()
        assert words_of(predictor, "L'h") == ["L'Homme"]
        assert words_of(predictor, "e-") == ["e-l'", "e-Homme", "e-e"]
        assert words_of(predictor, "E-ma") == ["E-mail"]
        assert words_of(predictor, "don'") == ["don't"]
        assert words_of(predictor, "do e-m") == ["do e-mail"]
        assert words_of(predictor, "e do ") == ["e do l'", "e do Homme", "e do e"]
        assert words_of(predictor, "e-x") == words_of(predictor, "-") == words_of(predictor, "?!") == []
        with pytest.raises(UsageError, match="shift: by-place, none, first, all expected, found 'up'"):
            words_of(predictor, shift="up")
        assert predictor.state() == before
