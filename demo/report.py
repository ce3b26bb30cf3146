"""The demo's report as one HTML page with its plots inside."""

import html
import io
from pathlib import Path
from typing import Any

from phonograd.demo.run import GIB, MIB, PAPER_EPOCH_SECONDS, demo_table
from phonograd.device_runtime.base.errors import MissingExtraError
from phonograd.device_runtime.base.files import write_bytes
from phonograd.server_agg.report.document import PAPER_GIB_PER_ROUND

try:
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt
except ImportError as error:
    raise MissingExtraError("the demo's report needs matplotlib; pip install 'phonograd[demo]'") from error

OURS, PAPER, OTHER = "#1b6ca8", "#b0b7bf", "#e08e2b"

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>phonograd demo: one federated round</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1d2329; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
td, th {{ padding: .3rem .9rem; border-bottom: 1px solid #dde2e7; }}
th {{ text-align: left; }} td + td, th + th {{ text-align: right; font-variant-numeric: tabular-nums; }}
.scroll {{ overflow-x: auto; }} figure {{ margin: 1.5rem 0; min-width: 0; }} svg {{ max-width: 100%; height: auto; }}
.plots {{ display: grid; gap: 1rem;
grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); }} .note {{ color: #5b6670; }}
</style></head><body>
<h1>One federated round</h1>
<p>{phones} phones, each one epoch over its user's tweets and as much general English, then one averaged model.
For comparison, the figures of Popov et al., <i>Distributed Fine-tuning of Language Models on Private Data</i>. They
used another corpus and a model pre-trained for 39 epochs, so compare only the direction of the perplexities. The bytes
can be compared directly.</p>
<div class="scroll"><table><tr><th>figure</th><th>here</th><th>paper</th></tr>{rows}</table></div>
<div class="plots">{plots}</div>
<p class="note">{seconds:.0f} seconds in total. {tools}</p>
</body></html>
"""


def write_report(path: Path, document: dict[str, Any]) -> None:
    """Write the page. Raises StorageError if writing fails."""
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row.values()) + "</tr>"
        for row in demo_table(document)
    )
    plots = (_bytes_plot, _quality_plot, _loss_plot, _seconds_plot)
    page = PAGE.format(
        phones=document["config"]["phones"],
        rows=rows,
        plots="".join(f"<figure>{_svg(plot, document)}</figure>" for plot in plots),
        seconds=document["seconds"],
        tools=html.escape(", ".join(f"{name} {version}" for name, version in document["artifacts"]["tools"].items())),
    )
    write_bytes(path, page.encode())


def _svg(plot: Any, document: dict[str, Any]) -> str:
    figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.12)  # room for the figures above the bars
    plot(axes, document)
    out = io.StringIO()
    figure.savefig(out, format="svg")
    plt.close(figure)
    text = out.getvalue()
    return text[text.index("<svg") :]


def _bytes_plot(axes: Any, document: dict[str, Any]) -> None:
    names = ["paper", *(row["codec"] for row in document["codecs"])]
    sizes = [PAPER_GIB_PER_ROUND, *(row["bytes_per_round"] / GIB for row in document["codecs"])]
    bars = axes.bar(names, sizes, color=[PAPER, *[OURS] * (len(names) - 1)])
    axes.bar_label(bars, fmt="%.2f")
    axes.set_title("Uploaded per round")
    axes.set_ylabel("GiB")


def _quality_plot(axes: Any, document: dict[str, Any]) -> None:
    texts = ("user", "general")
    for place, (when, colour) in enumerate((("before", PAPER), ("after", OURS))):
        values = [document[when][text]["perplexity"] for text in texts]
        bars = axes.bar(
            [n + (place - 0.5) * 0.38 for n in range(2)], values, 0.36, color=colour, label=f"{when} the round"
        )
        axes.bar_label(bars, fmt="%.0f")
    axes.set_xticks(range(2), [f"{text} text" for text in texts])
    axes.set_title("Perplexity, held-out text")
    axes.legend(frameon=False)


def _loss_plot(axes: Any, document: dict[str, Any]) -> None:
    for phone in document["phones"]:
        losses = phone["epoch"]["losses"]
        axes.plot(range(1, len(losses) + 1), losses, color=OURS, alpha=0.5, linewidth=1)
    axes.set_title("Training loss on each phone")
    axes.set_xlabel("step (200 tokens)")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("nats a token")


def _seconds_plot(axes: Any, document: dict[str, Any]) -> None:
    names = [phone["phone"].removeprefix("phone-") for phone in document["phones"]]
    seconds = [phone["epoch"]["seconds"] for phone in document["phones"]]
    axes.bar(names, seconds, color=OURS)
    axes.axhline(PAPER_EPOCH_SECONDS, color=OTHER, linestyle="--", label="the paper's phone, 140 s")
    peak = max(phone["epoch"]["peak_rss_bytes"] for phone in document["phones"]) / MIB
    axes.set_title(f"One epoch on this host's CPU (peak memory {peak:,.0f} MiB)")
    axes.set_xlabel("phone")
    axes.set_ylabel("seconds")
    axes.legend(frameon=False)
