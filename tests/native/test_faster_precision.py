"""Which precision is faster on this CPU: the rule holds whatever the clock says."""

import pytest

from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.precision import faster_precision
from tests.support.phone_command import Place

CPU = load_library().cpu_info()


def follows_the_rule(precision: str, fp32: float, bf16: float) -> bool:
    return precision == ("bf16" if bf16 > 1.1 * fp32 else "fp32")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("kernels", CPU["kernels"])
def test_bf16_is_taken_where_it_is_a_tenth_faster(kernels: str, threads: int) -> None:
    found = faster_precision(BackendOptions(threads=threads, kernels=kernels))
    assert found.fp32 > 0
    # The bf16 instructions go with the best set.
    assert (found.bf16 > 0) == (kernels == CPU["kernels"][0] and CPU["bf16"] is not None)
    assert follows_the_rule(found.precision, found.fp32, found.bf16)


def test_the_phones_program_says_what_it_took(place: Place) -> None:
    done = place.train("--precision", "auto")
    took = done.only("precision")
    assert done.only("start")["precision"] == took["precision"]
    assert follows_the_rule(took["precision"], took["fp32_gflops"], took["bf16_gflops"])
    plain = place.train("--precision", "auto", "--kernels", "portable")
    assert (plain.only("precision")["bf16_gflops"], plain.only("start")["precision"]) == (0, "fp32")
    assert all(event["event"] != "precision" for event in place.train().events)
