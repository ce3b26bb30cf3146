"""Every command line of README.md and docs/ runs, page by page, in a folder that holds only what the reader brings.

Sizes are smaller, addresses are of this machine (SMALLER); what cannot run here is left out, and why (LEFT_OUT).
"""

import contextlib
import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from phonograd.cli import COMMANDS, phonograd
from phonograd.console import run
from tests.support.command_line import WORDS, text_of
from tests.support.own_models import RNNModel
from tests.support.ports import reserved_port

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# How a command line begins, or what it holds, that can't run here: why.
LEFT_OUT = {
    "phonograd config": "prints a file: tests/test_configuration.py",
    **dict.fromkeys(("--config server.toml", "--config study.toml"), "reads a file: tests/test_configuration.py"),
    "phonograd corpus fetch": "fetches from the package index; the same texts are made here",
    "phonograd devices": "needs a phone: tests/android_harness",
    "phonograd phone-": "needs a phone: tests/android_harness",
    "adb": "needs a phone: tests/android_harness",
    "--ledger": "needs PostgreSQL and S3: make cluster-test",
    "LEDGER=": "needs PostgreSQL and S3: make cluster-test",
    **dict.fromkeys(("--engine ray", "engine=ray"), "needs Ray: make ray-test"),
    "flower-": "needs Flower: make flower-test",
    "flwr": "needs Flower: make flower-test",
    "--tls-cert": "needs a certificate: tests/server_agg/test_security_server.py",
    "https://": "needs a server with a certificate: tests/server_agg/test_security_server.py",
    "--set masked.certificate": "needs a whole cohort: tests/server_agg/test_masked_phones.py",
    "--project": "needs an accepted update: tests/e2e/test_report.py",
    "phonograd reproduce sizes": "needs trained models, and hours: tests/papers/test_sizes.py",
    "privacy canaries": "needs a vocabulary of more words: tests/simulation/test_attacks.py",
    **dict.fromkeys(("export AWS_", "export PG", "export PHONOGRAD_"), "sets a variable of the shell"),
    "pip": "needs the package index: make wheel-test",
    "make": "a target that CI runs itself",
}
SMALLER = (
    (r"--preset (popov-2x650|keyboard-5mb|keyboard-10mb)", "--preset tiny"),
    (r"--config recipe.toml", "--config recipe.toml --set training.minibatch=2"),
    (r"--size 30000", f"--size {len(WORDS) + 2}"),
    (r"shape.hidden=300", "shape.hidden=8"),
    (r"--max-steps 20", "--max-steps 2 --set training.minibatch=2 --set training.bptt=5"),
    (r"--rounds (50|3)\b", "--rounds 2 --set training.text_bytes=1000"),
    (
        r"(dp-ftrl .*)--set strategy.min_separation=10\b",
        r"\1--set strategy.min_separation=2 --set strategy.noise_multiplier=0 --rounds 2 --clients-per-round 2 "
        r"--set training.text_bytes=1000",
    ),
    (r"bench epoch", "bench epoch --artifacts artifacts --backends native,ort --steps 1 --threads 1"),
    (
        r"privacy empirical",
        "privacy empirical --set empirical.pairs=2 --set empirical.texts=300 --set training.text_bytes=1000",
    ),
    (r"(report .*--round|rollback) 3", r"\1 0"),
    (r"--round 0", "--round 1"),
    (r"\b(PUBLIC|VENDOR)_KEY\b", "a1" * 32),
    (r"\bURL\b|http://127.0.0.1:8080", "{url}"),
    (r"\b(STATE|DIR)\b", "server"),
    (r"\bARTIFACTS\b", "artifacts"),
    (r"^(phonograd serve .*)", r"\1 --port {port}"),
)
WRITTEN = ("--out", "--page", "--update", "--state", "--html")  # options whose value a command makes


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text("utf-8").replace("\\\n", "")
    return [block for its, block in BLOCK.findall(text) if its == language]


def command_lines(page: str) -> list[str]:
    """The lines of blocks that begin with a command; of blocks with prompts, those behind one."""
    lines = []
    for block in blocks(page, ""):
        prompted = block.startswith("$ ")
        found = [line.removeprefix("$ ") for line in block.splitlines() if not prompted or line.startswith("$ ")]
        if prompted or left_out(found[0]) or found[0].startswith("phonograd "):
            lines += [line for line in found if line]
    return lines


def left_out(line: str) -> str | None:
    return next((why for part, why in LEFT_OUT.items() if line.startswith(part) or f" {part}" in line), None)


def own_model(path: Path, decoder: str) -> None:
    state = RNNModel("lstm", len(WORDS) + 2, 8, 8, 1, tied=False).state_dict()
    torch.save({name.replace("decoder", decoder): tensor for name, tensor in state.items()}, path)


def users(path: Path) -> None:
    lines = [json.dumps({"user": f"u{user}", "text": text_of(user, 60).decode()}) for user in range(40)]
    path.write_text("\n".join(lines))


def artifacts(path: Path) -> None:
    vocabulary = path.with_name("vocab.txt")
    give(vocabulary)
    phono("export", "--preset", "tiny", "--vocab", str(vocabulary), "--seed", "1", "--out", str(path))


def weights(path: Path) -> None:
    give(path.with_name("artifacts"))
    path.write_bytes((path.parent / "artifacts/weights.safetensors").read_bytes())


def vocabulary(path: Path) -> None:
    path.write_bytes(b"".join(word.encode() + b"\n" for word in ("<unk>", "<eos>", *WORDS)))


# What a reader brings: by its name, what makes it.
GIVEN: dict[str, Callable[[Path], None]] = {
    "artifacts": artifacts,
    "vocab.txt": vocabulary,
    "my.pt": lambda path: own_model(path, "decoder"),
    "other.pt": lambda path: own_model(path, "lm_head"),
    "users.jsonl": users,
    "model.safetensors": weights,
    "weights.safetensors": weights,
    "before.json": lambda path: path.write_text(read_report(path.parent)) and None,
    **{
        f"{name}.txt": lambda path: path.write_bytes(text_of(1, 200)) and None
        for name in ("general", "general-test", "mixed", "thai")
    },
    "thai.lexicon": lambda path: path.write_text("ไทย\t3\n") and None,
    "recipe.toml": lambda path: path.write_text(blocks("docs/base-models.md", "toml")[0]) and None,
    "corpus": lambda path: None,
}


def read_report(folder: Path) -> str:
    line = [sys.executable, "-m", "phonograd", "report", "--state", str(folder / "server"), "--json"]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def give(path: Path) -> None:
    """Make what the reader brings, unless it is there."""
    name = path.name
    if "corpus" in path.parts:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text_of(len(name), 100 if name.startswith("user") else 400))
    elif name in GIVEN and not path.exists():
        GIVEN[name](path)


def phono(*arguments: str) -> None:
    assert run(phonograd, [*arguments, "--quiet"]) == 0, arguments


@contextlib.contextmanager
def serving(arguments: list[str]) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-m", "phonograd", *arguments, "--json"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert json.loads(process.stdout.readline()), arguments
            yield
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0, arguments


def run_line(line: str, server: contextlib.ExitStack) -> None:
    """Run a command, or start a server that runs until the next one or the end of the page."""
    arguments = shlex.split(line.rstrip(" &"), comments=True)[1:]
    for option, value in zip(["", *arguments], arguments, strict=False):
        if option not in WRITTEN:
            give(Path(value.rpartition("=")[2]))  # also of --set KEY=PATH
    if arguments[0] == "serve":
        server.close()
        server.enter_context(serving([one for one in arguments if one != "&"]))
    else:
        phono(*arguments)


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if command_lines(page)])
def test_the_command_lines_of_a_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line for line in command_lines(page) if not left_out(line)]
    with reserved_port() as port, contextlib.ExitStack() as server:
        if not any(line.startswith("phonograd serve") for line in lines) and any("URL" in line for line in lines):
            lines.insert(0, "phonograd serve --artifacts artifacts --state server")
        for line in lines:
            for pattern, small in SMALLER:
                line = re.sub(pattern, small, line)
            run_line(line.format(port=port, url=f"http://127.0.0.1:{port}"), server)


def test_every_command_line_runs_or_says_why_not() -> None:
    lines = [line for page in PAGES for line in command_lines(page)]
    assert len(lines) > 60
    for line in lines:
        assert left_out(line) or line.split()[1] in COMMANDS, line
    assert {part for part in LEFT_OUT if not any(left_out(line) == LEFT_OUT[part] for line in lines)} == set()
