"""Seconds and memory of the training steps of several runtimes, in turn on the same windows; the machine's ceiling."""

import contextlib
import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from phonograd.bench.contestants import Answers, BenchError, Entry, Say, Turn, Worker, rotate, worker_environment
from phonograd.bench.flops import ceiling_flop, ceiling_shape, phase_flop, step_flop
from phonograd.bench.markdown import MB, Column, Row, Table, figure, model_name, name_with_versions, text
from phonograd.bench.results import Document, result_of
from phonograd.bench.worker import Ids, Job
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import MANIFEST, WEIGHTS, Manifest, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig

SCHEMA_VERSION = 2
CEILINGS = tuple(
    Entry(
        f"product: {variant}", f"phonograd.bench.peers.{'torch_product' if 'torch' in variant else 'product'}", variant
    )
    for variant in ("openblas", "torch", "native", "torch bf16", "native bf16")
)
# A dozen steps amplify rounding to a thousandth, more of them to a hundredth; parity compares single steps.
_COMPARED = 10
PAPER_EPOCH_STEPS = 20  # about 20 KB of text: 4,000 tokens in windows of 200

Kind = tuple[LanguageModelConfig, TrainingConfig]
# What can be trained: the paper's model, and that with one thing changed.
_KINDS: dict[str, Callable[[LanguageModelConfig], Kind]] = {
    "untied": lambda paper: (paper, TrainingConfig()),
    "tied": lambda paper: (msgspec.structs.replace(paper, tied=True), TrainingConfig()),
    "lwf": lambda paper: (paper, TrainingConfig(loss="lwf")),
    "gru": lambda paper: (msgspec.structs.replace(paper, cell="gru"), TrainingConfig()),
}
KINDS = tuple(_KINDS)


def kind_named(name: str, paper: LanguageModelConfig) -> Kind:
    """Shape and training of one of KINDS; paper: the shape of `untied`."""
    return _KINDS[name](paper)


@dataclass(frozen=True)
class EpochBenchConfig:
    """steps: measured rounds; warm_up: rounds before them; tolerance: relative, between the losses in float32 of the
    measured step _COMPARED, or of the last of fewer.
    """

    steps: int = 10
    warm_up: int = 2
    threads: int = 2
    tolerance: float = 5e-3


def bench_epoch(
    folders: Mapping[str, Path], entries: Sequence[Entry], config: EpochBenchConfig, say: Say = str
) -> dict[str, Any]:
    """Load all contestants, then run one step of each in every round.

    folders: artifacts by the names of kinds, all of the same vocabulary, minibatch and steps; the ceiling is the first
    one's. The result has `kinds` by name, what contestants train; `ceilings`, each library's rate of the output layer's
    product in turns of its own; and a line in `disagreements` for each float32 contestant with another loss.

    Raises BenchError if a contestant fails, none can run here or the folders do not go together, and what opening the
    artifacts raises.
    """
    manifests = {name: open_artifacts(folder).manifest for name, folder in folders.items()}
    first = next(iter(manifests))
    if len({_shape(manifest) for manifest in manifests.values()}) > 1:
        raise BenchError("bench: artifacts of the same vocabulary, minibatch and steps expected; export them so")
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        np.save(place / "windows.npy", windows_of(manifests[first], config.warm_up + config.steps))
        left_out, workers = {}, []
        for entry in (*CEILINGS, *entries):
            say(f"loading {entry.name}")
            folder = folders[entry.kind or first].resolve()
            windows = str(place / "windows.npy")
            job = Job(entry.peer, str(folder), windows, config.threads, entry.variant, entry.output_sample)
            worker = stack.enter_context(Worker(entry, job, worker_environment(config.threads)))
            if reason := worker.left_out():
                left_out[entry.name] = reason
            else:
                workers.append(worker)
        if all(worker.entry in CEILINGS for worker in workers):
            raise BenchError(f"bench: no contestant can run here: {'; '.join(left_out.values()) or 'none was given'}")
        turns = _take_turns(workers, config, say)
    ceilings = [worker for worker in workers if worker.entry in CEILINGS]
    contestants = [worker for worker in workers if worker.entry not in CEILINGS]
    rates = {worker.entry: _ceiling_rates(manifests[first], turns[worker.entry.name]) for worker in ceilings}
    reference = turns[contestants[0].entry.name]
    measured = [
        _measure_turns(
            worker, turns[worker.entry.name], reference, _fastest(rates, worker.entry.reduced), kind, manifests[kind]
        )
        for worker in contestants
        for kind in [worker.entry.kind or first]
    ]
    exact = [one for one in measured if not manifests[one["kind"]].training.dropout]
    return result_of(
        "epoch",
        SCHEMA_VERSION,
        threads=config.threads,
        variables=worker_environment(config.threads),
        kinds={name: _kind(folder, manifests[name]) for name, folder in folders.items()},
        ceiling_shape=ceiling_shape(manifests[first]),
        ceilings=[
            {
                "name": worker.entry.variant,
                "reduced": worker.entry.reduced,
                "gflops": statistics.median(rates[worker.entry]),
                "about": worker.loaded["about"],
            }
            for worker in ceilings
        ],
        warm_up=config.warm_up,
        contestants=measured,
        left_out=left_out,
        disagreements=_disagreements(exact, entries, config.tolerance),
    )


def _shape(manifest: Manifest) -> tuple[int, int, int]:
    return manifest.model.vocabulary, manifest.training.minibatch, manifest.training.bptt


def _kind(folder: Path, manifest: Manifest) -> Answers:
    return {
        "manifest_sha256": sha256_of_file(folder / MANIFEST),
        "weights_sha256": manifest.files[WEIGHTS].sha256,
        "model": manifest.model,
        "training": manifest.training,
        "step_gflop": step_flop(manifest.model, manifest.training) / 1e9,
        "weight_bytes": 4 * manifest.model.parameters,
    }


def _ceiling_rates(manifest: Manifest, turns: Sequence[Turn]) -> list[float]:
    """GFLOP/s of a ceiling in each round, by its own clock if it has one."""
    return [ceiling_flop(manifest) / (sum(turn.phases.values()) or turn.seconds) / 1e9 for turn in turns]


def _fastest(rates: Mapping[Entry, Sequence[float]], reduced: bool) -> Sequence[float]:
    return max(
        (measured for entry, measured in rates.items() if entry.reduced == reduced), key=statistics.median, default=()
    )


def _disagreements(measured: Sequence[Answers], entries: Sequence[Entry], tolerance: float) -> tuple[str, ...]:
    reduced = {entry.name for entry in entries if entry.reduced}
    losses: dict[tuple[str, int], dict[str, float]] = {}
    for one in measured:
        if one["name"] not in reduced:
            losses.setdefault((one["kind"], one["output_words"]), {})[one["name"]] = one["loss"]
    return tuple(line for group in losses.values() for line in disagreements(group, tolerance))


def windows_of(manifest: Manifest, rounds: int) -> Ids:
    """[rounds, 2, T, B] ids and their successors by Zipf's law, word n as often as 1 / (n + 1): as a text has words."""
    training = manifest.training
    shape = (rounds, training.bptt, training.minibatch)
    uniform = np.random.default_rng(0).random(math.prod(shape) + 1)
    stream = np.exp(uniform * math.log(manifest.model.vocabulary + 1)).astype(np.int64) - 1
    return np.stack([stream[:-1].reshape(shape), stream[1:].reshape(shape)], axis=1)


def _take_turns(workers: Sequence[Worker], config: EpochBenchConfig, say: Say) -> dict[str, list[Turn]]:
    turns: dict[str, list[Turn]] = {worker.entry.name: [] for worker in workers}
    rounds = config.warm_up + config.steps
    for window in range(rounds):
        say(f"round {window + 1} of {rounds}")
        for worker in rotate(workers, window):
            turn = worker.turn(window)
            if window >= config.warm_up:
                turns[worker.entry.name].append(turn)
    return turns


def _measure_turns(
    worker: Worker,
    turns: Sequence[Turn],
    first: Sequence[Turn],
    ceiling: Sequence[float],
    kind: str,
    manifest: Manifest,
) -> Answers:
    """One contestant's figures.

    kind: the name of what it trains; output_words: words that the softmax runs over, fewer than the vocabulary with an
    output sample; gflop: of a step; gflops: per median second; fraction_of_ceiling: median over rounds of that rate
    divided by the ceiling's in the same round, the fastest of `ceilings` in the contestant's precision; ratio,
    ratio_least: seconds divided by the first contestant's in the same round, median and minimum over rounds;
    own_rss_bytes: peak memory minus the interpreter's before loading; loss: of the step that is compared, as the
    manifest defines it, over the output words; phases: of backend native.
    """
    seconds = [turn.seconds for turn in turns]
    median = statistics.median(seconds)
    about, peak, loss = worker.loaded["about"], turns[-1].peak_rss_bytes, turns[:_COMPARED][-1].loss
    layer = about.get("output_layer")
    output_words = layer["words"] if layer else manifest.model.vocabulary
    gflop = step_flop(manifest.model, manifest.training, output_words) / 1e9
    ratios = [own / other.seconds for own, other in zip(seconds, first, strict=True)]
    p10, p90 = np.percentile(seconds, (10, 90))
    if loss is None:
        raise BenchError(f"bench: {worker.entry.name} returned no loss, expected a number")
    return {
        "name": worker.entry.name,
        "kind": kind,
        "output_words": output_words,
        "step_seconds": seconds,
        "median_seconds": median,
        "p10_seconds": float(p10),
        "p90_seconds": float(p90),
        "epoch_seconds": median * PAPER_EPOCH_STEPS,
        "tokens_per_second": manifest.training.minibatch * manifest.training.bptt / median,
        "gflop": gflop,
        "gflops": gflop / median,
        "fraction_of_ceiling": _fraction(gflop, seconds, ceiling),
        "ratio": statistics.median(ratios),
        "ratio_least": min(ratios),
        "peak_rss_bytes": peak,
        "own_rss_bytes": peak - worker.loaded["baseline_rss_bytes"],
        "load_seconds": worker.loaded["load_seconds"],
        "loss": loss,
        "phases": _phases(turns, ceiling, output_words, about.get("factored", ()), manifest),
        "about": about,
    }


def _phases(
    turns: Sequence[Turn], ceiling: Sequence[float], output_words: int, factored: Sequence[str], manifest: Manifest
) -> list[Answers]:
    """Each phase's median seconds, its GFLOP, and their rate as a fraction of the ceiling's, None without either.

    Empty for a contestant that does not time its phases. Raises BenchError if products are in a phase it lacks.
    """
    names = list(turns[-1].phases)
    if not names:
        return []
    flop = phase_flop(manifest.model, manifest.training, output_words, names, factored)
    if missing := flop.keys() - names:
        raise BenchError(f"bench: phases {', '.join(sorted(missing))} expected, found {', '.join(names)}")
    found = []
    for name in names:
        seconds, gflop = [turn.phases[name] for turn in turns], flop.get(name, 0) / 1e9
        figures = {"seconds": statistics.median(seconds), "gflop": gflop}
        found.append({"name": name, **figures, "fraction_of_ceiling": _fraction(gflop, seconds, ceiling)})
    return found


def _fraction(gflop: float, seconds: Sequence[float], ceiling: Sequence[float]) -> float | None:
    if not gflop or not ceiling:
        return None
    return statistics.median(gflop / taken / rate for taken, rate in zip(seconds, ceiling, strict=True))


def disagreements(losses: Mapping[str, float], tolerance: float) -> tuple[str, ...]:
    """A line for each loss whose relative difference from the first exceeds `tolerance`; NaN always differs."""
    if not losses:
        return ()
    (first, expected), *others = losses.items()
    return tuple(
        f"the loss of {name} is {loss:.6g}, of {first} {expected:.6g}"
        for name, loss in others
        if not abs(loss - expected) <= tolerance * abs(expected)
    )


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results."""
    contestants, (kind, *others) = document["contestants"], document["kinds"]
    training, first = document["kinds"][kind]["training"], contestants[0]
    clip = "no clipping" if training["clip_norm"] is None else f"clip norm {training['clip_norm']:g}"
    yield f"A step: {_model_of(document)}"
    yield (
        f"A step of {training['bptt']} x {training['minibatch']} tokens, {clip}; "
        f"{len(first['step_seconds'])} rounds after {document['warm_up']} warm-up rounds. In each "
        "round every contestant runs one step, in its own process, which is stopped while others run. Time is relative "
        "to the first contestant's in the same round: median and minimum over rounds. The ceiling is the fastest of "
        "the products below in the same precision and round."
        + (f" The models are {kind}, except those named {', '.join(others)}." if others else "")
    )

    def name(one: Row) -> str:
        kernels, words = one["about"].get("kernels"), one["output_words"]
        fewer = words < document["kinds"][one["kind"]]["model"]["vocabulary"]
        more = [*([f"{kernels} kernels"] if kernels else []), *([f"{words:,} words"] if fewer else [])]
        return name_with_versions(one["name"], one["about"].get("versions", {}), *more)

    columns = {
        "contestant": Column(name),
        f"time / {first['name']}": figure("ratio", ".2f"),
        "minimum": figure("ratio_least", ".2f"),
        "seconds a step": figure("median_seconds", ".3f"),
        "p10 - p90": Column(lambda one: f"{one['p10_seconds']:.3f} - {one['p90_seconds']:.3f}", ">"),
        "tokens/s": figure("tokens_per_second", ".0f"),
        "GFLOP": figure("gflop", ".3g"),
        "GFLOP/s": figure("gflops", ".0f"),
        "of ceiling": figure("fraction_of_ceiling", ".0%"),
        "peak memory, MB": figure("peak_rss_bytes", ".0f", MB),
        "/ weights": Column(lambda one: one["peak_rss_bytes"] / document["kinds"][one["kind"]]["weight_bytes"], ".1f"),
        "without interpreter": figure("own_rss_bytes", ".0f", MB),
    }
    yield Table("A training step", columns, contestants)
    yield from _best_of_torch(contestants, first, document.get("variables", {}))
    yield f"The ceilings: {'x'.join(map(str, document['ceiling_shape']))}, the output layer's product."
    columns = {
        "library": Column(lambda one: name_with_versions(one["name"].split()[0], one["about"]["versions"])),
        "precision": Column(lambda one: "bf16" if one["reduced"] else "fp32"),
        "GFLOP/s": figure("gflops", ".0f"),
    }
    yield Table("The output layer's product", columns, document["ceilings"])
    if phased := [one for one in contestants if one["phases"]]:
        yield (
            "The phases of a step: milliseconds (medians over rounds), and for phases with products their GFLOP and "
            "share of the ceiling. The update computes the products of gradients that are kept as two factors."
        )
        phases = dict.fromkeys(phase["name"] for one in phased for phase in one["phases"])
        columns = {"contestant": text("name"), **{phase: _phase_column(phase) for phase in phases}}
        columns["the step"] = Column(lambda one: _phase({**one, "seconds": one["median_seconds"]}), ">")
        yield Table("Phases of a step", columns, phased)


def _best_of_torch(contestants: Sequence[Row], first: Row, variables: Mapping[str, str]) -> Iterator[str | Table]:
    """The fastest variant in each precision, with its settings. variables: of all processes, if they are known."""
    own = [one for one in contestants if one["name"].startswith("torch ") and "sampled" not in one["name"]]
    kinds = [[one for one in own if ("bf16" in one["name"]) == reduced] for reduced in (False, True)]
    if not own:
        return
    kept = " ".join(f"{name}={value}" for name, value in sorted(variables.items()) if name.startswith("MALLOC_"))
    yield (
        "torch lean clips by a smaller learning rate and updates by fused SGD, with a sparse gradient of the embedding "
        "unless it is tied; so do compiled and bf16. The fastest variant in each precision."
    ) + (f" All processes, phonograd's too, have {kept}, with which glibc keeps freed pages." if kept else "")
    columns = {
        "fastest": text("name"),
        f"time / {first['name']}": figure("ratio", ".2f"),
        "settings": Column(lambda one: ", ".join(one["about"].get("settings", ())) or None),
    }
    yield Table("The fastest torch", columns, [min(same, key=lambda one: one["ratio"]) for same in kinds if same])


def side_by_side(documents: Sequence[Document]) -> Iterator[str | Table]:
    """See phonograd.bench.results: the contestants of several machines that ran the first one's model, in one table."""
    documents = [one for one in documents if _model_of(one) == _model_of(documents[0])]
    if len(documents) == 1:
        return
    cpus = [document["environment"]["cpu"] for document in documents]
    sets = [document["contestants"][0]["about"].get("kernels") for document in documents]
    names = [
        cpu if cpus.count(cpu) == 1 else f"{cpu} {place} ({kernels})"
        for place, (cpu, kernels) in enumerate(zip(cpus, sets, strict=True), 1)
    ]
    yield f"A step on {' and '.join(names)}: {_model_of(documents[0])}"
    yield (
        "Of each CPU: time relative to the first contestant's there, seconds a step, and the share of its fastest "
        "product in the same precision. The sections below describe each measurement."
    )
    found = [{one["name"]: one for one in document["contestants"]} for document in documents]
    columns = {"contestant": text("name")}
    for place, (name, document) in enumerate(zip(names, documents, strict=True)):
        columns |= {
            f"{name}: time / {document['contestants'][0]['name']}": _of(place, "ratio", ".2f"),
            f"{name}: seconds a step": _of(place, "median_seconds", ".3f"),
            f"{name}: of ceiling": _of(place, "fraction_of_ceiling", ".0%"),
        }
    every = dict.fromkeys(name for one in found for name in one)
    yield Table(
        "CPUs side by side", columns, [{"name": name, "of": [one.get(name, {}) for one in found]} for name in every]
    )


def _model_of(document: Document) -> str:
    first, *_ = document["kinds"].values()
    return model_name(first["model"])


def _of(place: int, key: str, form: str) -> Column:
    return Column(lambda row: row["of"][place].get(key), form)


def _phase_column(name: str) -> Column:
    return Column(lambda one: next((_phase(phase) for phase in one["phases"] if phase["name"] == name), None), ">")


def _phase(phase: Row) -> str:
    parts = [f"{phase['seconds'] * 1e3:.3g} ms"]
    if phase["gflop"]:
        parts.append(f"{phase['gflop']:.3g} GFLOP")
    if phase["fraction_of_ceiling"] is not None:
        parts.append(f"{phase['fraction_of_ceiling']:.0%}")
    return ", ".join(parts)
