"""Unicode's own tests of its rules, and the tables that its files make."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from phonograd.device_runtime.native_build import unicode_tables
from phonograd.device_runtime.text.messages import tokenize
from tests.reference.tokens import APOSTROPHES, MARKS, has
from tests.reference.unicode import SPACE, UNSEEN, UNSPACED, normalize

FOLDER = Path(__file__).parents[1] / "golden" / "unicode"
# What FORMAT.md, "Text", has otherwise than UAX #29: marks that join less or more, and what goes or splits.
TAILORED = {":", ".", "_", "'"}


def read_lines(name: str) -> Iterator[str]:
    yield from (
        line for line in gzip.decompress((FOLDER / f"{name}.gz").read_bytes()).decode().splitlines() if line[0] != "#"
    )


def characters(text: str) -> str:
    return "".join(chr(int(point, 16)) for point in text.split())


def is_own_rule(character: str) -> bool:
    return has(character, SPACE | UNSEEN) or character in MARKS or character in APOSTROPHES


def test_normalization() -> None:
    lines = [[characters(column) for column in line.split(";")] for line in read_lines("NormalizationTest.txt")]
    plain = [line for line in lines if not any(map(is_own_rule, "".join(line)))]
    assert len(plain) > 0.98 * len(lines)
    for source, nfc, nfd in plain:
        expected = normalize(nfc)
        assert {b"".join(tokenize(text.encode())).decode() for text in (source, nfc, nfd)} == {expected}, source


def test_word_breaks() -> None:
    lines = list(read_lines("WordBreakTest.txt"))
    differing = [line for line in lines if not _splits_alike(line)]
    assert len(lines) > 1800
    assert len(differing) < 250
    for line in differing:
        text = characters(line.replace("\u00f7", "").replace("\u00d7", ""))
        assert TAILORED & {*text} or any(has(one, SPACE | UNSEEN | UNSPACED) for one in text), line


def _splits_alike(line: str) -> bool:
    parts = [characters(part.replace("\u00d7", "")) for part in line.split("\u00f7")]
    text = "".join(parts).replace("\r", "\f").replace("\n", "\f")
    seen = [normalize("".join(one for one in part if not has(one, UNSEEN))) for part in parts]
    expected = [part.encode() for part in seen if part and not part.isspace()]
    return tokenize(text.encode()) == expected


@pytest.mark.phone  # Debian's package unicode-data is needed
def test_the_tables_are_those_of_unicodes_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = unicode_tables.TARGET.read_bytes()
    monkeypatch.setattr(unicode_tables, "TARGET", tmp_path / "tables.inc")
    unicode_tables.main()
    assert (tmp_path / "tables.inc").read_bytes() == tables
