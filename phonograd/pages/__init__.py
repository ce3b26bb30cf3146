"""Tables and plots as people read them: cells in text and in HTML, plots as SVG, and the page that holds them."""

import math
import re
from collections.abc import Mapping

SHA256, HASH_DIGITS = re.compile("[0-9a-f]{64}"), 12  # that are shown of one; JSON has all
MOST_DECIMALS = 4
# Fields of records, and words in the names of others, as tables call them.
FIELDS = {
    "general_unknown_share": "general text, unknown words",
    "loss_first": "loss of the first step",
    "loss_last": "loss of the last step",
    "resumed_at": "resumed at step",
    "seconds_per_step_median": "seconds a step, median",
    "user_invalid_share": "user's text, bytes not UTF-8",
    "user_share": "user's share of the tokens",
    "user_unknown_share": "user's text, unknown words",
}
WORDS = {"kss": "keystrokes saved", "nbytes": "bytes", "rss": "memory", "sha256": "SHA-256", "top1": "top-1"}
SHARES = re.compile(r"(kss|top1)\w*|\w+_share|coverage|known|precision|recall")


def format_value(value: object) -> str:
    """A value as a table shows it: numbers grouped in thousands, floats to 4 significant digits or 2 decimals, the
    beginning of a SHA-256.
    """
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 10 or value == 0 else f"{value:.4g}"
    text = str(value)
    return text[:HASH_DIGITS] if SHA256.fullmatch(text) else text


def to_words(record: Mapping[str, object]) -> dict[str, object]:
    """A record's fields as a table has them: their names in words, shares in percent, bytes in MB.

    The standard error of a figure, NAME_error, is beside it; both end at the error's second digit.
    """
    named = {name: value for name, value in record.items() if not name.endswith("_error")}
    return dict(_title_and_cell(name, value, record.get(f"{name}_error")) for name, value in named.items())


def _title_and_cell(name: str, value: object, error: object) -> tuple[str, object]:
    words = name.replace("with_unknown", "with_unknown_words").split("_")
    title = FIELDS.get(name) or " ".join(WORDS.get(word, word) for word in words)
    if name.endswith("_bytes"):
        return f"{title.removesuffix(' bytes')}, MB", value / 1e6 if isinstance(value, int) else value
    if isinstance(value, float) and SHARES.fullmatch(name):
        return title, percent(value, error)
    if isinstance(value, float) and isinstance(error, float):
        return title, _to_the_error(value, error)
    return title, value


def percent(share: float, error: object = None) -> str:
    """A share with its standard error, if it has one: 14.9 ± 0.7 %."""
    return " ± ".join(f"{100 * one:.1f}" for one in (share, error) if isinstance(one, float)) + " %"


def _to_the_error(value: float, error: float) -> str:
    if not (0 < error < math.inf and math.isfinite(value)):
        return f"{format_value(value)} ± {format_value(error)}"
    digits = min(1 - math.floor(math.log10(error)), MOST_DECIMALS)
    return " ± ".join(f"{round(number, digits):,.{max(digits, 0)}f}" for number in (value, error))
