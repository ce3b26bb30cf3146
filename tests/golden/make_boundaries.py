"""Writes languages/boundaries.txt: where ICU ends the words of the texts beside it. Needs PyICU, in a venv of its own.

python tests/golden/make_boundaries.py
"""

import itertools
from pathlib import Path

import icu  # type: ignore[import-not-found]

FOLDER = Path(__file__).parent / "languages"
MARKS = icu.UCharCategory
# Categories of punctuation and symbols, but for modifiers.
KINDS = {
    MARKS.DASH_PUNCTUATION, MARKS.START_PUNCTUATION, MARKS.END_PUNCTUATION, MARKS.CONNECTOR_PUNCTUATION,
    MARKS.OTHER_PUNCTUATION, MARKS.INITIAL_PUNCTUATION, MARKS.FINAL_PUNCTUATION,
    MARKS.MATH_SYMBOL, MARKS.CURRENCY_SYMBOL, MARKS.OTHER_SYMBOL,
}  # fmt: skip


def lengths(line: str, language: str) -> list[int]:
    """How many code points each segment of a line has."""
    breaks = icu.BreakIterator.createWordInstance(icu.Locale(language))
    breaks.setText(icu.UnicodeString(line))
    units, ends = line.encode("utf-16-le"), [0, *breaks]
    return [len(units[2 * a : 2 * b].decode("utf-16-le")) for a, b in itertools.pairwise(ends)]


def main() -> None:
    """Write the file: a line with the versions, one with all marks, then, for each language, a line for each line."""
    texts = {path.stem: path.read_text("utf-8").splitlines() for path in sorted(FOLDER.glob("??.txt"))}
    characters = {one for lines in texts.values() for line in lines for one in line}
    marks = "".join(sorted(one for one in characters if icu.Char.charType(one) in KINDS))
    rows = [f"ICU {icu.ICU_VERSION}, Unicode {icu.UNICODE_VERSION}", marks]
    for language, lines in texts.items():
        rows += [f"{language} {' '.join(map(str, lengths(line, language)))}" for line in lines]
    (FOLDER / "boundaries.txt").write_text("\n".join(rows) + "\n", "utf-8")


if __name__ == "__main__":
    main()
