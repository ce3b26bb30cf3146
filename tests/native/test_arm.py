"""The phone's own binary under qemu, as phones of three generations: its kernels, and the weights it trains."""

import hashlib
import json
import shutil
import signal
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import phonograd
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.engine.personal import PersonalWords
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors
from phonograd.device_runtime.native_build import build_phone_binary, build_program
from phonograd.device_runtime.native_build.targets import PHONE
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update
from phonograd.selftest.checks import ROUNDING
from phonograd.selftest.pieces import GOLDEN, MODELS, artifacts_of, words
from phonograd.selftest.run import difference
from tests.golden.cases import spread_of
from tests.native import crypto_cases
from tests.native.formats_tool import SOURCES as FORMATS_SOURCES
from tests.native.formats_tool import pad
from tests.native.kernels import SOURCES, hold, promised_errors
from tests.native.links import SHAPES, Chain
from tests.support.artifacts import exported
from tests.support.emulated import WITHOUT_SME
from tests.support.phone_command import MODEL, TRAINING, Place, outcome_of, until_step

pytestmark = pytest.mark.phone

# What qemu's CPUs report; the emulator's newest has everything the engine looks for, SME with vectors of any length.
BF16 = WITHOUT_SME
SME = ("max,sme128=on", "max,sme256=on", "max,sme512=on")
FEATURES = {
    "cortex-a53": ["neon", "sha256", "crc32"],
    "cortex-a76": ["neon", "half", "dot", "sha256", "crc32"],
    BF16: ["neon", "half", "dot", "i8mm", "bf16", "sha256", "crc32"],
    SME[0]: ["neon", "half", "dot", "i8mm", "bf16", "sme", "sme_bf16", "sha256", "crc32"],
}
# Every CPU with the LSTM, and the oldest and the newest with Gboard's cell.
COUPLED = LanguageModelConfig("cifg", vocabulary=600, embedding=8, hidden=48, layers=1, tied=True, output_bias=False)
CELLS = pytest.mark.parametrize(
    ("cpu", "model"),
    [*((cpu, MODEL) for cpu in FEATURES), ("cortex-a53", COUPLED), (SME[0], COUPLED)],
    ids=lambda value: value if isinstance(value, str) else value.cell,
)
TOLERANCE = 1e-5  # relative Frobenius error


@pytest.fixture(scope="module")
def binary() -> Path:
    return build_phone_binary().path


def qemu_line(cpu: str, binary: Path, *arguments: object) -> list[str]:
    qemu = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
    assert qemu is not None, "qemu-aarch64 not found; install Debian's package qemu-user"
    return [qemu, "-cpu", cpu, str(binary), *map(str, arguments)]


@pytest.mark.parametrize("cpu", FEATURES)
def test_the_kernels_of_a_phone(binary: Path, cpu: str) -> None:
    found: dict[str, Any] = outcome_of(qemu_line(cpu, binary, "info")).only("info")["cpu"]
    assert found["features"] == FEATURES[cpu]
    assert found["kernels"] == (["sme", "neon", "portable"] if cpu in SME else ["neon", "portable"])
    assert found["bf16"] == {BF16: "bfmmla", SME[0]: "bfmopa"}.get(cpu)


def test_hashes_by_the_instructions_of_a_phone(tmp_path: Path) -> None:
    tool = build_program("formats_tool-aarch64", FORMATS_SOURCES, PHONE)
    for size in (0, 55, 56, 10_000):
        message = np.random.default_rng(size).bytes(size)
        path = tmp_path / "blocks"
        path.write_bytes(pad(message))
        found = outcome_of(qemu_line("cortex-a53", tool, "blocks", path)).events[0]
        expected = hashlib.sha256(message).hexdigest()
        assert found == {"portable": expected, "instructions": expected}
        assert (
            outcome_of(qemu_line("cortex-a53", tool, "checksums", path)).events[0]
            == [zlib.crc32(path.read_bytes())] * 4
        )


def test_the_cryptography_of_a_phone() -> None:
    tool = build_program("crypto_tool-aarch64", crypto_cases.SOURCES, PHONE)
    crypto_cases.hold(qemu_line("cortex-a53", tool), crypto_cases.cases(["neon", "portable"]))


@pytest.fixture(scope="module")
def kernels_tool() -> Path:
    return build_program("kernels_tool-aarch64", SOURCES, PHONE)


def test_neon_keeps_the_error_bounds(kernels_tool: Path) -> None:
    found = outcome_of(qemu_line("cortex-a53", kernels_tool, "functions", "neon")).events[0]
    for name, bound in promised_errors().items():
        assert (found[name]["wrong"], found[name]["ulp"] <= bound) == (0, True), (name, found[name])


@pytest.mark.parametrize(
    ("cpu", "arguments"),
    [
        ("cortex-a53", ("gemm", "neon", 2, "fp32")),
        ("cortex-a53", ("gemm", "neon", 2, "bf16-emulated")),
        (BF16, ("gemm", "neon", 2, "bf16")),
        (BF16, ("rounding", "neon", "bf16")),  # Arm's instruction for it: NaN and subnormal numbers included
        (SME[0], ("gemm", "sme", 2, "fp32")),
        (SME[0], ("gemm", "sme", 2, "bf16")),
        (SME[0], ("gemm", "sme", 2, "bf16-emulated")),
        (SME[0], ("rounding", "sme", "bf16")),
        ("cortex-a53", ("integers", "neon")),
        ("cortex-a76", ("integers", "neon")),
        ("cortex-a53", ("integers", "portable")),
        ("cortex-a53", ("exponentials", "neon")),
    ],
)
def test_products_sums_and_roundings_of_a_phone(kernels_tool: Path, cpu: str, arguments: tuple[object, ...]) -> None:
    hold(outcome_of(qemu_line(cpu, kernels_tool, *arguments)).events[0])


@pytest.mark.parametrize("cpu", SME)
def test_sme_saves_what_a_caller_left_in_za(kernels_tool: Path, cpu: str) -> None:
    found = outcome_of(qemu_line(cpu, kernels_tool, "za", "sme")).events[0]
    assert found == {"products": 2, "saved": 1, "left": 0}


def test_portable_kernels_round_as_on_this_machine(kernels_tool: Path) -> None:
    """int8 predictions are the same bits on every CPU: AArch64's fused products must not get into these kernels."""
    lines = (qemu_line(BF16, kernels_tool), [str(build_program("kernels_tool", SOURCES))])
    found, expected = (outcome_of([*line, "bits", "portable"]).events[0] for line in lines)
    assert found == expected


@CELLS
def test_a_phone_quantizes_and_predicts_as_this_machine_does(
    tmp_path: Path, place: Place, binary: Path, cpu: str, model: LanguageModelConfig
) -> None:
    """Equal with int8 weights to the bit, whatever the kernels; with the model's own weights but for rounding."""
    # Weights so large that the last bit of a sigmoid is seen in the probabilities.
    folder = exported(model, TRAINING, spread=14.0).folder
    context = ("--context", "w1 w2\nw3 w4 w5 w6 w7 w8", "--prefix", "w1")
    here, there = tmp_path / "here", tmp_path / "there"
    assert place.run("quantize", folder, "--out", here).code == 0
    assert outcome_of(qemu_line(cpu, binary, "quantize", folder, "--out", there)).code == 0
    assert here.read_bytes() == there.read_bytes()
    for precision, weights in (("int8", ("--weights", here)), ("fp32", ())):
        expected = place.run("predict", folder, *context, *weights).only("suggestions")
        assert expected["precision"] == precision
        for kernels in (*(("sme",) if cpu in SME else ()), "neon", "portable"):
            line = qemu_line(cpu, binary, "predict", folder, *context, *weights, "--kernels", kernels)
            found = outcome_of(line).only("suggestions")
            assert [one["word"] for one in found["words"]] == [one["word"] for one in expected["words"]]
            shares = [[one["probability"] for one in said["words"]] for said in (found, expected)]
            assert shares[0] == (shares[1] if precision == "int8" else pytest.approx(shares[1], rel=1e-4))


def test_a_phone_computes_the_self_tests_results(tmp_path: Path, binary: Path) -> None:
    """Results of `phonograd selftest` that the phone's program has commands for."""
    golden, folder = json.loads((GOLDEN / "golden.json").read_text("utf-8")), artifacts_of(MODELS[0]).folder
    (tmp_path / "text").write_bytes(b"\n".join(words(300, 1)))
    line = qemu_line("cortex-a53", binary, "eval", folder, "--text", tmp_path / "text", "--kss")
    found = outcome_of(line).only("evaluation")
    assert difference({name: found[name] for name in golden["evaluation"]}, golden["evaluation"], ROUNDING) == ""
    assert outcome_of(qemu_line("cortex-a53", binary, "quantize", folder, "--out", tmp_path / "int8")).code == 0
    assert sha256_of_file(tmp_path / "int8") == golden["predictor int8"]["file"]


@pytest.mark.parametrize("cpu", ["cortex-a53", SME[0]])
def test_a_phone_suggests_the_users_words_as_this_machine_does(
    tmp_path: Path, place: Place, binary: Path, cpu: str
) -> None:
    """Equal to the bit, by int8 weights and a file of personal words."""
    folder, weights, file = exported(MODEL, TRAINING, spread=14.0).folder, tmp_path / "int8", tmp_path / "own"
    phonograd.quantize(folder, weights)
    with PersonalWords(file, new=True) as words, phonograd.open_predictor(folder, personal=words) as predictor:
        predictor.learn("hallo du w w1\nhallo welt\nhallo du da\n")
        words.save()
    for prefix in ((), ("--prefix", "d")):
        options = ("--weights", weights, "--personal", file, "--context", "na\nhallo", *prefix)
        here = place.run("predict", folder, *options).only("suggestions")
        there = outcome_of(qemu_line(cpu, binary, "predict", folder, *options)).only("suggestions")
        assert there["words"] == here["words"]
        assert here["words"][0]["word"] == "du"


@CELLS
def test_a_phone_trains_the_weights_that_this_machine_trains(
    tmp_path: Path, place: Place, binary: Path, cpu: str, model: LanguageModelConfig
) -> None:
    folder = exported(model, TRAINING, spread=spread_of(model)).folder
    job = ("train", folder, "--user", place.user, "--seed", 3)
    here = outcome_of([str(place.command), *map(str, job), "--out", str(tmp_path / "here")]).only("report")
    there = outcome_of(qemu_line(cpu, binary, *job, "--out", tmp_path / "there")).only("report")
    assert there["kernels"] == ("sme" if cpu in SME else "neon")
    assert there["steps"] == here["steps"] > 10
    np.testing.assert_allclose(there["losses"], here["losses"], rtol=1e-4)
    found, first = load_tensors(tmp_path / "there"), load_tensors(folder / "weights.safetensors")
    for tensor, expected in load_tensors(tmp_path / "here").items():
        error, moved = (np.linalg.norm(other[tensor] - expected) for other in (found, first))
        assert error <= TOLERANCE * np.linalg.norm(expected), tensor
        # One short epoch moves some tensors little: of that, too, the error must be a small part.
        assert error <= 0.01 * moved, tensor
        assert moved > 0, tensor


@pytest.mark.parametrize("codec", ["delta-f16", "delta-int8", "rot-q2", "top-rows"])
def test_a_phone_encodes_as_python_does(tmp_path: Path, place: Place, binary: Path, codec: str) -> None:
    job = ("train", place.artifacts.folder, "--user", place.user, "--seed", 3, "--codec", codec)
    outputs = ("--out", tmp_path / "weights", "--update", tmp_path / "there")
    report = outcome_of(qemu_line("cortex-a53", binary, *job, *outputs)).only("report")
    base = place.artifacts.folder / "weights.safetensors"
    with TensorFile(base) as file:
        info = UpdateInfo(sha256_of_file(base), 1, report["tokens"], codec, 3)
        write_update(tmp_path / "here", file, load_tensors(tmp_path / "weights"), info)
    assert (tmp_path / "there").read_bytes() == (tmp_path / "here").read_bytes()


def test_a_phone_applies_links_as_python_does(tmp_path: Path, binary: Path) -> None:
    """Sums are equal too: AArch64's fused products must not get into them."""
    chain = Chain(tmp_path, np.random.default_rng(3), list(SHAPES))
    fetched, sha256 = chain.make(4)
    line = ("pull", fetched, "--base", chain.base, "--sha256", sha256, "--out", chain.out)
    assert outcome_of(qemu_line("cortex-a76", binary, *line)).only("pulled")["links"] == 4
    assert chain.out.read_bytes() == chain.expected


def test_a_phone_draws_and_trains_the_output_sample_that_this_machine_does(
    tmp_path: Path, place: Place, binary: Path
) -> None:
    sample = ("--output-sample", 60, "--sample-seed", 11, "--seed", 3)
    job = ("train", place.artifacts.folder, "--user", place.user, *sample)
    stopped = []
    for name, line in (("here", place.line()), ("there", qemu_line("cortex-a53", binary))):
        options = (*job, "--state", tmp_path / name, "--save-every", 1)
        until_step([*line, *map(str, options)], 2, signal.SIGTERM)
        with TensorFile(tmp_path / name / "state.safetensors") as state:
            stopped.append(state.metadata["candidates_sha256"])  # of the shifts too
    assert stopped[0] == stopped[1]
    here = outcome_of(place.line(*job)).only("report")
    there = outcome_of(qemu_line(BF16, binary, *job)).only("report")
    assert there["output_layer"] == here["output_layer"]
    np.testing.assert_allclose(there["losses"], here["losses"], rtol=1e-4)


@pytest.mark.parametrize("cpu", SME)
def test_outer_products_have_neons_bits(tmp_path: Path, place: Place, binary: Path, cpu: str) -> None:
    folder = exported(COUPLED, TRAINING, spread=spread_of(COUPLED)).folder
    trained = []
    for kernels in ("sme", "neon"):
        out = tmp_path / kernels
        job = ("train", folder, "--user", place.user, "--seed", 3, "--kernels", kernels, "--out", out)
        assert outcome_of(qemu_line(cpu, binary, *job)).only("report")["kernels"] == kernels
        trained.append(sha256_of_file(out))
    assert trained[0] == trained[1]


@pytest.mark.parametrize("cpu", [BF16, SME[0], SME[-1]])
def test_bf16_of_a_phone_that_has_it(tmp_path: Path, place: Place, binary: Path, cpu: str) -> None:
    job = ("train", place.artifacts.folder, "--user", place.user, "--seed", 3, "--precision")
    emulating = [str(place.command), *map(str, job), "bf16-emulated", "--out", str(tmp_path / "here")]
    here = outcome_of(emulating).only("report")
    there = outcome_of(qemu_line(cpu, binary, *job, "bf16", "--out", tmp_path / "there")).only("report")
    np.testing.assert_allclose(there["losses"], here["losses"], rtol=1e-3)
    found, expected = load_tensors(tmp_path / "there"), load_tensors(tmp_path / "here")
    single = load_tensors(place.artifacts.folder / "weights.safetensors")
    for tensor, values in expected.items():
        assert np.linalg.norm(found[tensor] - values) <= 0.05 * np.linalg.norm(values - single[tensor]), tensor


def test_bf16_of_a_phone_that_has_none(tmp_path: Path, place: Place, binary: Path) -> None:
    job = ("train", place.artifacts.folder, "--user", place.user, "--precision", "bf16", "--out", tmp_path / "out")
    outcome = outcome_of(qemu_line("cortex-a76", binary, *job))
    assert outcome.code == 10, outcome.err  # Status::unsupported
    assert "kernels 'neon' on this CPU have no bf16 instructions" in outcome.err
    assert not (tmp_path / "out").exists()
