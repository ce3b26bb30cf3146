import pickle
from pathlib import Path

import msgspec
import numpy as np
import pytest

from phonograd.device_runtime.base.errors import VocabularyError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors, save_tensors
from phonograd.device_runtime.text.messages import tokenize
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.presets import PRESETS
from phonograd.export.torch_layout import VOCABULARY_SHA256, to_torch
from phonograd.export.vocabulary_import import ROWS_OF_WORDS, import_vocabulary, load_vocabulary, permute, rows_of
from tests.support.command_line import Run

FOREIGN = b"the\nThe\n<pad>\n<EOS>\nCat\n<unk>\ncat\nnew york\nDON\xe2\x80\x99T\n\nthe\n<reserved-0>\n"
WORDS = (b"<unk>", b"<eos>", b"the", b"cat", b"don't", b"<reserved-0>")
ROWS = [5, 3, 0, 6, 8, 11]


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    path = tmp_path / "foreign.txt"
    path.write_bytes(FOREIGN)
    return path


def test_words_are_put_in_order_and_what_became_of_the_others_is_said(foreign: Path) -> None:
    imported = import_vocabulary(foreign)
    assert imported.vocabulary.words == WORDS
    assert list(imported.rows) == ROWS  # "cat" is spelt so on line 7, behind "Cat"; "don't" on no line
    assert [(entry.line, entry.word) for entry in imported.dropped] == [(3, b"<pad>"), (8, b"new york"), (10, b"")]
    merged = [(entry.line, entry.word, entry.became) for entry in imported.merged]
    assert merged == [(2, b"The", b"the"), (5, b"Cat", b"cat"), (11, b"the", b"the")]
    assert [(entry.line, entry.word) for entry in imported.changed] == [(4, b"<EOS>"), (9, "DON\u2019T".encode())]
    assert imported.entries == 12


def test_every_imported_word_is_one_that_a_text_yields(foreign: Path) -> None:
    words = import_vocabulary(foreign).vocabulary.words
    yielded = [word for word in words if tokenize(word) == [word]]
    assert set(words) - set(yielded) == {b"<eos>", b"<reserved-0>"}


def test_a_vocabulary_of_ours_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(Vocabulary(WORDS).to_bytes())
    imported = import_vocabulary(path)
    assert (imported.vocabulary.words, imported.merged, imported.dropped) == (WORDS, (), ())
    assert list(imported.rows) == list(range(len(WORDS)))


COUNTED = (
    "<unk>\t7\n<eos>\t9\nparis\t5\tParis\n"
    "Caf\u00e9\t4\ncafe\u0301\t2\n\u039f\u0394\u039f\u03a3\t1\nit\u2019s\t1\na.b\t3\n"
)


def test_counts_are_added_up_and_forms_stay(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text(COUNTED, "utf-8")
    imported = import_vocabulary(path)
    assert imported.vocabulary.to_bytes().decode() == (
        "<unk>\t10\n<eos>\t9\nparis\t5\tParis\ncaf\u00e9\t6\n\u03bf\u03b4\u03bf\u03c3\t1\nit's\t1\n"
    )
    assert [len(part) for part in (imported.changed, imported.merged, imported.dropped)] == [3, 1, 1]
    assert list(imported.rows) == [0, 1, 2, 3, 5, 6]


def test_turkish_words_have_their_own_small_letters(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_text("<unk>\n<eos>\nI\u015eIK\n\u0130yi\n", "utf-8")
    own, common = import_vocabulary(path, turkish=True).vocabulary, import_vocabulary(path).vocabulary
    assert [word.decode() for word in own.words[2:]] == ["\u0131\u015f\u0131k", "iyi"]
    assert [word.decode() for word in common.words[2:]] == ["i\u015fik", "i\u0307yi"]
    path.write_bytes(own.to_bytes())
    assert import_vocabulary(path).vocabulary == Vocabulary.load(path)


@pytest.mark.parametrize(("content", "missing"), [(b"a\n<eos>\n", "<unk>"), (b"a\n<unk>\n", "<eos>"), (b"", "<unk>")])
def test_a_file_without_the_special_words_is_refused(tmp_path: Path, content: bytes, missing: str) -> None:
    path = tmp_path / "foreign.txt"
    path.write_bytes(content)
    with pytest.raises(VocabularyError, match=f"{missing} expected among its"):
        import_vocabulary(path)
    path.write_bytes(content + b"<unk>\n</s>\n")
    assert import_vocabulary(path).vocabulary.words[:2] == (b"<unk>", b"<eos>")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"the\n<eos>\n<unk>\n", "lines 1 and 2 must be <unk> and <eos>, .*; make one .* phonograd vocab import"),
        (
            b"\xef\xbb\xbf<unk>\n<eos>\nthe\n",
            "lines 1 and 2 must be <unk> and <eos>, .*; make one .* phonograd vocab import",
        ),
        (
            b"<unk>\n<eos>\nthe\nThe\nCat\n",
            "found 2 with capitals, the first is 'The' on line 4; .* vocab import",
        ),
    ],
)
def test_what_import_mends_is_refused_by_export_with_its_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(VocabularyError, match=message):
        load_vocabulary(path)
    path.write_bytes(import_vocabulary(path).vocabulary.to_bytes())
    assert load_vocabulary(path).words[:3] == (b"<unk>", b"<eos>", b"the")


def test_rows_follow_their_words_and_words_without_rows_are_refused(foreign: Path) -> None:
    source = import_vocabulary(foreign)
    assert rows_of(source.vocabulary, source).tolist() == ROWS
    assert rows_of(Vocabulary((b"<unk>", b"<eos>", b"cat")), source).tolist() == [5, 3, 6]
    with pytest.raises(VocabularyError, match="1 are not there, the first is 'dog'; .* phonograd vocab import"):
        rows_of(Vocabulary((b"<unk>", b"<eos>", b"dog", b"cat"), "v.txt"), source)


SPECIAL = ["<unk>", "<eos>"]
SENTENCE_PIECE = "<unk>\t0\n<s>\t0\n</s>\t0\n\u2581the\t-3.2\n\u2581The\t-4\ning\t-4.5\n\u2581cat\t-5.25\n\u2581\t-6\n"
FASTAI = ["xxunk", "xxpad", "xxbos", "xxeos", "xxmaj", "xxfake", "xxfake", "the", "cat"]


@pytest.mark.parametrize(
    ("content", "words", "rows"),
    [
        ("\ufeff<unk>\r\nthe\r\n<eos>\r\n".encode(), [*SPECIAL, "the"], [0, 2, 1]),
        ("<unk>\nthe\n<eos>\n".encode("utf-16"), [*SPECIAL, "the"], [0, 2, 1]),
        ("<unk>\nthe\n<eos>\n".encode("utf-32"), [*SPECIAL, "the"], [0, 2, 1]),
        (
            b"the 0.1 -2e-3 3\n. . 4 5 6\ncat 7 8 9\n",
            [*SPECIAL, "the", "cat"],
            [-1, -1, 0, 2],
        ),  # GloVe; ". ." is a word
        # A mark of SentencePiece's that is a word of its own.
        (
            "<unk>\n<eos>\n\u2581\nthe\ncat\na\nb\nc\nd\ne\nf\n".encode(),
            [*SPECIAL, "\u2581", "the", "cat", *"abcdef"],
            [*range(11)],
        ),
        (b"3 2\n</s> 0.1 0.2\nthe 0 1 \ncat 2 3\n", [*SPECIAL, "the", "cat"], [-1, 0, 1, 2]),  # word2vec, gensim
        (b"the 12\n<unk> 3\n<eos> 2\n", [*SPECIAL, "the"], [1, 2, 0]),
        (SENTENCE_PIECE.encode(), [*SPECIAL, "the", "cat"], [0, 2, 3, 6]),
        *((pickle.dumps(FASTAI, version), [*SPECIAL, "the", "cat"], [0, 2, 7, 8]) for version in (2, 5)),
        (b"[UNK]\n<unk>\n<eos>\nten 10\nnew york\n", SPECIAL, [1, 2]),
    ],
)
def test_lists_of_other_tools(tmp_path: Path, content: bytes, words: list[str], rows: list[int]) -> None:
    (tmp_path / "list").write_bytes(content)
    imported = import_vocabulary(tmp_path / "list")
    assert [word.decode() for word in imported.vocabulary.words] == words
    assert list(imported.rows) == rows
    assert imported.entries == len(imported.merged) + len(imported.dropped) + sum(row >= 0 for row in rows)


def test_word_vectors_have_no_rows_for_what_is_added(phono: Run, tmp_path: Path) -> None:
    (tmp_path / "glove").write_bytes(b"the 0.1 0.2\ncat 0.3 0.4\n")
    told = phono("vocab", "import", tmp_path / "glove", "--out", tmp_path / "v")
    assert "<unk> or <eos> is not there and was added" in told.err
    imported = import_vocabulary(tmp_path / "glove")
    with pytest.raises(VocabularyError, match="2 are not there, the first is '<unk>'"):
        rows_of(imported.vocabulary, imported)


class Trap:
    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return print, ("sprung",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02", "found a SentencePiece model; .*spm_export_vocab --model="),
        (b"2 2\nthe \0\0\x80?", "found a binary file; .*save_word2vec_format"),
        (pickle.dumps(["the", Trap()]), "a pickled list of words expected, found STACK_GLOBAL, of something else"),
        (pickle.dumps(["the"])[:-2] + b"h\x09.", "a pickled list of words expected, found list index out of range"),
        (b"\xff\xfe\0\xd8", "utf-16 expected, as it begins"),
    ],
)
def test_files_that_are_no_lists(tmp_path: Path, content: bytes, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "list").write_bytes(content)
    with pytest.raises(VocabularyError, match=said):
        import_vocabulary(tmp_path / "list")
    assert "sprung" not in capsys.readouterr().out


@pytest.mark.parametrize("tied", [False, True])
def test_all_tensors_that_have_a_row_a_word_are_permuted_and_no_other(tied: bool) -> None:
    config = LanguageModelConfig("lstm", vocabulary=12, embedding=12, hidden=12, layers=1, tied=tied)
    random = np.random.default_rng(1)
    tensors: dict[str, Array] = {
        spec.name: random.normal(size=spec.shape).astype("<f4") for spec in config.tensor_specs()
    }
    moved = permute(tensors, np.array(ROWS))
    of_words = [name for name in tensors if name in ROWS_OF_WORDS]
    assert len(of_words) == (2 if tied else 3)
    for name, array in tensors.items():
        assert np.array_equal(moved[name], array[ROWS] if name in of_words else array)


def test_a_model_trained_with_a_foreign_vocabulary_is_exported(phono: Run, foreign: Path, tmp_path: Path) -> None:
    config = msgspec.structs.replace(PRESETS["tiny"].model, vocabulary=12)
    ours, weights, artifacts = (tmp_path / name for name in ("vocab.txt", "torch.safetensors", "artifacts"))
    random = np.random.default_rng(2)
    trained = {spec.name: random.normal(size=spec.shape).astype("<f4") for spec in config.tensor_specs()}
    save_tensors(weights, to_torch(trained, config))
    told = phono("vocab", "import", foreign, "--out", ours, "--json").document
    assert (told["words"], told["dropped"], told["merged"]) == (6, 3, 3)
    assert {"line": 3, "word": "<pad>", "became": None} in told["changes"]
    assert "new york" in phono("vocab", "import", foreign, "--out", ours).out
    export = ("export", "--preset", "tiny", "--vocab", ours, "--weights", weights, "--out", artifacts)
    refused = phono(*export)
    assert (refused.code, artifacts.exists()) == (6, False)
    assert phono(*export, "--set", f"read.weights_vocab={foreign}").code == 0
    exported = load_tensors(artifacts / "weights.safetensors")
    for name, array in trained.items():
        assert np.array_equal(exported[name], array[ROWS] if name in ROWS_OF_WORDS else array), name


def test_weights_that_name_another_vocabulary_are_refused(phono: Run, foreign: Path, tmp_path: Path) -> None:
    ours, other = tmp_path / "vocab.txt", tmp_path / "other"
    ours.write_bytes(Vocabulary(WORDS).to_bytes())
    config = msgspec.structs.replace(PRESETS["tiny"].model, vocabulary=len(WORDS))
    zeros = {spec.name: np.zeros(spec.shape, "<f4") for spec in config.tensor_specs()}
    save_tensors(other, zeros, {VOCABULARY_SHA256: sha256_of_file(foreign)})
    line = (
        "export",
        "--preset",
        "tiny",
        "--vocab",
        ours,
        "--set",
        f"read.weights_vocab={ours}",
        "--out",
        tmp_path / "artifacts",
    )
    outcome = phono(*line, "--weights", other)
    assert (outcome.code, "trained with the vocabulary of SHA-256" in outcome.err) == (6, True)
