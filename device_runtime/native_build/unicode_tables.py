"""Write native/src/text/unicode_tables.inc from Unicode's own files, which Debian's package unicode-data has.

Needed again only for another version of Unicode, or for other rules in FORMAT.md, "Text":
python -m phonograd.device_runtime.native_build.unicode_tables
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

SOURCE = Path("/usr/share/unicode")
TARGET = Path(__file__).parents[1] / "native" / "src" / "text" / "unicode_tables.inc"

BLOCK, AREA = 16, 8  # code points of a block, and blocks of an area, of the three-stage table
TABLE_END = 0x20000  # from here on, unicode.cpp names the few ranges that have properties
COLUMNS = 24  # numbers of a line

# WordClass of unicode.h in its order, by names of WordBreakProperty.txt, and Hangul. Format is as Extend: neither
# begins a word.
CLASSES = (
    "Other", "ALetter", "Hebrew_Letter", "Numeric", "MidLetter", "MidNum", "Single_Quote", "Double_Quote", "Extend",
    "ZWJ", "Regional_Indicator", "Hangul",
)  # fmt: skip
# These alone join letters, and digits: of what UAX #29 has, the colon, the full stop and `_` join no letters.
JOIN_LETTERS = (0x00B7, 0x0387, 0x055F, 0x05F4, 0x2027)
JOIN_DIGITS = (0x002C, 0x002E, 0x066B, 0x066C)
# Scripts written without spaces, beside those with LineBreak SA.
NO_SPACES = ("Han", "Hiragana", "Katakana", "Tangut", "Nushu", "Khitan_Small_Script")
# Scripts in whose words a joiner, or a non-joiner, makes a difference.
WITH_JOINERS = (
    "Arabic", "Syriac", "Mongolian", "Nko", "Mandaic", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Oriya",
    "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Myanmar", "Khmer", "Tibetan", "Balinese", "Javanese",
    "Sundanese",
)  # fmt: skip
# Flags of unicode.h, from bit 8 on; the class has the bits 0 to 3, the canonical combining class those from 24 on.
FLAGS = (
    "normalize", "fold", "pictograph", "space", "unseen", "unspaced", "with_joiners", "rewritten", "composes", "starts",
)  # fmt: skip
LEADS, SYLLABLES = range(0x1100, 0x1113), range(0xAC00, 0xD7A4)  # of Hangul, composed by arithmetic
# Typographic marks, and what is written for an apostrophe: fold.cpp has what they become.
REWRITTEN = {0xB4, 0x2BB, 0x2BC, 0x55A, 0x2013, 0x2014, 0x2018, 0x2019, 0x201B, 0x201C, 0x201D, 0x2026, 0x2032, 0xFF07}


def read_lines(name: str) -> Iterator[list[str]]:
    """Yield the fields of a file's lines, without comments."""
    for line in (SOURCE / name).read_text(encoding="utf-8").splitlines():
        fields = [part.strip() for part in line.split("#", 1)[0].split(";")]
        if fields[0] and not fields[0].startswith("@"):
            yield fields


def points(text: str) -> range:
    """Code points of a first field: one, or a range."""
    first, _, last = text.partition("..")
    return range(int(first, 16), int(last or first, 16) + 1)


def values_of(name: str) -> dict[int, str]:
    """Value of each code point that a file has, by its second field."""
    return {point: fields[1] for fields in read_lines(name) for point in points(fields[0])}


def points_with(name: str, *values: str) -> set[int]:
    """Code points with one of these values in a file, where a code point may have several."""
    return {point for fields in read_lines(name) if fields[1] in values for point in points(fields[0])}


class Unicode:
    """What the files say: canonical decompositions, primary composites, simple case foldings, and records."""

    def __init__(self) -> None:
        """Read all files."""
        lines = list(read_lines("UnicodeData.txt"))
        self.combining = {int(line[0], 16): int(line[3]) for line in lines}
        self.decompositions = {
            int(line[0], 16): tuple(int(part, 16) for part in line[5].split())
            for line in lines
            if line[5] and "<" not in line[5]
        }
        excluded = points_with("DerivedNormalizationProps.txt", "Full_Composition_Exclusion")
        self.composites = [point for point in self.decompositions if point not in excluded]
        self.foldings = {
            int(line[0], 16): int(line[2], 16) for line in read_lines("CaseFolding.txt") if line[1] in "CS"
        }
        self.classes = self._classes()
        self.flags = self._flags({int(line[0], 16) for line in lines if line[2][0] in "PS"})

    def _classes(self) -> dict[int, str]:
        classes = values_of("auxiliary/WordBreakProperty.txt")
        marks = points_with("auxiliary/GraphemeBreakProperty.txt", "Extend", "SpacingMark")
        classes |= {point: "Extend" for point, kind in classes.items() if kind == "Format"}
        classes |= {point: "Extend" for point in marks if classes.get(point) is None}
        hangul = points_with("Scripts.txt", "Hangul")
        classes |= {point: "Hangul" for point in hangul if classes.get(point) == "ALetter"}
        classes |= dict.fromkeys(JOIN_LETTERS, "MidLetter") | dict.fromkeys(JOIN_DIGITS, "MidNum")
        kept = {*JOIN_LETTERS, *JOIN_DIGITS}
        return {point: kind for point, kind in classes.items() if point in kept or not kind.startswith("Mid")}

    def _flags(self, marks: set[int]) -> dict[str, set[int]]:
        katakana = points_with("auxiliary/WordBreakProperty.txt", "Katakana")
        unspaced = points_with("Scripts.txt", *NO_SPACES) | points_with("LineBreak.txt", "SA") | katakana
        words = ("Other", "ALetter", "Katakana")
        return {
            "normalize": points_with("DerivedNormalizationProps.txt", "NFC_QC")
            | set(filter(self._folds_apart, {*self.foldings, *self.decompositions})),
            "fold": set(self.foldings),
            "pictograph": points_with("emoji/emoji-data.txt", "Extended_Pictographic"),
            "space": points_with("PropList.txt", "White_Space"),
            "unseen": points_with("DerivedCoreProperties.txt", "Default_Ignorable_Code_Point"),
            "unspaced": {point for point in unspaced - marks if self.classes.get(point, "Other") in words},
            "with_joiners": points_with("Scripts.txt", *WITH_JOINERS),
            "rewritten": REWRITTEN,
            "composes": points_with("DerivedNormalizationProps.txt", "NFC_QC") - {*self.decompositions},
            "starts": {self.decompositions[one][0] for one in self.composites}
            | {*self.decompositions, *LEADS, *SYLLABLES},
        }

    def _decompose(self, point: int) -> list[int]:
        parts = self.decompositions.get(point)
        return [point] if parts is None else [last for part in parts for last in self._decompose(part)]

    def _folds_apart(self, point: int) -> bool:
        """Whether folding the parts of a code point gives another text than folding it, or a mark becomes a letter."""
        if point in self.foldings and self.combining[point]:
            return True
        folded = [self.foldings.get(part, part) for part in self._decompose(point)]
        return folded != self._decompose(self.foldings.get(point, point))

    def record(self, point: int) -> int:
        """Class, flags and combining class as unicode.h reads them."""
        kind = self.classes.get(point, "Other")
        flags = sum(1 << 8 + bit for bit, flag in enumerate(FLAGS) if point in self.flags[flag])
        return CLASSES.index(kind if kind in CLASSES else "Other") | flags | self.combining.get(point, 0) << 24


def array(kind: str, name: str, numbers: Iterable[int]) -> str:
    """A constant array in C++."""
    values = [str(number) for number in numbers]
    rows = (", ".join(values[at : at + COLUMNS]) for at in range(0, len(values), COLUMNS))
    return f"const {kind} {name}[] = {{\n" + "".join(f"    {row},\n" for row in rows) + "};\n"


def property_arrays(unicode: Unicode) -> Iterator[str]:
    """Yield the records, and the three stages that lead to a code point's."""
    records = [unicode.record(point) for point in range(TABLE_END)]
    distinct = sorted(set(records))
    number = {record: index for index, record in enumerate(distinct)}
    blocks, block_of = share_parts([number[record] for record in records], BLOCK)
    areas, area_of = share_parts(block_of, AREA)
    yield array("uint32_t", "kRecords", distinct)
    yield array("uint8_t", "kAreaOf", area_of)
    yield array("uint16_t", "kAreas", areas)
    yield array("uint8_t", "kBlocks", blocks)


def share_parts(numbers: list[int], size: int) -> tuple[list[int], list[int]]:
    """The distinct parts of `size` numbers, one after another, and which of them each part is."""
    parts = [tuple(numbers[at : at + size]) for at in range(0, len(numbers), size)]
    places = {part: place for place, part in enumerate(dict.fromkeys(parts))}
    return [number for part in places for number in part], [places[part] for part in parts]


def normalization_arrays(unicode: Unicode) -> Iterator[str]:
    """Yield decompositions, a first part of 18 bits and the number of the second, and places of those that compose."""
    pairs = {
        point: (parts[0], parts[1] if len(parts) > 1 else 0) for point, parts in sorted(unicode.decompositions.items())
    }
    seconds = sorted({second for _, second in pairs.values()})
    places = {point: at for at, point in enumerate(pairs)}
    yield array("uint32_t", "kSeconds", seconds)
    yield array("uint16_t", "kDecomposed", (point for point in pairs if point <= 0xFFFF))
    yield array("uint32_t", "kDecomposedBeyond", (point for point in pairs if point > 0xFFFF))
    yield array("uint32_t", "kParts", (first | seconds.index(second) << 18 for first, second in pairs.values()))
    yield array(
        "uint16_t", "kComposites", (places[point] for point in sorted(unicode.composites, key=lambda one: pairs[one]))
    )


def folding_arrays(unicode: Unicode) -> Iterator[str]:
    """Yield ranges of foldings: the first code point, how many at which distance, and what is added."""
    runs: list[list[int]] = []  # first, last, step, difference
    for point, folded in sorted(unicode.foldings.items()):
        difference = folded - point
        if runs and runs[-1][3] == difference and point - runs[-1][1] == (runs[-1][2] or point - runs[-1][1]) <= 2:
            runs[-1][2] = point - runs[-1][1]
            runs[-1][1] = point
        else:
            runs.append([point, point, 0, difference])
    yield (
        array("Folding", "kFoldings", ())[:-3]
        + "".join(f"    {{{first}, {last}, {max(step, 1)}, {difference}}},\n" for first, last, step, difference in runs)
        + "};\n"
    )


def main() -> None:
    """Write the file."""
    unicode = Unicode()
    version = (SOURCE / "CaseFolding.txt").read_text(encoding="utf-8").split("-", 1)[1].split(".txt", 1)[0]
    head = "// Made by native_build/unicode_tables.py from Unicode's files; do not edit.\n"
    head += "// clang-format off: rows of a table, several a line\n"
    head += f'constexpr const char* kVersion = "{version}";\n'
    arrays = [*property_arrays(unicode), *normalization_arrays(unicode), *folding_arrays(unicode)]
    TARGET.write_text(head + "\n".join(arrays), encoding="utf-8")


if __name__ == "__main__":
    main()
