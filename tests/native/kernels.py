"""Kernels' program, the sets of this CPU, and what kernel_set.h promises."""

import re
from pathlib import Path
from typing import Any

from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.native_build.targets import NATIVE

SOURCES = (
    *(Path(__file__).with_name(f"{name}.cpp") for name in ("kernels_tool", "amx_model")),
    *sorted((NATIVE / "src" / "kernels").glob("*.cpp")),
    *(
        NATIVE / "src" / "base" / f"{name}.cpp"
        for name in ("cpu_cores", "cpu_features", "files", "memory", "shares", "thread_pool")
    ),
)
CPU = load_library().cpu_info()
FUNCTIONS: list[str] = CPU["kernels"]
# The bf16 instructions go with the best set.
PRODUCTS = [(kernels, precision) for kernels in FUNCTIONS for precision in ("fp32", "bf16-emulated")]
PRODUCTS += [(FUNCTIONS[0], "bf16")] if CPU["bf16"] else []


def promised_errors() -> dict[str, float]:
    """The largest errors that kernel_set.h states."""
    text = re.sub(r"\s*//\s*", " ", (NATIVE / "src" / "kernels" / "kernel_set.h").read_text())
    found = re.search(r"tests/native: exp ([\d.]+), sigmoid ([\d.]+), tanh ([\d.]+)", text)
    assert found is not None
    return dict(zip(("exp", "sigmoid", "tanh"), map(float, found.groups()), strict=True))


def hold(found: dict[str, Any]) -> None:
    """Assert that nothing counted is wrong, and that enough was counted."""
    counted = {"products": 700, "rounded": 10**6, "rows": 900, "sums": 1500, "blocks": 139, "deltas": 8000}
    (what,) = set(found) - {"wrong"}
    assert (found[what] > counted[what], found["wrong"]) == (True, 0), found
