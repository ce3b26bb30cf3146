"""ModelFiles on a JVM, against the real program."""

import subprocess
from pathlib import Path

import pytest

from phonograd.device_runtime.base.files import sha256_of_file
from tests.android_harness.app.jvm import Jvm
from tests.support.phone_command import Place
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.apk


def test_a_model_is_pulled_and_quantized(jvm: Jvm, place: Place, tmp_path: Path) -> None:
    artifacts, fetched = place.artifacts.folder, place.artifacts.path("weights.safetensors")
    model, quantized, ours = tmp_path / "model", tmp_path / "int8", tmp_path / "ours"
    words = (place.command, artifacts, fetched, sha256_of_file(fetched), model, quantized)
    line = [*jvm.java("ModelDrive"), *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    refused, links = done.stdout.splitlines()
    assert refused.startswith("refused 6 FAILED phonograd-phone: ")
    assert links == "links 0"
    assert model.read_bytes() == fetched.read_bytes()
    assert place.run("quantize", artifacts, "--out", ours).code == 0
    assert quantized.read_bytes() == ours.read_bytes()
