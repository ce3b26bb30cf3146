"""No kernel set goes without a test where this CPU has it."""

from tests.native.epochs import KERNELS as TRAINED
from tests.native.kernel_sets import compiled_sets, features_here, sets_here
from tests.native.kernels import FUNCTIONS, PRODUCTS


def test_the_sets_are_found_in_their_sources() -> None:
    found = {one.name: (one.machine, one.features) for one in compiled_sets()}
    assert found["portable"] == (None, frozenset())
    assert found["neon"] == ("aarch64", frozenset())
    assert found["bfmmla"] == ("aarch64", frozenset({"bf16"}))
    assert found["sme"][0] == found["bfmopa"][0] == "aarch64"
    assert found["avx2"] == ("x86_64", frozenset({"avx2", "fma"}))
    assert found["avx512-bf16"][1] > found["avx512"][1] > found["avx2"][1]
    assert found["amx-bf16"][1] > {"amxtile", "amxbf16", "avx512bf16"}


def test_every_set_that_this_cpu_has_is_run() -> None:
    """Ask the system what the CPU has, so that the engine cannot overlook a set either."""
    has = features_here()
    expected = {one.name for one in compiled_sets() if one.machine != "aarch64" and one.features <= has}
    if "amx-bf16" in expected:
        expected.remove("avx512-bf16")  # the engine takes the tiles
    assert set(sets_here()) == expected
    bf16 = {name for name in expected if name.endswith("-bf16")}
    assert set(FUNCTIONS) == set(TRAINED) == expected - bf16
    assert {kernels for kernels, precision in PRODUCTS if precision == "fp32"} == expected - bf16
    assert [kernels for kernels, precision in PRODUCTS if precision == "bf16"] == ["avx512"] * len(bf16)
