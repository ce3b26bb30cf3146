"""Tables and plots as people read them: cells in text and in HTML, plots as SVG, and the page that holds them."""

import math
import re
from collections.abc import Mapping

SHA256, HASH_DIGITS = re.compile("[0-9a-f]{64}"), 12  # that are shown of one; JSON has all
MOST_DECIMALS = 4


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


def with_errors(row: Mapping[str, object]) -> dict[str, object]:
    """A row with the standard errors of figures, NAME_error, beside them; both end at the error's second digit."""
    found = {name: value for name, value in row.items() if not name.endswith("_error")}
    for name in found:
        value, error = row[name], row.get(f"{name}_error")
        if isinstance(value, float) and isinstance(error, float):
            found[name] = _to_the_error(value, error)
    return found


def _to_the_error(value: float, error: float) -> str:
    if not (0 < error < math.inf and math.isfinite(value)):
        return f"{format_value(value)} ± {format_value(error)}"
    digits = min(1 - math.floor(math.log10(error)), MOST_DECIMALS)
    return " ± ".join(f"{round(number, digits):,.{max(digits, 0)}f}" for number in (value, error))
