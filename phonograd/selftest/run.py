"""Runs the checks of the self-test, and compares what they find with golden.json."""

import json
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import phonograd
from phonograd.device_runtime.base.system import cpu_name
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.selftest.checks import Check, all_checks
from phonograd.selftest.pieces import GOLDEN


@dataclass(frozen=True)
class Row:
    """One check's outcome. fault: what was wrong; "" if it passed."""

    area: str
    check: str
    passed: bool
    seconds: float
    fault: str


@dataclass(frozen=True)
class Outcome:
    """All checks' outcomes. line: says on one line what ran where, to be sent back; failed: how many checks did."""

    rows: list[Row]
    failed: int
    line: str


def run_selftest(progress: Callable[[int, int, str], None] | None = None) -> Outcome:
    """Run all checks; one that fails, in whatever way, is a row too. progress hears (done, in all, the next one)."""
    rows: list[Row] = []
    library: dict[str, Any] = {"kernels": [], "bf16": None}
    try:
        golden = json.loads((GOLDEN / "golden.json").read_text("utf-8"))
        library = load_library().cpu_info()
        checks = all_checks(library)
    except Exception as error:
        checks, rows = [], [Row("library", "is loaded", False, 0.0, _fault(error))]
    for done, check in enumerate(checks):
        if progress is not None:
            progress(done, len(checks), f"{check.area}: {check.name}")
        rows.append(_row(check, golden))
    failed = sum(not row.passed for row in rows)
    kernels = ", ".join(library["kernels"]) or "none"
    facts = (
        f"phonograd {phonograd.__version__} selftest: {len(rows) - failed} passed, {failed} failed",
        f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu_name(),
        f"kernels {kernels}; bf16 {library['bf16'] or 'none'}",
        f"Python {platform.python_version()}",
    )
    return Outcome(rows, failed, "; ".join(facts))


def _row(check: Check, golden: dict[str, Any]) -> Row:
    began = time.monotonic()
    try:
        # Through JSON, as the golden results went.
        found = json.loads(json.dumps(check.compute()))
        fault = difference(found, golden.get(check.golden), check.rounding)
    except Exception as error:
        fault = _fault(error)
    return Row(check.area, check.name, not fault, round(time.monotonic() - began, 3), fault)


def _fault(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def difference(found: Any, golden: Any, rounding: float, place: str = "") -> str:
    """The first place where a result differs from the golden one, floats by more than `rounding`; "" if none does."""
    if isinstance(golden, dict) and isinstance(found, dict) and golden.keys() == found.keys():
        pairs = [(found[name], golden[name], f"{place} {name}") for name in golden]
    elif isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        pairs = [(*pair, f"{place} {number}") for number, pair in enumerate(zip(found, golden, strict=True))]
    else:
        both = isinstance(golden, float) and isinstance(found, float)
        same = math.isclose(found, golden, rel_tol=rounding) if both else found == golden
        return "" if same else f"{place.strip() or 'result'}: expected {golden!r}, found {found!r}"
    return next(filter(None, (difference(*pair[:2], rounding, pair[2]) for pair in pairs)), "")
