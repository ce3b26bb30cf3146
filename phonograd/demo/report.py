"""The demo's report as one HTML page with its plots inside."""

from functools import partial
from pathlib import Path
from typing import Any

from phonograd.demo.run import GIB, MIB, PAPER_EPOCH_SECONDS, demo_table
from phonograd.pages.plots import svg, write_page
from phonograd.server_agg.report.document import PAPER_GIB_PER_ROUND

OURS, PAPER, OTHER = "#1b6ca8", "#b0b7bf", "#e08e2b"
ABOVE_BARS = 0.12  # room for their figures

ABOUT = """{phones} phones, each one epoch over its user's tweets and as much general English, then one averaged model.
For comparison, the figures of Popov et al., Distributed Fine-tuning of Language Models on Private Data. They
used another corpus and a model pre-trained for 39 epochs, so compare only the direction of the perplexities. The bytes
can be compared directly."""


def write_report(path: Path, document: dict[str, Any]) -> None:
    """Write the page. Raises StorageError if writing fails."""
    plots = (_bytes_plot, _quality_plot, _loss_plot, _seconds_plot)
    drawn = [svg(partial(plot, document=document), legend=False) for plot in plots]
    about = ABOUT.format(phones=document["config"]["phones"])
    tools = ", ".join(f"{name} {version}" for name, version in document["artifacts"]["tools"].items())
    note = f"{document['seconds']:.0f} seconds in total. {tools}"
    write_page(path, "One federated round", drawn, [("Figures", about, demo_table(document))], note)


def _bytes_plot(axes: Any, document: dict[str, Any]) -> None:
    names = ["paper", *(row["codec"] for row in document["codecs"])]
    sizes = [PAPER_GIB_PER_ROUND, *(row["bytes_per_round"] / GIB for row in document["codecs"])]
    bars = axes.bar(names, sizes, color=[PAPER, *[OURS] * (len(names) - 1)])
    axes.bar_label(bars, fmt="%.2f")
    axes.margins(y=ABOVE_BARS)
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
    axes.margins(y=ABOVE_BARS)
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
