"""The native engine by the commands: its plan, and the binary for phones."""

import shutil
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import BuildError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import WEIGHTS, open_artifacts
from phonograd.device_runtime.native_build.checks import check_phone_binary
from phonograd.device_runtime.native_build.compiler import Build
from tests.support.command_line import Run, Workplace


def test_the_plan_is_printed(phono: Run, workplace: Workplace) -> None:
    outcome = phono("inspect", workplace.artifacts, "--plan")
    assert outcome.code == 0, outcome.err
    assert phono("inspect", workplace.artifacts, "--plan", "--json").document == {"plan": outcome.out}
    for part in ("embedding.weight", "LSTM", "2 threads"):
        assert part in outcome.out


def test_the_binary_for_phones(phono: Run, tmp_path: Path) -> None:
    out = tmp_path / "phonograd-phone"
    document = phono("build-phone", "--out", out, "--json").document
    facts = check_phone_binary(out)
    assert document["origin"] in ("built", "cached")
    assert (document["bytes"], document["sha256"]) == (facts.bytes, sha256_of_file(out))
    assert document["page_bytes"] == 16384
    outcome = phono("build-phone", "--out", out)
    assert outcome.code == 0
    for part in ("cached", document["sha256"][:12], f"{facts.bytes:,}"):
        assert part in outcome.out


def test_an_app_gets_the_model_without_its_second_copy_of_the_weights(
    phono: Run, workplace: Workplace, tmp_path: Path
) -> None:
    assert phono("zip-model", workplace.artifacts, "--out", tmp_path / "model.zip").code == 0
    shutil.unpack_archive(tmp_path / "model.zip", tmp_path)
    artifacts = open_artifacts(tmp_path / "artifacts")
    assert artifacts.path("checkpoint").read_bytes() == b""
    assert artifacts.path(WEIGHTS).read_bytes() == (workplace.artifacts / WEIGHTS).read_bytes()


def test_a_compile_is_announced_before_it_begins_without_a_terminal_too(
    phono: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise BuildError("no compiler today")

    monkeypatch.setenv("PHONOGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Build, "_zig", broken)
    told = phono("build-phone", "--out", tmp_path / "phonograd-phone", "--force").err.splitlines()
    assert told[0].startswith("building the phone binary, once: up to ")
    assert told[0].endswith(" files to compile, which can take minutes")
    assert told[1:] == ["phonograd: no compiler today"]
    quiet = phono("build-phone", "--out", tmp_path / "phonograd-phone", "--force", "--quiet")
    assert quiet.err == "phonograd: no compiler today\n"
