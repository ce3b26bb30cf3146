"""Unicode's properties, and NFC with simple case folding, from the engine's tables. FORMAT.md, "Text"."""

import re
from collections.abc import Sequence
from pathlib import Path

TABLES = Path(__file__).parents[2] / "device_runtime/native/src/text/unicode_tables.inc"
OTHER, LETTER, HEBREW, NUMBER, JOINS_LETTERS, JOINS_DIGITS, APOSTROPHE, QUOTE, EXTEND, JOINER, FLAG, HANGUL = range(12)
PICTOGRAPH, SPACE, UNSEEN, UNSPACED, WITH_JOINERS = (1 << bit for bit in range(10, 15))
SYLLABLES, LEADS, VOWELS, TAILS = 0xAC00, 0x1100, 0x1161, 0x11A7


def _read_arrays() -> dict[str, list[int]]:
    arrays = re.findall(r"(k\w+)\[\] = \{(.*?)\};", TABLES.read_text(), re.DOTALL)
    return {name: [int(number) for number in re.findall(r"-?\d+", body)] for name, body in arrays}


_A = _read_arrays()
_POINTS = [*_A["kDecomposed"], *_A["kDecomposedBeyond"]]
_PARTS = {
    point: [parts & 0x3FFFF, *filter(None, [_A["kSeconds"][parts >> 18]])]
    for point, parts in zip(_POINTS, _A["kParts"], strict=True)
}
_COMPOSED = {tuple(_PARTS[_POINTS[place]]): _POINTS[place] for place in _A["kComposites"]}
_RUNS = [_A["kFoldings"][at : at + 4] for at in range(0, len(_A["kFoldings"]), 4)]
_FOLDED = {point: point + add for first, last, step, add in _RUNS for point in range(first, last + 1, step)}


def record(character: str) -> int:
    """Word class (4 bits), flags and combining class of a character; a byte that is not UTF-8 is a letter."""
    point = ord(character)
    if 0xDC80 <= point < 0xDD00:
        return LETTER
    if point < 0x20000:
        block = _A["kAreas"][8 * _A["kAreaOf"][point // 128] + point // 16 % 8]
        return _A["kRecords"][_A["kBlocks"][16 * block + point % 16]]
    if point < 0x3FFFE:
        return UNSPACED
    return EXTEND | UNSEEN if 0xE0000 <= point < 0xE1000 else OTHER


def combining(character: str) -> int:
    """Canonical combining class."""
    return record(character) >> 24


def decompose(character: str) -> list[str]:
    """Full canonical decomposition."""
    point = ord(character)
    if 0 <= point - SYLLABLES < 11172:
        lead, vowel, tail = (point - SYLLABLES) // 588, (point - SYLLABLES) // 28 % 21, (point - SYLLABLES) % 28
        return [chr(LEADS + lead), chr(VOWELS + vowel), *([chr(TAILS + tail)] if tail else [])]
    return [last for part in _PARTS[point] for last in decompose(chr(part))] if point in _PARTS else [character]


def _compose_pair(first: str, second: str) -> str | None:
    one, two = ord(first), ord(second)
    if 0 <= one - LEADS < 19 and 0 <= two - VOWELS < 21:
        return chr(SYLLABLES + ((one - LEADS) * 21 + two - VOWELS) * 28)
    if 0 <= one - SYLLABLES < 11172 and (one - SYLLABLES) % 28 == 0 and 0 < two - TAILS < 28:
        return chr(one + two - TAILS)
    point = _COMPOSED.get((one, two))
    return None if point is None else chr(point)


def _order(characters: Sequence[str]) -> list[str]:
    ordered: list[str] = []
    for character in characters:
        place = len(ordered)
        while place and combining(ordered[place - 1]) > combining(character) > 0:
            place -= 1
        ordered.insert(place, character)
    return ordered


def _compose(characters: Sequence[str]) -> list[str]:
    composed: list[str] = []
    for character in characters:
        starter = next((at for at in reversed(range(len(composed))) if not combining(composed[at])), None)
        between = [] if starter is None else composed[starter + 1 :]
        blocked = starter is None or any(combining(one) >= combining(character) for one in between)
        pair = None if blocked or starter is None else _compose_pair(composed[starter], character)
        if pair is None or starter is None:
            composed.append(character)
        else:
            composed[starter] = pair
    return composed


def fold_case(character: str) -> str:
    """Simple case folding."""
    return chr(_FOLDED.get(ord(character), ord(character)))


def normalize(text: str, turkish: bool = False) -> str:
    """NFC of the folded parts."""
    parts = "".join(_order([part for character in text for part in decompose(character)]))
    if turkish:
        parts = parts.replace("I\u0307", "i").replace("I", "ı")
    return "".join(_compose([*map(fold_case, parts)]))
