"""`phonograd personal`, and what `predict` and `eval` make of its file."""

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
    assert phono("personal", "list", learned, "--json").document["words"] == {"servus": 3, "resi": 2, "vroni": 1}
    line = ("predict", workplace.artifacts, "servus", "--personal", learned, "--json")
    assert phono(*line).document[0]["words"][0]["word"] == "resi"
    assert phono("personal", "delete", learned, "Resi").code == 0
    assert "resi" not in str(phono(*line).document)
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


def test_keystrokes_saved_with_them(phono: Run, workplace: Workplace, learned: Path, tmp_path: Path) -> None:
    """Their file is read, and not changed."""
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
    for line in (("list",), ("forget",), ("veto",)):
        refused = phono("personal", *line, workplace.user, *(["x"] if line == ("veto",) else []))
        assert (refused.code, workplace.user.name in refused.err) == (17, True)
    refused = phono("personal", "learn", workplace.artifacts, workplace.user, "--text", workplace.user)
    assert (refused.code, workplace.user.read_bytes()) == (17, foreign)
