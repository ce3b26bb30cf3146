"""The kernels' own promises (kernels/kernel_set.h, gemm.h), for every set that this CPU can run."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.native_build import build_program
from phonograd.device_runtime.native_build.targets import NATIVE

SOURCES = (
    *(Path(__file__).with_name(f"{name}.cpp") for name in ("kernels_tool", "amx_model")),
    *sorted((NATIVE / "src" / "kernels").glob("*.cpp")),
    *(
        NATIVE / "src" / "base" / f"{name}.cpp"
        for name in ("cpu_cores", "cpu_features", "files", "shares", "thread_pool")
    ),
)
CPU = load_library().cpu_info()
FUNCTIONS: list[str] = CPU["kernels"]
# The bf16 instructions go with the best set.
PRODUCTS = [(kernels, precision) for kernels in FUNCTIONS for precision in ("fp32", "bf16-emulated")]
PRODUCTS += [(FUNCTIONS[0], "bf16")] if CPU["bf16"] else []


@pytest.fixture(scope="module")
def tool() -> Path:
    return build_program("kernels_tool", SOURCES)


def run_tool(tool: Path, *arguments: str) -> Any:
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def promised_errors() -> dict[str, float]:
    """The largest errors that kernel_set.h states."""
    text = re.sub(r"\s*//\s*", " ", (NATIVE / "src" / "kernels" / "kernel_set.h").read_text())
    found = re.search(r"tests/native: exp ([\d.]+), sigmoid ([\d.]+), tanh ([\d.]+)", text)
    assert found is not None
    return dict(zip(("exp", "sigmoid", "tanh"), map(float, found.groups()), strict=True))


@pytest.mark.parametrize("kernels", FUNCTIONS)
def test_functions_keep_their_error_bounds(tool: Path, kernels: str) -> None:
    found = run_tool(tool, "functions", kernels)
    for name, bound in promised_errors().items():
        assert found[name]["measured"] > 10**6
        assert found[name]["wrong"] == 0, (name, found[name])
        assert found[name]["ulp"] <= bound, (name, found[name])


def test_an_error_beyond_the_bounds_would_be_seen(tool: Path) -> None:
    """One wrong float among millions; the kernel's own errors have no part in it."""
    found = run_tool(tool, "functions", "portable", "3")
    for name, bound in promised_errors().items():
        assert bound < 2.5 <= found[name]["ulp"] <= 3.5, (name, found[name])
        assert float.fromhex(found[name]["at"]) == 1


def hold(found: dict[str, Any]) -> None:
    """Assert that nothing counted is wrong, and that enough was counted."""
    counted = {"products": 700, "rounded": 10**6, "rows": 900, "sums": 1500, "blocks": 139, "deltas": 8000}
    (what,) = set(found) - {"wrong"}
    assert (found[what] > counted[what], found["wrong"]) == (True, 0), found


@pytest.mark.parametrize(("kernels", "precision"), [product for product in PRODUCTS if product[1] != "fp32"])
def test_numbers_are_rounded_to_bf16_to_the_bit(tool: Path, kernels: str, precision: str) -> None:
    hold(run_tool(tool, "rounding", kernels, precision))


@pytest.mark.parametrize(("kernels", "precision"), PRODUCTS)
def test_products_of_awkward_sizes(tool: Path, kernels: str, precision: str) -> None:
    hold(run_tool(tool, "gemm", kernels, "3", precision))


def test_tiles_of_amx_on_a_model_of_its_instructions(tool: Path) -> None:
    hold(run_tool(tool, "rounding", "portable", "amx-model"))
    hold(run_tool(tool, "gemm", "portable", "3", "amx-model"))


@pytest.mark.parametrize("kernels", FUNCTIONS)
@pytest.mark.parametrize("what", ["integers", "exponentials", "rotation", "deltas"])
def test_sums_rotations_and_deltas_are_exact_or_within_their_bound(tool: Path, what: str, kernels: str) -> None:
    hold(run_tool(tool, what, kernels))
