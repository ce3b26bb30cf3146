"""`phonograd personal`, and what `predict` and `eval` make of its file."""

import zipfile
from pathlib import Path

import pytest

from tests.support.command_line import Run, Workplace


@pytest.fixture
def learned(phono: Run, workplace: Workplace, tmp_path: Path) -> Path:
    """A file that has learned a user's text."""
    text, file = tmp_path / "mine.txt", tmp_path / "own.words"
    text.write_text("Servus Resi\nservus Vroni\nservus resi\n")
    shown = phono("personal", "learn", workplace.artifacts, file, "--text", text)
    assert shown.code == 0, shown.err
    assert "servus" in shown.out
    return file


def test_words_are_learned_suggested_listed_and_deleted(phono: Run, workplace: Workplace, learned: Path) -> None:
    assert phono("personal", "list", learned, "--json").document["words"] == {"servus": 3, "Resi": 2, "Vroni": 1}
    line = ("predict", workplace.artifacts, "servus", "--personal", learned, "--json")
    assert phono(*line).document[0]["words"][0]["word"] == "Resi"
    assert phono("personal", "delete", learned, "Resi").code == 0
    assert "resi" not in str(phono(*line).document).lower()
    assert phono("personal", "veto", learned, "vroni").code == 0
    document = phono("personal", "list", learned, "--json").document
    assert (document["words"], document["vetoed"]) == ({"servus": 3}, ["vroni"])
    assert "vroni" in phono("personal", "list", learned).err
    assert phono("personal", "allow", learned, "Vroni").code == 0
    assert phono("personal", "list", learned, "--json").document["vetoed"] == []
    again = phono("personal", "allow", learned, "vroni")
    assert (again.code, "has no veto of 'vroni'" in again.err) == (2, True)
    assert phono("personal", "forget", learned).code == 0
    assert "Personal words: none" in phono("personal", "list", learned).out


def test_learning_shows_twenty_words_and_no_marks(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    text, file = tmp_path / "mine.txt", tmp_path / "own.words"
    text.write_text("\n".join(f"a{chr(97 + number)}o, 😂!" for number in range(25)) + "\n")
    shown = phono("personal", "learn", workplace.artifacts, file, "--text", text)
    rows = [line.split()[1] for line in shown.out.splitlines() if line.startswith("│")]
    assert (rows[0], len(rows)) == ("😂", 20)
    assert "the most written of 28 words; `phonograd personal list` shows all" in shown.err
    assert " ! " in phono("personal", "list", file).out


def test_keystrokes_saved_with_them(phono: Run, workplace: Workplace, learned: Path, tmp_path: Path) -> None:
    """The file is read, and not changed."""
    text, before = tmp_path / "later.txt", learned.read_bytes()
    text.write_text("servus resi\nservus vroni\n")
    (row,) = phono("eval", workplace.artifacts, "--text", text, "--kss", "--personal", learned, "--json").document
    assert row["kss_personal"] > 0.9 > row["kss"]
    assert learned.read_bytes() == before


def test_wrong_input_is_refused_by_name(phono: Run, workplace: Workplace, learned: Path, tmp_path: Path) -> None:
    missing = phono("predict", workplace.artifacts, "a", "--personal", tmp_path / "none")
    assert (missing.code, "phonograd personal learn" in missing.err) == (2, True)
    unknown = phono("personal", "delete", learned, "nobody")
    assert (unknown.code, "no word 'nobody'" in unknown.err) == (2, True)
    without = phono("eval", workplace.artifacts, "--text", workplace.user, "--personal", learned)
    assert (without.code, "--kss" in without.err) == (2, True)
    foreign = workplace.user.read_bytes()
    refused = phono("personal", "learn", workplace.artifacts, workplace.user, "--text", workplace.user)
    assert (refused.code, workplace.user.read_bytes()) == (17, foreign)


GBOARD = "# Gboard Dictionary version:1\n\tZwingliplatz\tde-CH\nomw\ton my way\ten-US\n\th8\t\n\n"
COLUMNS = "# Gboard Dictionary format:word\tshortcut\tlanguage_tag\r\n"
GBOARD_2 = f"\ufeff# Gboard Dictionary version:2\r\n{COLUMNS}fondue\tfd\tde-CH\r\n"
ANDROID = (
    "Row: 0 _id=1, word=Zwingliplatz, frequency=250, locale=de_CH, appid=0, shortcut=NULL\n"
    "Row: 1 _id=2, word=salt, pepper, frequency=250, locale=NULL, appid=0, shortcut=sp\n"
)


@pytest.mark.parametrize(
    ("content", "packed", "learned"),
    [
        (GBOARD, True, {"h8": 3, "my": 1, "on": 1, "way": 1, "Zwingliplatz": 1}),
        (GBOARD_2, False, {"fondue": 1}),
        (ANDROID, False, {",": 1, "pepper": 1, "salt": 1, "Zwingliplatz": 1}),
    ],
    ids=["zip", "columns", "android"],
)
def test_other_keyboards_dictionaries_are_learned(
    phono: Run, workplace: Workplace, tmp_path: Path, content: str, packed: bool, learned: dict[str, int]
) -> None:
    dictionary, file = tmp_path / "dictionary", tmp_path / "own.words"
    if packed:
        with zipfile.ZipFile(dictionary, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("dictionary.txt", content)
    else:
        dictionary.write_bytes(content.encode())
    assert phono("personal", "import", workplace.artifacts, file, dictionary, "--json").document["words"] == learned
    suggested = phono("predict", workplace.artifacts, "the", "--prefix", "zwin", "--personal", file, "--json").document
    assert [one["word"] for one in suggested[0]["words"]] == ["Zwingliplatz"] * ("Zwingliplatz" in learned)


def test_what_is_no_dictionary_is_refused(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dictionary.txt", bytes(1 << 25))
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("words.txt", GBOARD)
    for source, said in (
        (workplace.user, "Gboard's dictionary.txt, or its zip, or the rows of Android's user dictionary, expected"),
        (bomb, "at most 16777216 bytes expected"),
        (other, "no item named 'dictionary.txt'"),
    ):
        refused = phono("personal", "import", workplace.artifacts, tmp_path / "own.words", source)
        assert (refused.code, said in refused.err) == (3, True), refused.err
    assert not (tmp_path / "own.words").exists()
