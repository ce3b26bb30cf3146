"""The section of the page of results about simulated rounds."""

from collections.abc import Mapping
from typing import Any

from phonograd.bench.markdown import MB, environment_line, remarks, table, versioned


def simulate_section(document: Mapping[str, Any]) -> list[str]:
    """Lines of Markdown."""
    model, phones = document["model"], document["phones"]
    columns = {
        "contestant": "l",
        "output words": "r",
        "precision": "l",
        "seconds a round": "r",
        "time / first": "r",
        "CPU seconds": "r",
        "CPU time / first": "r",
        "peak memory, MB": "r",
        "loss": "r",
    }
    rows = [
        [
            versioned(one["name"], one["versions"]),
            _words(one, model),
            one["precision"],
            f"{one['round_seconds']:.1f}",
            f"{one['ratio']:.2f}",
            f"{one['cpu_seconds']:.1f}",
            f"{one['cpu_ratio']:.2f}",
            f"{one['peak_pss_bytes'] / MB:.0f}",
            f"{one['loss']:.4f}",
        ]
        for one in document["contestants"]
    ]
    lines = [
        f"## A simulated round: {model['cell'].upper()} {model['layers']}x{model['hidden']}, "
        f"{model['vocabulary']:,} words, {phones} phones",
        "",
        environment_line(document),
        "",
        f"Each phone trains on {document['text_bytes']:,} bytes of its own and as much general text, words drawn by "
        f"Zipf's law, {document['tokens']:,} tokens in all. native and Flower train {document['workers']} phones at a "
        f"time, one thread each; torch has {document['workers']} threads. The second round of each run, "
        f"{document['rounds']} runs of each in turn; the loss is the first round's. CPU time and memory (PSS) are of "
        "all processes. phonograd writes each update to a file, and checks it before it is folded.",
        "",
        *table(columns, rows),
    ]
    return [*lines, *remarks(document)]


def _words(one: Mapping[str, Any], model: Mapping[str, Any]) -> str:
    drawn = one["output_sample"]
    return f"{model['vocabulary']:,}" if drawn is None else f"own and {drawn:,}"
