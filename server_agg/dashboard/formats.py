"""How the dashboard writes numbers, sizes and times."""

from datetime import datetime, timezone

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
UNKNOWN = "–"


def size(nbytes: float | None) -> str:
    """Bytes in the unit that leaves 1 to 1023 of it, to three digits."""
    if nbytes is None:
        return UNKNOWN
    power = unit_power(nbytes)
    return f"{_digits(nbytes / 1024**power)}\N{NO-BREAK SPACE}{UNITS[power]}"


def unit_power(nbytes: float) -> int:
    """The power of 1024 of the unit that fits `nbytes`."""
    power = 0
    while power < len(UNITS) - 1 and nbytes >= 999.5 * 1024**power:
        power += 1
    return power


def count(number: int | None) -> str:
    """A whole number, grouped in thousands."""
    return UNKNOWN if number is None else f"{number:,}"


def number(value: float | None) -> str:
    """A number to four digits; very large and very small ones with an exponent."""
    if value is None:
        return UNKNOWN
    if value and not 1e-3 <= abs(value) < 1e9:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def seconds(value: float | None) -> str:
    """A length of time in its two largest units."""
    if value is None:
        return UNKNOWN
    if value < 100:
        return f"{_digits(max(0.0, value))}\N{NO-BREAK SPACE}s"
    whole = round(value)
    for length, unit, below, below_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= length:
            return f"{whole // length}\N{NO-BREAK SPACE}{unit} {whole % length // below}\N{NO-BREAK SPACE}{below_unit}"
    return f"{whole}\N{NO-BREAK SPACE}s"


def when(at: float | None) -> str:
    """Seconds since 1970 as a date and time, UTC."""
    return UNKNOWN if at is None else _utc(at).strftime("%Y-%m-%d %H:%M:%S")


def machine_time(at: float) -> str:
    """Seconds since 1970 as HTML's <time> wants them."""
    return _utc(at).strftime("%Y-%m-%dT%H:%M:%SZ")


def short(sha256: str | None) -> str:
    """The beginning of a hash."""
    return UNKNOWN if sha256 is None else sha256[:12]


def times(ratio: float | None) -> str:
    """How many times less."""
    if ratio is None:
        return UNKNOWN
    return f"{_digits(ratio)}×" if ratio < 1000 else f"{number(ratio)}×"


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc)


def _digits(value: float) -> str:
    """Three digits, at most two of them behind the point."""
    if value == int(value) or value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
