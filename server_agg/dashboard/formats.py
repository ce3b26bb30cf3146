"""Filters of the dashboard's templates: numbers, sizes and times as text."""

from datetime import datetime, timezone

from phonograd.server_agg.report import text
from phonograd.server_agg.report.text import three_digits

UNKNOWN = "–"


def size(nbytes: float | None) -> str:
    """Bytes with three digits in the fitting unit."""
    return UNKNOWN if nbytes is None else text.size(nbytes).replace(" ", "\N{NO-BREAK SPACE}")


def count(number: int | None) -> str:
    """An integer with thousands separators."""
    return UNKNOWN if number is None else f"{number:,}"


def number(value: float | None) -> str:
    """A number with four digits; with an exponent if it is very large or very small."""
    if value is None:
        return UNKNOWN
    if value and not 1e-3 <= abs(value) < 1e9:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def seconds(value: float | None) -> str:
    """A duration in its two largest units."""
    if value is None:
        return UNKNOWN
    if value < 100:
        return f"{three_digits(max(0.0, value))}\N{NO-BREAK SPACE}s"
    whole = round(value)
    for length, unit, below, below_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= length:
            return f"{whole // length}\N{NO-BREAK SPACE}{unit} {whole % length // below}\N{NO-BREAK SPACE}{below_unit}"
    return f"{whole}\N{NO-BREAK SPACE}s"


def date_time(at: float | None) -> str:
    """Seconds since 1970 as a date and time, UTC."""
    return UNKNOWN if at is None else _utc(at).strftime("%Y-%m-%d %H:%M:%S")


def iso_time(at: float) -> str:
    """Seconds since 1970 as ISO 8601, for HTML's <time>."""
    return _utc(at).strftime("%Y-%m-%dT%H:%M:%SZ")


def short(sha256: str | None) -> str:
    """The first 12 characters of a hash."""
    return UNKNOWN if sha256 is None else sha256[:12]


def ratio(ratio: float | None) -> str:
    """A ratio: 645×."""
    if ratio is None:
        return UNKNOWN
    return f"{three_digits(ratio)}×" if ratio < 1000 else f"{number(ratio)}×"


def _utc(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc)
