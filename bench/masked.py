"""Seconds, bytes and memory of secure aggregation: phonograd's masked rounds and Flower's SecAgg+."""

import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phonograd.bench.contestants import Answers, Entry, Say, Worker
from phonograd.bench.markdown import MB, Column, Row, Table, figure, name_with_versions, text
from phonograd.bench.measuring import in_fresh_process
from phonograd.bench.results import Document, result_of
from phonograd.bench.synthetic import random_weights
from phonograd.bench.worker import MaskedJob
from phonograd.device_runtime.formats.tensor_file import save_tensors
from phonograd.export.presets import preset_named

SCHEMA_VERSION = 1
OWN, OWN_PEER = "phonograd", "phonograd.bench.peers.own_masked"
FLOWER, FLOWER_PEER = "Flower SecAgg+", "phonograd.bench.peers.flower_masked"
FLOWER_HINT = "pip install flwr msgspec numpy in an environment of its own, and give --flower-python PYTHON"
KINDS = ("keys", "shares", "unmasking")  # of small messages; the update is another kind
KB = 1e3


@dataclass(frozen=True)
class MaskedBenchConfig:
    """phones: sizes of cohorts; dead: percent of each that drop out after they sent shares.

    whole: the largest cohort that Flower runs whole. support, most: phonograd alone also runs the last cohort with this
    support, and a cohort of this size, with the last share of drop-outs.
    """

    preset: str = "popov-2x650"
    phones: tuple[int, ...] = (10, 50)
    dead: tuple[int, ...] = (0, 20)
    support: int = 16
    most: int = 100
    whole: int = 10
    flower_python: str | None = None


def bench_masked(config: MaskedBenchConfig, say: Say = str) -> dict[str, Any]:
    """Run each round once, server and phones in processes of their own. Raises BenchError, StorageError.

    The result has a line in `disagreements` for each sum that is not the plain one.
    """
    left_out: dict[str, str] = {}
    measured: list[Answers] = []
    with tempfile.TemporaryDirectory() as place:
        base = Path(place) / "base"
        in_fresh_process(_make_base, base, config.preset)
        for entry, phones, dead in _rounds(config):
            if entry.name in left_out:
                continue
            say(f"{entry.name}: {phones} phones, {dead} drop out")
            answers = _run(entry, base, phones, dead)
            if "left_out" in answers:
                left_out[entry.name] = "; ".join(filter(None, (answers["left_out"], entry.hint)))
            else:
                measured.append({"name": entry.name, "phones": phones, "dead": dead, **answers})
    return result_of(
        "masked",
        SCHEMA_VERSION,
        preset=config.preset,
        parameters=preset_named(config.preset).model.parameters,
        whole=config.whole,
        contestants=measured,
        left_out=left_out,
        disagreements=[
            f"the sum of {one['name']}, {one['phones']} phones, {one['dead']} of them dead, is off by "
            f"{one['difference']:.2g}"
            for one in measured
            if one["difference"] is not None and not one["difference"] <= one["tolerance"]
        ],
    )


def _rounds(config: MaskedBenchConfig) -> Iterator[tuple[Entry, int, int]]:
    own = Entry(OWN, OWN_PEER, settings={"support": 1})
    thin = Entry(f"{OWN}, support 1/{config.support}", OWN_PEER, settings={"support": config.support})
    python = config.flower_python or sys.executable
    flower = Entry(FLOWER, FLOWER_PEER, python=python, settings={"whole": config.whole}, hint=FLOWER_HINT)
    wanted = [(entry, phones, share) for phones in config.phones for share in config.dead for entry in (own, flower)]
    wanted += [(entry, phones, config.dead[-1]) for entry, phones in ((thin, config.phones[-1]), (own, config.most))]
    yield from dict.fromkeys((entry, phones, phones * share // 100) for entry, phones, share in wanted)


def _run(entry: Entry, base: Path, phones: int, dead: int) -> Answers:
    with tempfile.TemporaryDirectory(dir=base.parent) as folder:
        job = MaskedJob(entry.peer, str(base), folder, phones, dead, entry.settings)
        with Worker(entry, job) as worker:
            answers = worker.answer()
            worker.end()
    return answers


def _make_base(path: Path, preset: str) -> None:
    save_tensors(path, random_weights(preset_named(preset).model, 0))


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results."""
    rows = document["contestants"]
    yield f"Secure aggregation: {document['preset']}, {document['parameters'] / MB:.1f} M parameters"
    yield (
        "One round each, of phones that trained the same update; those that drop out send shares, and then nothing. "
        "All seconds are CPU seconds, of all threads together, and those of a phone are medians over the phones that "
        "ran: encoding (to phonograd's grid, or Flower's quantization), keys and shares, masking, and the answers that "
        "let the server unmask. The server's are of checking and passing on messages, adding the masked updates, and "
        "unmasking with decoding; its memory is the peak above that of its packages. HTTP, TLS and the model's "
        "download are left out for both. phonograd sends codes of 8 bits, Flower numbers of 32 bits in 64. Each sum "
        "that was unmasked is compared with the plain one: phonograd's must be equal, Flower's within its quantization."
    )
    yield (
        f"Flower runs whole with up to {document['whole']} phones. In larger cohorts one phone runs whole, the others "
        "send keys, shares and answers, and the server adds that phone's update once for each of them. What "
        "the last column names is then counted up: unmasking as the masks that the server removes times the seconds of "
        "those that it did remove, and memory as what it took with one update and the bytes of all the others, which "
        "Flower keeps until they are added. Those sums are not compared."
    )
    cohort = {"contestant": text("name"), "phones": figure("phones", "d"), "drop out": figure("dead", "d")}
    named = {"contestant": Column(lambda one: name_with_versions(one["name"], one["versions"]))}
    phone = {
        "seconds": Column(lambda one: sum(one["phone_seconds"].values()), ".2f"),
        "encoding": _of("phone_seconds", "encoding", ".2f"),
        "keys, shares": Column(lambda one: sum(one["phone_seconds"][kind] for kind in ("keys", "shares")), ".3f"),
        "masking": _of("phone_seconds", "update", ".2f"),
        "answers": _of("phone_seconds", "unmasking", ".3f"),
        "phones that ran": figure("phones_run", "d"),
    }
    server = {
        "seconds": Column(lambda one: sum(one["server_seconds"].values()), ".1f"),
        "messages": _of("server_seconds", "messages", ".2f"),
        "adding": _of("server_seconds", "adding", ".1f"),
        "unmasking": _of("server_seconds", "unmasking", ".1f"),
        "memory, MB": figure("own_rss_bytes", ".0f", MB),
        "largest difference": figure("difference", ".1e"),
        "counted up": Column(lambda one: ", ".join(one["counted"]) or "nothing"),
    }
    sizes = {
        "update sent, MB": _of("up_bytes", "update", ".1f", MB),
        **{f"{kind} sent, kB": _of("up_bytes", kind, ".1f", KB) for kind in KINDS},
        **{f"{kind} got, kB": _of("down_bytes", kind, ".1f", KB) for kind in KINDS},
    }
    yield "Of a phone, CPU seconds, then bytes; unmasking is the list of the living, its signatures and the answer:"
    yield Table("CPU seconds of a phone", {**cohort, **named, **phone}, rows)
    yield Table("Bytes of a phone", {**cohort, **sizes}, rows)
    yield "The server's CPU seconds and memory:"
    yield Table("CPU seconds and memory of the server", {**cohort, **server}, rows)


def _of(side: str, kind: str, form: str, unit: float = 1) -> Column:
    def value(row: Row) -> Any:
        found: Mapping[str, float] = row[side]
        return found[kind] / unit

    return Column(value, form)
