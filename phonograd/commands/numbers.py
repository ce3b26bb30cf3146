"""Types of the parameters that are numbers."""

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A number in a range, and not NaN, which is in none, nor infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number. Raises click.BadParameter."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"a finite number expected, found {number}", param, ctx)
        return number
