"""The kernels' own promises (kernels/kernel_set.h, gemm.h), for every set that this CPU can run."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from phonograd.device_runtime.native_build import build_program
from tests.native.kernels import FUNCTIONS, PRODUCTS, SOURCES, hold, promised_errors


@pytest.fixture(scope="module")
def tool() -> Path:
    return build_program("kernels_tool", SOURCES)


def run_tool(tool: Path, *arguments: str) -> Any:
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


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
