"""How people read bytes: MB, GB, TB, in powers of 1000."""

UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def size(nbytes: float) -> str:
    """Bytes in the unit that leaves 1 to 999 of it, to three digits: 183 MB."""
    power = unit_power(nbytes)
    return f"{three_digits(nbytes / 1000**power)} {UNITS[power]}"


def unit_power(nbytes: float) -> int:
    """The power of 1000 of the unit that fits `nbytes`."""
    power = 0
    while power < len(UNITS) - 1 and abs(nbytes) >= 999.5 * 1000**power:
        power += 1
    return power


def three_digits(value: float) -> str:
    """Three digits, at most two of them behind the point."""
    if value == int(value) or abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"
