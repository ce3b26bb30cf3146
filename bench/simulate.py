"""Time and memory of a simulated round: phonograd's native engine and PyTorch, and Flower's simulation."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.contestants import ROOT, BenchError
from phonograd.bench.environment import Environment, this_environment
from phonograd.bench.markdown import MB
from phonograd.bench.process_tree import PeakPss, cpu_seconds
from phonograd.bench.simulator import BEGAN, ENDED, SimulatorJob
from phonograd.device_runtime.base.system import usable_cores
from phonograd.device_runtime.formats.manifest import VOCABULARY, Artifacts, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.rehearsal import mix
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.update.seeds import seed_of
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.users import read_users, text_slice

SCHEMA_VERSION = 1
OWN, FLOWER_PEER = "phonograd.bench.peers.own_simulation", "phonograd.bench.peers.flower_simulation"
FLOWER = "flower"
FLOWER_HINT = "pip install 'flwr[simulation]' torch msgspec numpy in an environment of its own; give --flower-python"
MEASURED = 2  # the round that is measured: the first one starts the workers
MESSAGE_WORDS = 8
REHEARSAL = 5  # times the text that all phones mix in, so that draws differ
TOLERANCE = 1e-3  # nats; of the first round's losses, by full softmax in fp32
# Of all contestants. At larger rates a step on random words may amplify roundings a thousandfold, and losses differ.
LEARNING_RATE = 0.1

Say = Callable[[str], object]


@dataclass(frozen=True)
class SimulateBenchConfig:
    """phones: of a round; text_bytes: of each, and as much general text; batch: phones that torch trains at once beside
    one by one; output_sample: of the sampled contestants; rounds: runs of each contestant.
    """

    phones: int = 10
    text_bytes: int = 10_000
    batch: int = 5
    output_sample: int = 2000
    workers: int = field(default_factory=usable_cores)
    flower_python: str | None = None
    rounds: int = 3


@dataclass(frozen=True)
class Simulator:
    """One contestant's figures.

    output_sample: None for the full softmax; round_seconds, cpu_seconds: medians of the measured round, the
    latter of all processes; ratio, cpu_ratio: medians over runs of those divided by the first contestant's;
    peak_pss_bytes: of all processes together, the largest sample of any run; loss: of the first round.
    """

    name: str
    output_sample: int | None
    precision: str
    round_seconds: float
    cpu_seconds: float
    ratio: float
    cpu_ratio: float
    peak_pss_bytes: int
    loss: float
    versions: Mapping[str, str]


@dataclass(frozen=True)
class SimulateBench:
    """The whole benchmark. tokens: of all phones in the first round; disagreements: of its losses."""

    kind: str
    schema_version: int
    environment: Environment
    model: LanguageModelConfig
    phones: int
    tokens: int
    text_bytes: int
    workers: int
    rounds: int
    contestants: tuple[Simulator, ...]
    left_out: Mapping[str, str]
    disagreements: tuple[str, ...]


@dataclass(frozen=True)
class _Entry:
    name: str
    peer: str = OWN
    settings: Mapping[str, Any] = field(default_factory=dict)
    python: str = sys.executable


def bench_simulate(folder: Path, config: SimulateBenchConfig, say: Say = str) -> SimulateBench:
    """Run all contestants in turn, each run in a fresh process: two rounds, of which the second is measured.

    Raises BenchError, ArtifactsError, StorageError.
    """
    artifacts = open_artifacts(folder)
    entries = _entries(config)
    runs: dict[str, list[dict[str, Any]]] = {entry.name: [] for entry in entries}
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as place:
        texts = Path(place)
        tokens = _write_texts(texts, artifacts, config)
        for number in range(config.rounds):
            first = number % len(entries)
            for entry in (*entries[first:], *entries[:first]):
                if entry.name in left_out:
                    continue
                say(f"round {number + 1} of {config.rounds}: {entry.name}")
                with tempfile.TemporaryDirectory() as out:
                    answer = _run(entry, _job(entry, artifacts, texts, Path(out), config))
                if "left_out" in answer:
                    hint = f"; {FLOWER_HINT}" if entry.name == FLOWER else ""
                    left_out[entry.name] = answer["left_out"] + hint
                else:
                    runs[entry.name].append(answer)
    measured = tuple(_measured(entries, runs))
    return SimulateBench(
        kind="simulate",
        schema_version=SCHEMA_VERSION,
        environment=this_environment(),
        model=artifacts.manifest.model,
        phones=config.phones,
        tokens=tokens,
        text_bytes=config.text_bytes,
        workers=config.workers,
        rounds=config.rounds,
        contestants=measured,
        left_out=left_out,
        disagreements=tuple(_disagreements(measured)),
    )


def _entries(config: SimulateBenchConfig) -> list[_Entry]:
    sampled = {"output_sample": config.output_sample}
    return [
        _Entry("native"),
        _Entry("torch, one by one", settings={"backend": "torch", "phones_per_batch": 1}),
        _Entry(f"torch, {config.batch} at once", settings={"backend": "torch", "phones_per_batch": config.batch}),
        _Entry(FLOWER, FLOWER_PEER, {}, config.flower_python or sys.executable),
        _Entry("native, sampled, bf16", settings={**sampled, "precision": "bf16"}),
        _Entry(
            f"torch, sampled, {config.batch} at once",
            settings={**sampled, "backend": "torch", "phones_per_batch": config.batch},
        ),
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


def _job(entry: _Entry, artifacts: Artifacts, texts: Path, out: Path, config: SimulateBenchConfig) -> SimulatorJob:
    users, rehearsal, streams = (str(texts / name) for name in ("users.jsonl", "rehearsal.txt", "streams.npz"))
    settings = {"text_bytes": config.text_bytes, **entry.settings} if entry.peer == OWN else {}
    folder = str(artifacts.folder.resolve())
    shape = (config.phones, MEASURED, config.workers, LEARNING_RATE)
    return SimulatorJob(entry.peer, folder, users, rehearsal, streams, str(out), *shape, settings)


def _run(entry: _Entry, job: SimulatorJob) -> dict[str, Any]:
    """A run in a fresh process. Raises BenchError with its last line of stderr."""
    line = [entry.python, "-c", "import phonograd.bench.simulator as s; s.main()", json.dumps(asdict(job))]
    # The peer may run in another Python, which finds this project by its path.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile("w+") as errors:
        try:
            process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        except OSError as error:
            raise BenchError(f"bench: {entry.name}: {entry.python} cannot be run ({error.strerror})") from error
        answer: dict[str, Any] = {}
        times, cpu = [], []
        with process:
            memory = PeakPss(process.pid)
            memory.start()
            for text in process.stdout or ():
                if text.strip() in (BEGAN, ENDED):
                    times.append(time.perf_counter())
                    cpu.append(cpu_seconds(process.pid))
                else:
                    answer = json.loads(text)
            answer["peak_pss_bytes"] = memory.stop()
        errors.seek(0)
        last = (errors.read().strip().splitlines() or ["no output"])[-1]
    if process.returncode != 0:
        raise BenchError(f"bench: {entry.name} exited with code {process.returncode}: {last}")
    if "left_out" not in answer:
        answer["round_seconds"], answer["cpu_seconds"] = times[MEASURED] - times[MEASURED - 1], cpu[-1] - cpu[-2]
    return answer


def _measured(entries: Sequence[_Entry], runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Simulator]:
    first = runs[entries[0].name]
    for entry in entries:
        if not (own := runs[entry.name]):
            continue
        yield Simulator(
            name=entry.name,
            output_sample=entry.settings.get("output_sample"),
            precision=entry.settings.get("precision", "fp32"),
            round_seconds=statistics.median(run["round_seconds"] for run in own),
            cpu_seconds=statistics.median(run["cpu_seconds"] for run in own),
            ratio=_ratio(own, first, "round_seconds"),
            cpu_ratio=_ratio(own, first, "cpu_seconds"),
            peak_pss_bytes=max(run["peak_pss_bytes"] for run in own),
            loss=own[0]["losses"][0],
            versions=own[0]["versions"],
        )


def _ratio(own: Sequence[Mapping[str, Any]], first: Sequence[Mapping[str, Any]], key: str) -> float:
    return float(statistics.median(a[key] / b[key] for a, b in zip(own, first, strict=True)))


def _disagreements(measured: Sequence[Simulator]) -> Iterator[str]:
    """Lines for the losses of the first round, which all begin with the same model and streams, that differ."""
    first = measured[0]
    for one in measured[1:]:
        same = (one.output_sample, one.precision) == (first.output_sample, first.precision)
        if same and not abs(one.loss - first.loss) <= TOLERANCE:
            yield f"{one.name}: loss {one.loss:.6g} in round 1, {first.name}: {first.loss:.6g}"


def simulate_rows(result: SimulateBench) -> Iterator[dict[str, object]]:
    """The table that the command prints."""
    for one in result.contestants:
        yield {
            "contestant": one.name,
            "seconds a round": one.round_seconds,
            "CPU seconds": one.cpu_seconds,
            "ratio": one.ratio,
            "CPU ratio": one.cpu_ratio,
            "peak MB": round(one.peak_pss_bytes / MB),
            "loss, round 1": one.loss,
        }
    for name, reason in result.left_out.items():
        yield {"contestant": f"{name}: left out, {reason}"}
