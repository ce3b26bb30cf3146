"""The section of the page of results about predictions."""

from collections.abc import Mapping
from typing import Any

from phonograd.bench.markdown import MB, environment_line, or_dash, table


def predict_section(document: Mapping[str, Any]) -> list[str]:
    """Its lines."""
    model, ways = document["model"], document["ways"]
    columns = {
        "way": "l", "ms a word": "r", "p90": "r", "times faster": "r", "ms a letter": "r", "ms to open": "r",
        "own memory, MB": "r", "weights, MB": "r", "KSS": "r", "perplexity": "r",
        "with unknown words": "r",
    }  # fmt: skip
    rows = [
        [
            one["name"], f"{one['median_seconds'] * 1e3:.2f}", f"{one['p90_seconds'] * 1e3:.2f}",
            f"{one['ratio']:.1f}", f"{one['letter_seconds'] * 1e3:.3f}", f"{one['open_seconds'] * 1e3:.0f}",
            f"{one['own_rss_bytes'] / MB:.0f}", f"{one['weight_bytes'] / MB:.0f}",
            or_dash(one["kss"], "{:.2%}"), or_dash(one["perplexity"], "{:.2f}"),
            or_dash(one.get("perplexity_with_unknown"), "{:.2f}"),  # older results have none
        ]
        for one in ways
    ]  # fmt: skip
    text = document["text"]
    quality = (
        f"Keystroke savings and perplexity on {document['tokens']:,} tokens of {text}, read as one text."
        if text
        else "Without a text, words are random."
    )
    return [
        f"## A prediction: {model['cell'].upper()} {model['layers']}x{model['hidden']}, {model['vocabulary']:,} words",
        "",
        environment_line(document),
        "",
        f"From a word to three suggestions for the next one, median of {len(ways[0]['word_seconds'])} words; the ways "
        f"take turns. Model.predict reads the last {document['context']} words each time, a predictor only the new "
        "one. A letter: three suggestions for the first one or two letters of that word. Own memory: peak, mapped "
        f"weights included, without the interpreter. {quality}",
        "",
        *table(columns, rows),
    ]
