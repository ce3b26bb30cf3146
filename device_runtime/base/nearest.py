"""What a name that there is not may have been meant to be."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[object]) -> str:
    """How a message that refuses `name` ends: with the nearest of the known names, or with nothing if none is near."""
    nearest = difflib.get_close_matches(name, map(str, known), n=1)
    return "".join(f"; did you mean {one}?" for one in nearest if one != name)
