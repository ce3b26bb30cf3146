"""Tokens: FORMAT.md, "Text"."""

from collections.abc import Callable

from tests.reference.unicode import (
    APOSTROPHE,
    EXTEND,
    FLAG,
    HANGUL,
    HEBREW,
    JOINER,
    JOINS_DIGITS,
    JOINS_LETTERS,
    LETTER,
    NUMBER,
    PICTOGRAPH,
    QUOTE,
    SPACE,
    UNSEEN,
    UNSPACED,
    WITH_JOINERS,
    fold_case,
    normalize,
    record,
)  # fmt: skip

MARKS = {"‘": "'", "’": "'", "＇": "'", "“": '"', "”": '"', "…": "...", "–": "-", "—": "-"}
APOSTROPHES = "\u00b4\u02bb\u02bc\u055a\u201b\u2032"
ELIDED = {
    "all", "anch", "bell", "c", "com", "cos", "d", "dall", "dell", "dev", "dov", "j", "jusqu", "l", "lorsqu", "m",
    "mezz", "n", "neanch", "nell", "nessun", "nient", "puisqu", "qu", "qual", "qualcos", "quand", "quant", "quell",
    "quest", "quoiqu", "s", "sant", "senz", "sott", "sull", "t", "trent", "tutt", "un", "vent",
}  # fmt: skip
VOWELS = "aeiouyhàáâäæèéêëìíîïòóôöùúûüœ"
FindWords = Callable[[str], list[str]]


def word_class(character: str) -> int:
    """Word_Break, as tailored."""
    return record(character) & 15


def has(character: str, flag: int) -> bool:
    """Whether the character has a property; "" has none."""
    return bool(character) and bool(record(character) & flag)


def extends(character: str) -> bool:
    """Whether it is part of what is before it."""
    return bool(character) and word_class(character) in (EXTEND, JOINER)


def is_word(character: str) -> bool:
    """Whether it is a letter or digit of a script with spaces."""
    return (
        bool(character) and word_class(character) in (LETTER, HEBREW, HANGUL, NUMBER) and not has(character, UNSPACED)
    )


def is_letter(character: str) -> bool:
    """Whether it is a letter."""
    return bool(character) and word_class(character) in (LETTER, HEBREW, HANGUL)


def _is_kept(one: str, last: str, before: str, after: str) -> bool:
    if one == "\u200b":
        return has(last, UNSPACED)
    if one == "\u200d" and has(last, PICTOGRAPH) and has(after, PICTOGRAPH):
        return True
    if one in "\u200c\u200d":
        return has(last, WITH_JOINERS) and has(after, WITH_JOINERS)
    if one in "\ufe0e\ufe0f":
        return has(last, PICTOGRAPH) or (after == "\u20e3" and before in tuple("0123456789#*"))
    return "\U000e0020" <= one <= "\U000e007f" and has(last, PICTOGRAPH)


def fold(text: bytes, turkish: bool = False) -> str:
    """Step 1; bytes that are not UTF-8 are lone surrogates."""
    characters = text.decode("utf-8", "surrogateescape")
    kept, last = "", ""
    for at, one in enumerate(characters):
        after = characters[at + 1 : at + 2]
        if has(one, UNSEEN):
            if not _is_kept(one, last, kept[-1:], after):
                continue
        elif one in MARKS or (one in APOSTROPHES and is_letter(last) and is_letter(after)):
            one = MARKS.get(one, "'")
        kept += one
        folded = fold_case(one[-1])
        if not extends(folded) or has(folded, WITH_JOINERS):
            last = folded
    return normalize(kept, turkish)


def graphemes(text: str) -> list[str]:
    """Code points with the marks on them."""
    units: list[str] = []
    for character in text:
        if units and extends(character) and not has(units[-1][0], SPACE) and units[-1] != "\u200b":
            units[-1] += character
        else:
            units.append(character)
    return units


def _is_keycap(unit: str) -> bool:
    return unit.lstrip(unit[:1]).lstrip("\ufe0f")[:1] == "\u20e3"


def _goes_on(before: str, one: str, after: str) -> bool:
    """Whether a mark, between the units before and after it, is part of the word before it."""
    kind, last, following = word_class(one[0]), before[0], after[:1]
    both = {word_class(last), word_class(following)} if following else set()
    if HANGUL in (word_class(last), *both):
        return False
    if kind == APOSTROPHE:
        return is_word(following) or word_class(last) == HEBREW
    if kind == QUOTE:
        return both == {HEBREW}
    if kind == JOINS_LETTERS:
        return is_letter(last) and is_word(following) and is_letter(following)
    return kind == JOINS_DIGITS and both == {NUMBER}


def _end_of_word(units: list[str], begin: int) -> int:
    """Return where a word ends, in units."""
    at, apostrophes = begin + 1, 0
    while at < len(units):
        one, after = units[at], units[at + 1] if at + 1 < len(units) else ""
        if is_word(one[0]):
            if one[0].isascii() and _is_keycap(one):
                return at
            if (word_class(units[at - 1][0]) == HANGUL) != (word_class(one[0]) == HANGUL):
                return at
            at += 1
            continue
        if not is_word(units[at - 1][0]) or not _goes_on(units[at - 1], one, after):
            return at
        at += 1
        if word_class(one[0]) == APOSTROPHE:
            apostrophes += 1
            if apostrophes == 1 and "".join(units[begin : at - 1]) in ELIDED and after[:1] in tuple(VOWELS):
                return at
    return at


def _end_of_token(units: list[str], begin: int) -> int:
    """Return where a token ends that is no run without spaces."""
    first = units[begin][0]
    if units[begin : begin + 5] == ["<", "u", "n", "k", ">"]:
        return begin + 5
    if first.isascii() and _is_keycap(units[begin]):
        return begin + 1
    if is_word(first):
        return _end_of_word(units, begin)
    end = begin + 1
    if has(first, PICTOGRAPH):
        while end < len(units) and units[end - 1][-1] == "\u200d" and has(units[end][0], PICTOGRAPH):
            end += 1
    elif word_class(first) == FLAG and end < len(units) and word_class(units[end][0]) == FLAG:
        end += 1
    return end


def tokenize(message: bytes, find_words: FindWords = graphemes, turkish: bool = False) -> list[bytes]:
    """The tokens; find_words splits a run of letters without spaces, by default into graphemes."""
    units, tokens, at = graphemes(fold(message, turkish)), list[str](), 0
    while at < len(units):
        first = units[at][0]
        if has(first, SPACE) or first == "\u200b":
            units[at] = units[at][1:]  # marks after a space are a token
            at += not units[at]
        elif has(first, UNSPACED):
            end = next((to for to in range(at, len(units)) if not has(units[to][0], UNSPACED)), len(units))
            tokens += find_words("".join(units[at:end]))
            at = end
        else:
            end = _end_of_token(units, at)
            tokens.append("".join(units[at:end]))
            at = end
    return [token.encode("utf-8", "surrogateescape") for token in tokens]
