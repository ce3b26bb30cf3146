"""The page's section of `bench epoch`: the contestants, the phases of our own step, and the ceilings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from phonograd.bench.markdown import MB, environment_line, or_dash, table, versioned

Document = Mapping[str, Any]


def epoch_section(document: Document) -> list[str]:
    """Markdown lines, from the document alone."""
    kind, *others = document["kinds"]
    model, training = document["kinds"][kind]["model"], document["kinds"][kind]["training"]
    clip = "no clipping" if training["clip_norm"] is None else f"clip norm {training['clip_norm']:g}"
    lines = [
        f"## A step: {model['cell'].upper()} {model['layers']}x{model['hidden']}, {model['vocabulary']:,} words",
        "",
        environment_line(document),
        "",
        f"A step of {training['bptt']} x {training['minibatch']} tokens, {clip}; "
        f"{len(document['contestants'][0]['step_seconds'])} rounds after {document['warm_up']} warm-up rounds. In each "
        "round every contestant runs one step, in its own process, which is stopped while others run. Time is relative "
        "to the first contestant's in the same round: median and minimum over rounds. The ceiling is the fastest of "
        "the products below in the same precision and round."
        + (f" The models are {kind}, except those named {', '.join(others)}." if others else ""),
        "",
        *_contestants(document),
        "",
        f"The ceilings: {'x'.join(map(str, document['ceiling_shape']))}, the output layer's product.",
        "",
        *table(
            {"library": "l", "precision": "l", "GFLOP/s": "r"},
            [
                [
                    versioned(one["name"].split()[0], one["about"]["versions"]),
                    "bf16" if one["reduced"] else "fp32",
                    f"{one['gflops']:.0f}",
                ]
                for one in document["ceilings"]
            ],
        ),
        *_phases([one for one in document["contestants"] if one["phases"]]),
    ]
    if document["left_out"]:
        lines.append("")
    lines += [f"Left out: {name} ({reason})." for name, reason in document["left_out"].items()]
    lines += [f"They disagree: {line}." for line in document["disagreements"]]
    return lines


def _contestants(document: Document) -> Iterator[str]:
    columns = {
        "contestant": "l", f"time / {document['contestants'][0]['name']}": "r", "minimum": "r", "seconds a step": "r",
        "p10 - p90": "r", "tokens/s": "r", "GFLOP": "r", "GFLOP/s": "r", "of ceiling": "r", "peak memory, MB": "r",
        "/ weights": "r", "without interpreter": "r",
    }  # fmt: skip
    rows = [
        [
            _name(one, document["kinds"][one["kind"]]["model"]["vocabulary"]),
            f"{one['ratio']:.2f}", f"{one['ratio_least']:.2f}", f"{one['median_seconds']:.3f}",
            f"{one['p10_seconds']:.3f} - {one['p90_seconds']:.3f}", f"{one['tokens_per_second']:.0f}",
            f"{one['gflop']:.3g}", f"{one['gflops']:.0f}", or_dash(one["fraction_of_ceiling"], "{:.0%}"),
            f"{one['peak_rss_bytes'] / MB:.0f}",
            f"{one['peak_rss_bytes'] / document['kinds'][one['kind']]['weight_bytes']:.1f}",
            f"{one['own_rss_bytes'] / MB:.0f}",
        ]
        for one in document["contestants"]
    ]  # fmt: skip
    return table(columns, rows)


def _phases(contestants: Sequence[Document]) -> Iterator[str]:
    """Nothing if no contestant tells its phases."""
    if not contestants:
        return
    names = list(dict.fromkeys(phase["name"] for one in contestants for phase in one["phases"]))
    yield ""
    yield (
        "The phases of a step: milliseconds (medians over rounds), and for phases with products their GFLOP and share "
        "of the ceiling. The update computes the products of gradients that are kept as two factors."
    )
    yield ""
    rows = []
    for one in contestants:
        phases = {phase["name"]: _phase(phase) for phase in one["phases"]}
        whole = _phase({"seconds": one["median_seconds"], **one})
        rows.append([one["name"], *(phases.get(name, "-") for name in names), whole])
    yield from table({"contestant": "l", **dict.fromkeys(names, "r"), "the step": "r"}, rows)


def _phase(phase: Document) -> str:
    parts = [f"{phase['seconds'] * 1e3:.3g} ms"]
    if phase["gflop"]:
        parts.append(f"{phase['gflop']:.3g} GFLOP")
    if phase["fraction_of_ceiling"] is not None:
        parts.append(f"{phase['fraction_of_ceiling']:.0%}")
    return ", ".join(parts)


def _name(contestant: Document, vocabulary: int) -> str:
    kernels, words = contestant["about"].get("kernels"), contestant["output_words"]
    more = [*([f"{kernels} kernels"] if kernels else []), *([f"{words:,} words"] if words < vocabulary else [])]
    return versioned(contestant["name"], contestant["about"].get("versions", {}), *more)
