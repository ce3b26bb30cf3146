"""Time and memory of a simulated round: phonograd's, and Flower's simulation."""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.contestants import Answers, BenchError, Entry, Say, Worker, ratio_of, run_in_turn
from phonograd.bench.markdown import MB, Column, Table, figure, model_name, name_with_versions
from phonograd.bench.process_tree import PeakPss, cpu_seconds, tick_seconds
from phonograd.bench.results import Document, result_of
from phonograd.bench.worker import SimulatorJob
from phonograd.device_runtime.base.system import usable_cores
from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts, open_artifacts
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.rehearsal import mix
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.update.seeds import seed_of
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.users import read_users, text_slice

SCHEMA_VERSION = 1
OWN, FLOWER_PEER = "phonograd.bench.peers.own_simulation", "phonograd.bench.peers.flower_simulation"
FLOWER_HINT = "pip install 'flwr[simulation]' torch msgspec numpy in an environment of its own; give --flower-python"
MEASURED = 2  # the round that is measured: the first one starts the workers
MESSAGE_WORDS = 8
REHEARSAL = 5  # times the text that all phones mix in, so that draws differ
TOLERANCE = 1e-3  # nats; of the first round's losses
# For all contestants. At larger rates a step on random words may amplify roundings a thousandfold, and losses differ.
LEARNING_RATE = 0.1


@dataclass(frozen=True)
class SimulateBenchConfig:
    """phones: of a round; text_bytes: of each, and as much general text; rounds: runs of each contestant."""

    phones: int = 10
    text_bytes: int = 10_000
    workers: int = field(default_factory=usable_cores)
    flower_python: str | None = None
    rounds: int = 3


def bench_simulate(folder: Path, config: SimulateBenchConfig, say: Say = str) -> dict[str, Any]:
    """Run all contestants in turn, each run in a fresh process: two rounds, of which the second is measured.

    The result has `tokens` of all phones in the first round, and `disagreements` of its losses. Raises BenchError,
    ArtifactsError, StorageError.
    """
    artifacts = open_artifacts(folder)
    entries = _entries(config)
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as place:
        texts = Path(place)
        tokens = _write_texts(texts, artifacts, config)

        def run(entry: Entry) -> Answers:
            with tempfile.TemporaryDirectory() as out:
                return _run(entry, _job(entry, artifacts, texts, Path(out), config))

        runs = run_in_turn(entries, config.rounds, run, left_out, say)
    if not any(runs.values()):
        raise BenchError(f"bench: no contestant can run here: {'; '.join(left_out.values())}")
    measured = list(_figures(entries, runs))
    return result_of(
        "simulate",
        SCHEMA_VERSION,
        model=artifacts.manifest.model,
        phones=config.phones,
        tokens=tokens,
        text_bytes=config.text_bytes,
        workers=config.workers,
        rounds=config.rounds,
        contestants=measured,
        left_out=left_out,
        disagreements=list(_disagreements(measured)),
    )


def _entries(config: SimulateBenchConfig) -> list[Entry]:
    python = config.flower_python or sys.executable

    return [
        Entry("native", OWN, settings={"text_bytes": config.text_bytes}),
        Entry("flower", FLOWER_PEER, python=python, hint=FLOWER_HINT),
    ]


def _write_texts(folder: Path, artifacts: Artifacts, config: SimulateBenchConfig) -> int:
    """Users' and general text of words drawn by Zipf's law, and each phone's stream of the first round; its tokens."""
    vocabulary = Vocabulary.load(artifacts.path(VOCABULARY), artifacts.manifest.model.vocabulary)
    random = np.random.default_rng(1)
    with (folder / "users.jsonl").open("w") as file:
        for phone in range(config.phones):
            text = "\n".join(_messages(vocabulary, random, MEASURED * config.text_bytes))
            file.write(json.dumps({"user": f"{phone:04}", "text": text}) + "\n")
    rehearsal = folder / "rehearsal.txt"
    rehearsal.write_text("\n".join(_messages(vocabulary, random, REHEARSAL * config.text_bytes)))
    general, share = read_messages(rehearsal), SimulationSettings().user_share
    streams = {}
    for place, (user, messages) in enumerate(sorted(read_users(folder / "users.jsonl").items())):
        own, _ = text_slice(messages, config.text_bytes, 0)
        seed = seed_of(artifacts.weights_sha256, 1, user)
        streams[str(place)] = mix(own, general, share, vocabulary, seed).stream
    np.savez(folder / "streams.npz", **streams)  # type: ignore[arg-type]  # numpy's names
    return sum(map(len, streams.values()))


def _messages(vocabulary: Vocabulary, random: np.random.Generator, nbytes: int) -> Iterator[str]:
    words = np.array([word.decode() for word in vocabulary.words[2:]])
    chances = 1 / (np.arange(len(words)) + 2.7)
    left = nbytes
    while left > 0:
        message = " ".join(random.choice(words, MESSAGE_WORDS, p=chances / chances.sum()))
        left -= len(message) + 1
        yield message


def _job(entry: Entry, artifacts: Artifacts, texts: Path, out: Path, config: SimulateBenchConfig) -> SimulatorJob:
    users, rehearsal, streams = (str(texts / name) for name in ("users.jsonl", "rehearsal.txt", "streams.npz"))
    folder = str(artifacts.folder.resolve())
    shape = (config.phones, MEASURED, config.workers, LEARNING_RATE)
    return SimulatorJob(entry.peer, folder, users, rehearsal, streams, str(out), *shape, entry.settings)


def _run(entry: Entry, job: SimulatorJob) -> Answers:
    times, cpu = [], []
    with Worker(entry, job) as worker:
        memory = PeakPss(worker.pid)
        memory.start()
        try:
            while not (answers := worker.answer()):
                times.append(time.perf_counter())
                cpu.append(cpu_seconds(worker.pid))
        finally:
            peak = memory.stop()
        worker.end()
    if "left_out" in answers:
        return answers
    seconds = times[MEASURED] - times[MEASURED - 1]
    used = max(cpu[-1] - cpu[-2], tick_seconds())  # ratios need more than nothing
    return {**answers, "peak_pss_bytes": peak, "round_seconds": seconds, "cpu_seconds": used}


def _figures(entries: Sequence[Entry], runs: Mapping[str, Sequence[Answers]]) -> Iterator[Answers]:
    """Each contestant's figures.

    round_seconds, cpu_seconds: medians of the measured round, the latter of all processes and at least one tick of the
    kernel's clock; ratio, cpu_ratio: medians over runs of those divided by the first contestant's; peak_pss_bytes: of
    all processes together, the largest sample of any run; loss: of the first round.
    """
    first = next(filter(None, runs.values()))
    for entry in entries:
        if not (own := runs[entry.name]):
            continue
        yield {
            "name": entry.name,
            "round_seconds": statistics.median(run["round_seconds"] for run in own),
            "cpu_seconds": statistics.median(run["cpu_seconds"] for run in own),
            "ratio": ratio_of(own, first, "round_seconds"),
            "cpu_ratio": ratio_of(own, first, "cpu_seconds"),
            "peak_pss_bytes": max(run["peak_pss_bytes"] for run in own),
            "loss": own[0]["losses"][0],
            "versions": own[0]["versions"],
        }


def _disagreements(measured: Sequence[Answers]) -> Iterator[str]:
    """Lines for the losses of the first round, which all begin with the same model and streams, that differ."""
    first = measured[0]
    for one in measured[1:]:
        if not abs(one["loss"] - first["loss"]) <= TOLERANCE:
            yield f"{one['name']}: loss {one['loss']:.6g} in round 1, {first['name']}: {first['loss']:.6g}"


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results."""
    model, phones = document["model"], document["phones"]
    runs = "1 run" if document["rounds"] == 1 else f"{document['rounds']} runs"
    yield f"A simulated round: {model_name(model)}, {phones} phones"
    yield (
        f"Each phone trains on {document['text_bytes']:,} bytes of its own and as much general text, words drawn by "
        f"Zipf's law, {document['tokens']:,} tokens in all. {document['workers']} phones train at a time, one thread "
        f"each. The second round of each run, {runs} of each in turn; the loss is the first "
        "round's. CPU time and memory (PSS) are of all processes. phonograd writes each update to a file, and checks "
        "it before it is folded."
    )

    columns = {
        "contestant": Column(lambda one: name_with_versions(one["name"], one["versions"])),
        "seconds a round": figure("round_seconds", ".1f"),
        "time / first": figure("ratio", ".2f"),
        "CPU seconds": figure("cpu_seconds", ".1f"),
        "CPU time / first": figure("cpu_ratio", ".2f"),
        "peak memory, MB": figure("peak_pss_bytes", ".0f", MB),
        "loss": figure("loss", ".4f"),
    }
    yield Table(f"A simulated round of {phones} phones", columns, document["contestants"])
