"""`phonograd selftest`: it passes here, and reports each thing that is wrong."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.base.errors import BuildError
from phonograd.device_runtime.base.system import cpu_name
from phonograd.device_runtime.client.server_client import DownloadedModel
from phonograd.device_runtime.engine.c_abi import NativeLibrary, load_library
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.selftest import checks
from phonograd.selftest import run as runner
from phonograd.selftest.run import Outcome, difference, run_selftest

GOLDEN = json.loads((runner.GOLDEN / "golden.json").read_text("utf-8"))
ENGINE, OTHERS = {"engine"}, {"text", "codecs", "links", "predictor", "round"}


def failed_checks(outcome: Outcome) -> set[str]:
    return {f"{row.area}: {row.check}" for row in outcome.rows if not row.passed}


def choose_checks(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Only these checks, by the names of their golden results."""
    monkeypatch.setattr(
        runner, "all_checks", lambda cpu: [one for one in checks.all_checks(cpu) if one.golden in names]
    )


def test_it_passes_here_without_a_network(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    connect = socket.socket.connect

    def near(self: socket.socket, address: Any) -> None:
        assert address[0] == "127.0.0.1"
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", near)
    assert run(phonograd, ["selftest", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    cpu = load_library().cpu_info()
    assert {row["area"] for row in found["rows"]} == ENGINE | OTHERS
    assert {row["check"].split()[1] for row in found["rows"] if row["area"] == "engine"} >= {*cpu["kernels"]}
    assert found["failed"] == 0
    line = rf"phonograd 0\.1\.0 selftest: {len(found['rows'])} passed, 0 failed; Linux .*; kernels {cpu['kernels'][0]}"
    assert re.match(line, found["line"])


@pytest.mark.long
def test_it_finds_every_wrong_golden_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every check fails if its result is another one, and the command says so with a code of its own."""
    broken = {name: next(_broken(result)) for name, result in GOLDEN.items()}
    (tmp_path / "golden.json").write_text(json.dumps(broken))
    monkeypatch.setattr(runner, "GOLDEN", tmp_path)
    # One kernel set: which one computes is not the matter.
    made = checks.all_checks({"kernels": ["portable"], "bf16": None})
    monkeypatch.setattr(runner, "all_checks", lambda cpu: made)
    assert run(phonograd, ["selftest"]) == 30
    said = capfd.readouterr()
    count = said.out.count("│ NO ")
    assert count == len(made)
    assert f"phonograd 0.1.0 selftest: 0 passed, {count} failed; " in said.out.splitlines()[-1]
    assert said.err == f"phonograd: self-test: {count} of {count} checks failed; send the line above\n"


def _broken(result: Any) -> Iterator[Any]:
    """The result with each of its parts changed, one at a time."""
    if isinstance(result, dict | list):
        places = result.keys() if isinstance(result, dict) else range(len(result))
        for place in places:
            for part in _broken(result[place]):
                changed = result.copy()
                changed[place] = part
                yield changed
    elif isinstance(result, float):
        yield result * (1 + 3 * checks.COARSE) + 1e-6
    elif result is not None:
        yield result + 1 if isinstance(result, int) else result[::-1] + "!"


def test_every_part_of_a_result_counts() -> None:
    for name, golden in GOLDEN.items():
        assert difference(golden, golden, 0.0) == ""
        for number, other in enumerate(_broken(golden)):
            assert difference(other, golden, checks.COARSE), (name, number)


def test_a_result_has_the_same_parts() -> None:
    assert difference({"a": [1.0]}, {"a": [1.0, 2.0]}, 0.1) == "a: expected [1.0, 2.0], found [1.0]"
    assert difference({}, {"a": 1}, 0.1) == "result: expected {'a': 1}, found {}"
    assert difference({"a": {"b": 1.0}}, {"a": {"b": 1.3}}, 0.1) == "a b: expected 1.3, found 1.0"
    assert difference(float("nan"), 1.0, 0.1) == "result: expected 1.0, found nan"


def test_a_library_that_does_not_load(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def refuse() -> NativeLibrary:
        raise BuildError("lib.so: cannot be loaded")

    monkeypatch.setattr(runner, "load_library", refuse)
    assert run(phonograd, ["selftest", "--json"]) == 30
    found = json.loads(capfd.readouterr().out)
    (row,) = found["rows"]
    assert (row["area"], row["fault"]) == ("library", "BuildError: lib.so: cannot be loaded")
    assert "0 passed, 1 failed" in found["line"]
    assert "kernels none; bf16 none" in found["line"]


@pytest.mark.parametrize(
    ("function", "golden", "expected"),
    [
        ("pg_engine_step", ("lstm fp32", "text"), r"engine: lstm \w+ fp32"),
        ("pg_tokenizer_mix", ("text", "fold"), "text: tokens and windows"),
        ("pg_update_write", ("fold", "text"), "codecs: average of updates"),
        ("pg_identity_certify", ("certificate", "text"), "round: certificate"),
    ],
)
def test_a_function_that_fails(
    monkeypatch: pytest.MonkeyPatch, function: str, golden: tuple[str, str], expected: str
) -> None:
    call = NativeLibrary.call

    def failing(self: NativeLibrary, name: str, *given: object, **named: object) -> tuple[Any, ...]:
        if name == function:
            raise RuntimeError("no such instruction")
        return call(self, name, *given, **named)

    monkeypatch.setattr(NativeLibrary, "call", failing)
    choose_checks(monkeypatch, *golden)
    outcome = run_selftest()
    assert failed_checks(outcome)
    assert all(re.fullmatch(expected, name) for name in failed_checks(outcome))
    assert {row.fault for row in outcome.rows if not row.passed} == {"RuntimeError: no such instruction"}
    assert outcome.failed < len(outcome.rows)


def test_other_bits_for_another_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    class Noisy(NativeBackend):
        def __init__(self, artifacts: Any, weights: Any, options: Any):
            self._noise = np.float32(1e-6 * (options.threads == 3))
            super().__init__(artifacts, weights, options)

        def weights(self) -> dict[str, Array]:
            return {name: values + self._noise for name, values in super().weights().items()}

    monkeypatch.setattr(checks, "NativeBackend", Noisy)
    choose_checks(monkeypatch, "lstm fp32")
    faults = {row.fault for row in run_selftest().rows}
    assert faults == {"WrongResultError: other bits with 2 or 3 threads than with 1"}


def test_a_phone_that_comes_to_another_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose_model(server: object, model: Path, phone: str) -> DownloadedModel:
        return DownloadedModel("", 0, changed=False)

    monkeypatch.setattr(checks, "pull", lose_model)
    choose_checks(monkeypatch, "round")
    (row,) = run_selftest().rows
    assert row.fault == "WrongResultError: a phone that followed the server's link has another model than the server"


def test_the_processors_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Fast One @ 3 GHz\n")
    assert cpu_name(tmp_path / "cpuinfo") == "A Fast One @ 3 GHz"
    monkeypatch.setattr("platform.processor", lambda: "")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    assert cpu_name(tmp_path / "none") == "riscv64"
    (tmp_path / "sysctl").write_text('#!/bin/sh\necho "Apple M9 ($2)"\n')
    (tmp_path / "sysctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert cpu_name() == "Apple M9 (machdep.cpu.brand_string)"
