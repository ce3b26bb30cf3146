import json
from pathlib import Path

import pytest

from phonograd.bench.results import load_results, render
from phonograd.bench.tokenize import SCRIPTS
from phonograd.cli import phonograd
from phonograd.console import run


def test_made_texts_and_one_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phonograd.bench.tokenize.LINES", 20)
    line = ["bench", "tokenize", "--rounds", "1", "--json"]
    assert run(phonograd, [*line, "--save", str(tmp_path / "tokenize.json")]) == 0
    texts = json.loads(capsys.readouterr().out)["texts"]
    assert [one["name"] for one in texts] == list(SCRIPTS)
    for one in texts:
        assert 20 * 8 < one["tokens"] < 20 * 30, one["name"]  # of 12 words a line; Thai, Han and kana are cut too
    assert "| text | MB/s | MB | tokens |" in render(load_results(tmp_path))
    (tmp_path / "mine.txt").write_bytes(b"see you, you see\n\nok\n")
    assert run(phonograd, [*line, "--text", str(tmp_path / "mine.txt")]) == 0
    (only,) = json.loads(capsys.readouterr().out)["texts"]
    assert (only["name"], only["bytes"], only["tokens"]) == ("mine.txt", 20, 6)
