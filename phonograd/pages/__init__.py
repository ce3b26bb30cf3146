"""Tables and plots as people read them: cells in text and in HTML, plots as SVG, and the page that holds them."""


def format_value(value: object) -> str:
    """A value as a table shows it: numbers grouped in thousands, floats to 4 significant digits or 2 decimals."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 10 or value == 0 else f"{value:.4g}"
    return str(value)
