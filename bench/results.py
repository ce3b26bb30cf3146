"""Kept results: a folder of JSON documents, one benchmark each, and the Markdown page made of them."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.device_runtime.base.files import write_bytes

FOLDER = Path(__file__).parent / "results"
PAGE = Path(__file__).parent / "RESULTS.md"
MB = 1e6
DIGITS, LIST_DIGITS = 5, 3  # significant digits kept of a figure, and of each step's

HEAD = """# Results

Made by `make results` from `bench/results/*.json`; do not edit. Seconds are those of one machine on one day: the ratios
and the fractions of the machine's own sgemm rate, measured in the same rounds, are the figures.
"""


def save_result(path: Path, document: Mapping[str, Any], command: str) -> None:
    """Write a benchmark's document, rounded, with the command that repeats it. Raises StorageError."""
    write_bytes(path, (json.dumps(rounded({"command": command, **document}), indent=1) + "\n").encode())


def rounded(value: Any) -> Any:
    """The same document with floats cut to DIGITS significant digits, in lists of floats to LIST_DIGITS."""
    if isinstance(value, float):
        return _cut(value, DIGITS)
    if isinstance(value, Mapping):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        floats = len(value) > 0 and all(isinstance(part, float) for part in value)
        return [_cut(part, LIST_DIGITS) if floats else rounded(part) for part in value]
    return value


def _cut(value: float, digits: int) -> float:
    if not math.isfinite(value):
        raise ValueError(f"a result is {value}, expected a finite number")
    return float(f"{value:.{digits}g}")


def load_results(folder: Path) -> dict[str, Any]:
    """Documents by file name, in the order of the page: by kind, then by name. Raises ArtifactsError."""
    documents = {path.name: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))}
    for name, document in documents.items():
        if document.get("kind") not in SECTIONS:
            raise ArtifactsError(
                f"{folder / name}: kind {', '.join(SECTIONS)} expected, found {document.get('kind')!r}; measure again"
            )
    kinds = list(SECTIONS)
    return dict(sorted(documents.items(), key=lambda item: (kinds.index(item[1]["kind"]), item[0])))


def render(documents: Mapping[str, Any]) -> str:
    """The whole page, from the documents alone."""
    parts = [HEAD]
    for name, document in documents.items():
        lines = SECTIONS[document["kind"]](document)
        parts.append("\n".join([*lines, "", f"Repeat: `{document['command']}` (`results/{name}`)."]) + "\n")
    return "\n".join(parts)


def table(columns: Mapping[str, str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A Markdown table. columns: heading to alignment, "l" or "r"."""
    yield f"| {' | '.join(columns)} |"
    yield f"|{'|'.join('---' if side == 'l' else '---:' for side in columns.values())}|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def machine(document: Mapping[str, Any]) -> str:
    """The environment line of a section."""
    found = document["environment"]
    return (
        f"{found['cpu']} ({', '.join(found['features'])}), {found['cores']} cores, {found['system']}, "
        f"Python {found['python']}" + (f"; {document['threads']} threads." if "threads" in document else ".")
    )


def _epoch(document: Mapping[str, Any]) -> list[str]:
    model, contestants = document["model"], document["contestants"]
    first = contestants[0]["name"]
    clip = "no clipping" if document["clip_norm"] is None else f"clip norm {document['clip_norm']:g}"
    weights = document["weight_bytes"]
    columns = {
        "contestant": "l", f"time by {first}'s": "r", "least": "r", "seconds a step": "r", "p10 - p90": "r",
        "GFLOP/s": "r", "of sgemm": "r", "peak memory, MB": "r", "by the weights'": "r", "less the interpreter": "r",
    }  # fmt: skip
    rows = [
        [
            _name(one, model["vocabulary"]),
            f"{one['ratio']:.2f}", f"{one['ratio_least']:.2f}", f"{one['median_seconds']:.3f}",
            f"{one['p10_seconds']:.3f} - {one['p90_seconds']:.3f}", f"{one['gflops']:.0f}",
            f"{one['fraction_of_sgemm']:.0%}", f"{one['peak_rss_bytes'] / MB:.0f}",
            f"{one['peak_rss_bytes'] / weights:.1f}", f"{one['own_rss_bytes'] / MB:.0f}",
        ]
        for one in contestants
    ]  # fmt: skip
    rounds = len(contestants[0]["step_seconds"])
    lines = [
        f"## A step: {model['cell'].upper()} {model['layers']}x{model['hidden']}, {model['vocabulary']:,} words",
        "",
        machine(document),
        "",
        f"{document['step_gflop']:.3g} GFLOP a step of {document['bptt']} x {document['minibatch']} tokens, {clip}; "
        f"{rounds} rounds after {document['warm_up']} that warm up, a step of each contestant per round, each in a "
        "process of its own that is stopped while others run. Time by the first's: median and least over rounds.",
        "",
        *table(columns, rows),
        "",
        f"sgemm {'x'.join(map(str, document['sgemm_shape']))} by NumPy's OpenBLAS: {document['sgemm_gflops']:.0f} "
        "GFLOP/s.",
    ]
    lines += [f"Left out: {name} ({reason})." for name, reason in document["left_out"].items()]
    lines += [f"They disagree: {line}." for line in document["disagreements"]]
    return lines


def _parity(document: Mapping[str, Any]) -> list[str]:
    model, pairs = document["model"], list(document["loss_errors"])
    clip = "no clipping" if document["clip_norm"] is None else f"clip norm {document['clip_norm']:g}"
    losses = {"tensor": "losses, the worst step", "errors": document["loss_errors"]}
    rows = [
        [one["tensor"], _or_dash(one.get("moved"), "{:.1e}"), *(f"{one['errors'][pair]:.1e}" for pair in pairs)]
        for one in (*document["tensors"], losses)
    ]
    held = ", ".join(document["held"])
    lines = [
        f"## Parity: {model['cell'].upper()} {model['layers']}x{model['hidden']}, {model['vocabulary']:,} words",
        "",
        machine(document),
        "",
        f"The same {document['steps']} steps of {document['bptt']} x {document['minibatch']} tokens from the same "
        f"weights by each runtime, learning rate {document['learning_rate']:g}, {clip}. Relative Frobenius errors of "
        f"what they end in, held to {document['tolerance']:g}: {held}; moved: by how much training changed the tensor. "
        "Where gradients are clipped, ort is not held to it: it sums their norm in float32.",
        "",
        *table({"tensor": "l", "moved": "r", **dict.fromkeys(pairs, "r")}, rows),
    ]
    lines += [f"Left out: {name} ({reason})." for name, reason in document["left_out"].items()]
    lines += [f"They differ: {line}." for line in document["differences"]]
    return lines


def _name(contestant: Mapping[str, Any], vocabulary: int) -> str:
    kernels, words = contestant["about"].get("kernels"), contestant.get("output_words", vocabulary)
    more = [*([f"{kernels} kernels"] if kernels else []), *([f"{words:,} words"] if words < vocabulary else [])]
    return _versioned(contestant["name"], contestant["about"].get("versions", {}), *more)


def _versioned(name: str, versions: Mapping[str, str], *more: str) -> str:
    own = [*(f"{package} {version}" for package, version in versions.items() if package != "numpy"), *more]
    return f"{name} ({', '.join(own)})" if own else name


def _or_dash(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _kernels(document: Mapping[str, Any]) -> list[str]:
    rows = [
        [
            one["kernel"], one["set"], one["shape"], f"{one['median_seconds'] * 1e3:.3g}", f"{one['rate']:.3g}",
            one["unit"], _or_dash(one["fraction_of_sgemm"], "{:.0%}"),
        ]
        for one in document["kernels"]
    ]  # fmt: skip
    columns = {"kernel": "l", "set": "l", "shape": "l", "ms": "r", "rate": "r", "unit": "l", "of sgemm": "r"}
    return ["## Kernels", "", machine(document), "", *table(columns, rows)]


def _phone(document: Mapping[str, Any]) -> list[str]:
    counts = [
        [one["model"], one["cpu"], f"{one['instructions_per_token']:,.0f}", f"{one['flop_per_instruction']:.2f}"]
        for one in document["counts"]
    ]
    loops = [
        [
            one["cpu"], one["function"], str(one["fmla"]), f"{one['instructions']}", f"{one['cycles']:.1f}",
            f"{one['flop_per_cycle']:.2f}", f"{one['projected_epoch_seconds']:.1f}",
            _or_dash(one["projected_with_overhead_seconds"], "{:.1f}"),
        ]
        for one in document["loops"]
    ]  # fmt: skip
    phone = document["phone"]
    return [
        "## The phone binary, without a phone",
        "",
        f"`phonograd-phone` for aarch64, {document['binary_bytes']:,} bytes, one thread, under qemu-aarch64 "
        f"{document['qemu']}: instructions per trained token, loading taken off.",
        "",
        *table({"model": "l", "cpu": "l", "instructions a token": "r", "FLOP an instruction": "r"}, counts),
        "",
        "The innermost loop with most multiply-adds, in fp32 and in bf16, by llvm-mca, and what follows if all "
        f"arithmetic of an epoch ({document['epoch_gflop']:.0f} GFLOP) ran as there, or, in the last column, if every "
        "instruction counted above (of the paper's model) took as long as that loop's: **projections, not "
        f"measurements**, for {phone['cores']} cores at {phone['ghz']} GHz, all always busy, memory never waited for. "
        f"Popov et al. measured {phone['measured_epoch_seconds']:.0f} s on such a phone.",
        "",
        *table(
            {
                "core": "l", "function": "l", "fmla, bfmmla": "r", "instructions": "r", "cycles": "r",
                "FLOP a cycle": "r", "projected epoch, s": "r", "all instructions, s": "r",
            },
            loops,
        ),
    ]  # fmt: skip


def _aggregate(document: Mapping[str, Any]) -> list[str]:
    weights = document["weight_bytes"]
    columns = {
        "contestant": "l", "updates": "r", "MB each": "r", "seconds": "r", "loading before, s": "r",
        "time by the first's": "r", "loading counted": "r", "peak memory, MB": "r", "by the weights'": "r",
        "largest difference": "r",
    }  # fmt: skip
    rows = [
        [
            _versioned(one["name"], one["versions"]), f"{one['updates']}", f"{one['update_bytes'] / MB:.1f}",
            f"{one['aggregate_seconds']:.2f}", f"{one['load_seconds']:.2f}", f"{one['ratio']:.2f}",
            f"{one['ratio_with_loading']:.2f}", f"{one['peak_rss_bytes'] / MB:.0f}",
            f"{one['peak_rss_bytes'] / weights:.1f}", f"{one['difference']:.1e}",
        ]
        for one in document["contestants"]
    ]  # fmt: skip
    lines = [
        f"## Aggregation: {document['preset']}, {weights / MB:.1f} MB of weights",
        "",
        machine(document),
        "",
        f"The average of the same updates, {document['rounds']} rounds by turns, each run a process of its own. The "
        "fold reads the updates from their files as it adds them; Flower's FedAvg begins with all of them in memory, "
        "and loading is what brought them there. Difference: of a weight, from the first's average.",
        "",
        *table(columns, rows),
    ]
    if document["left_out"]:
        lines.append("")
    lines += [f"Left out: {name} ({reason})." for name, reason in document["left_out"].items()]
    lines += [f"They disagree: {line}." for line in document["disagreements"]]
    return lines


def _ingest(document: Mapping[str, Any]) -> list[str]:
    throughput = [
        [one["way"], f"{one['at_once']}", f"{one['mb_per_second']:.0f}", f"{one['ratio']:.0%}"]
        for one in document["throughput"]
    ]
    memory = [
        [
            f"{one['phones']}", f"{one['peak_rss_bytes'] / MB:.0f}", f"{one['limit_bytes'] / MB:.0f}",
            f"{one['idle_rss_bytes'] / MB:.0f}", f"{one['mb_per_second']:.0f}", f"{one['closing_seconds']:.2f}",
        ]
        for one in document["memory"]
    ]  # fmt: skip
    last_byte = [
        [
            f"last 64 KiB {one['pause']:g} s later" if one["pause"] else "as fast as loopback goes",
            f"{one['seconds']:.2f}", f"{one['passes']:.1f}", f"{one['copies']:.1f}",
        ]
        for one in document["last_byte"]
    ]  # fmt: skip
    crowds = [
        [
            f"{one['phones']}", f"{one['update_bytes'] / MB:.2f}", f"{one['seconds']:.2f}",
            f"{one['slowest_health_seconds']:.3f}", f"{one['median_health_seconds']:.3f}",
        ]
        for one in document.get("crowds", ())  # results of before it was measured have none
    ]  # fmt: skip
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    lines = [
        f"## Uploads: {document['preset']}, {document['update_bytes'] / MB:.1f} MB each",
        "",
        machine(document),
        "",
        f"{versions}. MB/s of a real server over loopback, from the first byte sent to the last answer, "
        f"{document['rounds']} rounds by turns. Received: to disk and hashed, then refused; accepted: synced, folded "
        "and in the ledger too. The bare handler, starlette's under uvicorn, writes the body to a file.",
        "",
        *table({"way": "l", "at once": "r", "MB/s": "r", "by the bare handler's": "r"}, throughput),
        "",
        "Peak memory of a fresh server while so many phones upload at once and close the round.",
        "",
        *table(
            {
                "phones": "r", "peak memory, MB": "r", "at most": "r", "idle, MB": "r", "MB/s": "r",
                "last byte to model, s": "r",
            },
            memory,
        ),
        "",
        "From the last byte of a round's last upload to the new model's first byte, its other updates folded before. A "
        f"pass is c = a + b over the weights, c in new memory: {document['pass_seconds']:.3f} s; a copy reads the "
        f"model's file, writes another and syncs it: {document['copy_seconds']:.3f} s.",
        "",
        *table({"sent": "l", "seconds": "r", "passes": "r", "copies": "r"}, last_byte),
    ]  # fmt: skip
    if crowds:
        lines += [
            "",
            "Small updates of so many phones at once, from the first byte sent to the last answer, and what /healthz "
            "took meanwhile at worst.",
            "",
            *table(
                {"phones": "r", "MB each": "r", "seconds": "r", "slowest /healthz, s": "r", "median, s": "r"}, crowds
            ),
        ]
    return lines


def _upload(document: Mapping[str, Any]) -> list[str]:
    model, texts = document["model"], list(document["before"])
    rows = [
        [
            one["codec"], f"{one['bytes'] / MB:.3f}", f"{one['ratio']:.1f}", f"{one['encode_seconds']:.2f}",
            f"{one['decode_seconds']:.2f}",
            *(f"{one['perplexities'][text]:.2f} ({one['change'][text]:+.2%})" for text in texts),
        ]
        for one in document["codecs"]
    ]  # fmt: skip
    rows.append(["before the round", *4 * ["-"], *(f"{document['before'][text]:.2f}" for text in texts)])
    columns = {"codec": "l", "MB": "r", "smaller by": "r", "encode, s": "r", "decode, s": "r"}
    deltas = "each trained on a text of its own" if document["trained"] else "of random deltas"
    return [
        f"## An upload: {model['cell'].upper()} {model['layers']}x{model['hidden']}, {model['vocabulary']:,} words",
        "",
        machine(document),
        "",
        f"{document['phones']} phones, {deltas}; bytes of an update (mean), by which the weights' "
        f"{document['weight_bytes'] / MB:.1f} MB are larger, seconds to encode and write it and to decode and check it "
        "(medians), and perplexity of the average of all, with its change against the first codec's.",
        "",
        *table({**columns, **dict.fromkeys(texts, "r")}, rows),
    ]


SECTIONS: Mapping[str, Callable[[Mapping[str, Any]], list[str]]] = {
    "epoch": _epoch,
    "parity": _parity,
    "kernels": _kernels,
    "upload": _upload,
    "phone": _phone,
    "aggregate": _aggregate,
    "ingest": _ingest,
}
