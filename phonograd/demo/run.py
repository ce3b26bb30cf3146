"""One federated round at full size on real text: corpus, model, artifacts, server, ten phones, one table.

Every stage runs the `phonograd` command that a user would type, in a process of its own. So the demo shows what the
commands do, and each phone's peak memory is measured separately.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from phonograd.bench.measuring import MALLOC_SETTINGS
from phonograd.demo.corpus import Corpus
from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.device_runtime.client.server_client import download_model
from phonograd.device_runtime.engine.c_abi import find_library
from phonograd.server_agg.report.document import PAPER_GIB_PER_ROUND, PAPER_MIB_PER_PHONE

MIB, GIB = 1 << 20, 1 << 30
# Popov et al.: section 3 (140 s on the phone), Table 2, row "averaging, 1 round" (perplexity, KSS in per cent).
PAPER_EPOCH_SECONDS = 140.0
PAPER_GENERAL = {"before": (100.1, 67.9), "after": (102.8, 67.7)}
PAPER_USER = {"before": (336.0, 49.7), "after": (233.8, 51.9)}
STOP_SECONDS = 20
CODECS = ("full-f32", "rows-f32")  # lossless, so that the round is the paper's
# In half a minute, many small windows train better than few of Zaremba's 20 x 35.
BRIEF_PRETRAINING = ("--set", "training.minibatch=5", "--set", "training.bptt=20")

Say = Callable[[str], None]


@dataclass(frozen=True)
class DemoConfig:
    """Sizes of the demo. Phones run `phones_at_once` side by side, each with `threads_per_phone` CPU threads.

    output_sample: words drawn for the epoch that is compared to one with the full softmax.
    """

    preset: str = "popov-2x650"
    vocabulary: int = 30_000
    pretrain_steps: int = 120
    phones: int = 10
    phones_at_once: int = 2
    threads_per_phone: int = 1
    output_sample: int = 2_000


class DemoError(PhonogradError):
    """A stage of the demo failed; the stage's own message is part of this one."""

    exit_code = 14


def run_demo(folder: Path, config: DemoConfig, corpus: Corpus | None, say: Say) -> dict[str, Any]:
    """Run all stages in `folder` (empty or new) and return the report's document.

    corpus: texts that were fetched before; None fetches them. Raises DemoError that names the failed stage.
    """
    began = time.perf_counter()

    def stage(text: str) -> None:
        say(f"[{time.perf_counter() - began:5.0f} s] {text}")

    _compile(stage)
    if corpus is None:
        stage("fetching tweets, editorials and reviews")
        corpus = Corpus(folder / "corpus")
        command("corpus", "fetch", "--out", corpus.folder)
    vocabulary, weights, pretrained = _pretrain(folder, config, corpus, stage)
    stage("exporting the artifacts")
    artifacts = folder / "artifacts"
    command("export", "--preset", config.preset, "--vocab", vocabulary, "--weights", weights, "--out", artifacts)
    texts = {"user": corpus.users_test, "general": corpus.general_test}
    stage("measuring the model before the round")
    before = _evaluate(artifacts, texts)
    with _server(artifacts, folder, config) as url:
        stage(f"{config.phones} phones train and upload to {url}")
        phones = _train_phones(folder, config, corpus, artifacts, url, stage)
        report = command("report", "--server", url)
        new_model = folder / "model-after-round-1.safetensors"
        download_model(url, new_model)
    output_layers = _compare_output_layers(folder, config, corpus, artifacts, stage)
    stage("measuring the model after the round")
    after = _evaluate(artifacts, texts, "--weights", new_model)
    stage("done")
    return {
        "config": asdict(config),
        "pretraining": pretrained,
        "artifacts": command("inspect", artifacts),
        "before": before,
        "after": after,
        "phones": phones,
        "output_layers": output_layers,
        "codecs": _codec_bytes(phones, config),
        "report": report,
        "seconds": time.perf_counter() - began,
    }


def command(*arguments: str | Path) -> Any:
    """Run a phonograd command with --json and return its document. Raises DemoError with its last line of stderr."""
    done = subprocess.run(
        _command_line(*arguments), capture_output=True, text=True, check=False, env={**MALLOC_SETTINGS, **os.environ}
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise DemoError(f"demo: phonograd {arguments[0]} failed: {last}")
    return json.loads(done.stdout)


def _command_line(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "phonograd", *map(str, arguments), "--json", "--quiet"]


def _compile(stage: Say) -> None:
    def show_build(done: int, total: int, _: str) -> None:
        if done == 0:
            stage(f"compiling the native engine, once: up to {total - 1} files, which takes minutes")

    find_library(show_build)


def _pretrain(folder: Path, config: DemoConfig, corpus: Corpus, stage: Say) -> tuple[Path, Path, dict[str, Any]]:
    vocabulary, weights = folder / "vocab.txt", folder / "base.safetensors"
    stage(f"building a vocabulary of {config.vocabulary:,} words")
    size = str(config.vocabulary)
    # The word list adds words that the general text lacks. The vocabulary does not use the users' texts.
    command("vocab", "build", corpus.general_train, corpus.words, "--size", size, "--out", vocabulary)
    stage(f"pre-training {config.preset} for {config.pretrain_steps} steps")
    steps = str(config.pretrain_steps)
    pretrained = command(
        "pretrain", "--preset", config.preset, "--vocab", vocabulary, "--text", corpus.general_train,
        "--valid", corpus.general_valid, "--epochs", "1", "--max-steps", steps, "--set", "training.dropout=0",
        "--out", weights,
        *BRIEF_PRETRAINING,
    )  # fmt: skip
    return vocabulary, weights, pretrained


def _evaluate(artifacts: Path, texts: dict[str, Path], *options: str | Path) -> dict[str, Any]:
    named = [option for path in texts.values() for option in ("--text", path)]
    rows = command("eval", artifacts, *named, "--kss", *options)
    return dict(zip(texts, rows, strict=True))


@contextlib.contextmanager
def _server(artifacts: Path, folder: Path, config: DemoConfig) -> Iterator[str]:
    arguments = ("serve", "--artifacts", artifacts, "--state", folder / "server", "--port", "0")
    weighting = ("--set", "strategy.weighting=equal")
    line = [*_command_line(*arguments, *weighting), "--clients-per-round", str(config.phones)]
    line.remove("--quiet")  # its log lines go to a file
    with (folder / "server.log").open("w") as log, subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log) as server:
        try:
            assert server.stdout is not None
            ready = server.stdout.readline()
            if not ready:
                raise DemoError(f"demo: phonograd serve failed; see {folder / 'server.log'}")
            yield json.loads(ready)["url"]
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()


def _train_phones(
    folder: Path, config: DemoConfig, corpus: Corpus, artifacts: Path, url: str, stage: Say
) -> list[dict[str, Any]]:
    users = corpus.users[: config.phones]
    if len(users) < config.phones:
        raise DemoError(f"demo: {config.phones} users expected in {corpus.folder}, found {len(users)}")

    # A phone uploads while the next one trains.
    with ThreadPoolExecutor(config.phones_at_once) as training, ThreadPoolExecutor(1) as uploading:

        def phone(number: int) -> Future[dict[str, Any]]:
            name, codec = f"phone-{number + 1:02}", CODECS[number % len(CODECS)]  # codecs take turns
            update = folder / f"{name}.update"
            epoch = _train(config, corpus, artifacts, number, name, update, codec)
            stage(
                f"{name}: {epoch['steps']} steps in {epoch['seconds']:.1f} s, {epoch['update']['nbytes'] / MIB:.1f} MiB"
            )
            return uploading.submit(
                lambda: {"phone": name, "codec": codec, "epoch": epoch, **_upload(update, url, name)}
            )

        try:
            return [sent.result() for sent in training.map(phone, range(config.phones))]
        finally:
            training.shutdown(wait=False, cancel_futures=True)  # an interrupt waits for those that train, not for all


def _compare_output_layers(
    folder: Path, config: DemoConfig, corpus: Corpus, artifacts: Path, stage: Say
) -> list[dict[str, Any]]:
    """The first phone's epoch once more, alone on the machine: with the full softmax, and with an output sample."""
    update, epochs = folder / "compared.update", []
    for options in ((), ("--set", f"training.output_sample={config.output_sample}")):
        epoch = _train(config, corpus, artifacts, 0, "phone-01", update, "rows-f32", *options)
        stage(f"phone-01 alone, {_layer(epoch)}: {epoch['seconds']:.1f} s")
        update.unlink()
        epochs.append(epoch)
    return epochs


def _layer(epoch: dict[str, Any]) -> str:
    return f"{epoch['output_layer']['kind']} softmax over {epoch['output_layer']['words']:,} words"


def _train(
    config: DemoConfig, corpus: Corpus, artifacts: Path, number: int, name: str, update: Path, codec: str, *options: str
) -> dict[str, Any]:
    epoch: dict[str, Any] = command(
        "train", artifacts, "--user", corpus.users[number], "--rehearsal", corpus.general_train,
        "--phone", name, "--set", f"engine.threads={config.threads_per_phone}", "--update", update, "--codec", codec,
        *options,
    )  # fmt: skip
    return epoch


def _upload(update: Path, url: str, phone: str) -> dict[str, Any]:
    receipt = command("upload", update, "--server", url, "--phone", phone)
    update.unlink()
    return {"bytes": receipt["bytes"], "receipt": receipt}


def _codec_bytes(phones: Sequence[dict[str, Any]], config: DemoConfig) -> list[dict[str, Any]]:
    rows = []
    for codec in CODECS:
        sizes = [phone["bytes"] for phone in phones if phone["codec"] == codec]
        if sizes:
            mean = statistics.mean(sizes)
            rows.append(
                {"codec": codec, "phones": len(sizes), "bytes_per_phone": mean, "bytes_per_round": mean * config.phones}
            )
    return rows


def demo_table(document: dict[str, Any]) -> list[dict[str, str]]:
    """The demo's figures and the paper's: rows of figure, here, paper."""
    epochs = [phone["epoch"] for phone in document["phones"]]
    threads = document["config"]["threads_per_phone"]
    seconds = statistics.median(epoch["seconds"] for epoch in epochs)
    kept = epochs[0]
    tokens = statistics.median(epoch["tokens"] for epoch in epochs)
    clip = f"clip {kept['clip_norm']:g}" if kept["clip_norm"] else "no clipping"
    rows = [
        ("parameters", f"{document['artifacts']['parameters']:,}", "45.7 million"),
        (
            "one epoch: text",
            f"{tokens:,.0f} tokens, {kept['user_share']:.0%} the user's",
            "about 20 KB, half the user's",
        ),
        ("one epoch: SGD", f"lr {kept['learning_rate']:g} on {kept['loss_reduction']}, {clip}", "lr 0.75"),
        (f"one epoch: seconds (host, {threads} thread)", f"{seconds:.1f}", f"{PAPER_EPOCH_SECONDS:.0f} (phone)"),
        ("one epoch: peak memory", f"{max(epoch['peak_rss_bytes'] for epoch in epochs) / MIB:,.0f} MiB", "-"),
    ]
    rows += [
        (
            f"one epoch alone, {_layer(epoch)}",
            f"{epoch['seconds']:.1f} s, {epoch['peak_rss_bytes'] / MIB:,.0f} MiB, "
            f"update {epoch['update']['nbytes'] / MIB:.1f} MiB",
            "-",
        )
        for epoch in document["output_layers"]
    ]
    for text, paper in (("user", PAPER_USER), ("general", PAPER_GENERAL)):
        for when in ("before", "after"):
            quality = document[when][text]
            rows += [
                (f"{text} text {when} the round: perplexity", f"{quality['perplexity']:.1f}", f"{paper[when][0]}"),
                ("the same with unknown words", f"{quality['perplexity_with_unknown']:.1f}", "-"),
                (f"{text} text {when} the round: KSS", f"{100 * quality['kss']:.1f} %", f"{paper[when][1]} %"),
            ]
    for row in document["codecs"]:
        rows += [
            (f"{row['codec']}: per phone", f"{row['bytes_per_phone'] / MIB:.2f} MiB", f"{PAPER_MIB_PER_PHONE} MiB"),
            (f"{row['codec']}: per round", f"{row['bytes_per_round'] / GIB:.2f} GiB", f"{PAPER_GIB_PER_ROUND:.2f} GiB"),
        ]
    return [{"figure": figure, "here": here, "paper": paper} for figure, here, paper in rows]
