"""Foreign text on a terminal: its control characters are shown, not obeyed."""

import re
from collections.abc import Mapping

# C0 but tab and line feed; DEL and C1; what ends a line or turns the direction of writing.
_SPANS = ((0, 8), (11, 31), (127, 159), (0x61C, 0x61C), (0x200E, 0x200F), (0x2028, 0x202E), (0x2066, 0x2069))
_SHOWN = {code: ascii(chr(code))[1:-1] for first, last in _SPANS for code in range(first, last + 1)}


def visible(text: str) -> str:
    r"""The text with its control characters as Python writes them, such as \x1b; tabs and line feeds stay."""
    return text.translate(_SHOWN)


def with_options(message: str, options: Mapping[str, str]) -> str:
    """The message with options in place of its settings in backticks; a setting without an option stands plain."""
    return re.sub(r"`([a-z0-9_]+)`", lambda found: options.get(found[1], found[1]), message)
