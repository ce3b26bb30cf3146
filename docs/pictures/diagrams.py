"""The diagrams of README and docs: `python -m docs.pictures.diagrams` draws them, in the checkout's root.

Tests hold the files to this code, and states and stages to the product's.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

from docs.pictures.diagram import Arrow, Box, Diagram, draw
from phonograd.pages.plots import COLOURS, logarithmic, svg_file

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parents[1] / "phonograd/papers/results/codecs.json"

DIAGRAMS = {
    "loop": Diagram(
        "A model goes to the phones, their updates to the server, which averages them into the next model",
        {
            "export": Box(0.5, 0, "your PyTorch model,\nexported once"),
            "text": Box(0, 1, "what the user writes\nstays on the phone", "phone"),
            "phone": Box(0, 2, "phone: trains\none epoch at night", "phone"),
            "server": Box(1, 2, "server: checks and\naverages updates", "server"),
            "next": Box(1, 1, "the next model", "server"),
            "strip": Box(0, 3, "keyboard: suggests\nthe next words", "phone"),
            "report": Box(1, 3, "report: seconds,\nmemory, bytes", "server"),
        },
        (
            Arrow("export", "next", "first model"),
            Arrow("text", "phone"),
            Arrow("phone", "server", "update"),
            Arrow("server", "next"),
            Arrow("next", "phone", "model"),
            Arrow("phone", "strip"),
            Arrow("server", "report"),
        ),
        width=160,
    ),
    "app-round": Diagram(
        "The stages of a phone's round in an app, and which job leads to the next one",
        {
            "IDLE": Box(0, 0, "IDLE\nno round"),
            "FETCHING": Box(1, 0, "FETCHING\nthe model", "server"),
            "READY": Box(1, 1, "READY\nmodel is here", "server"),
            "TRAINING": Box(1, 2, "TRAINING\ntext is copied", "phone"),
            "TRAINED": Box(0, 2, "TRAINED\ntext copy deleted", "phone"),
            "SENDING": Box(0, 1, "SENDING\nthe update", "server"),
        },
        (
            Arrow("IDLE", "FETCHING", "RoundJob"),
            Arrow("FETCHING", "READY", "RoundJob"),
            Arrow("READY", "TRAINING", "TrainingJob"),
            Arrow("TRAINING", "TRAINED", "TrainingJob"),
            Arrow("TRAINED", "SENDING", "RoundJob"),
            Arrow("SENDING", "IDLE", "receipt, or refused"),
        ),
        gap=(86, 46),
    ),
    "strip": Diagram(
        "What the keyboard's strip shows while words are written, and the call behind it",
        {
            "empty": Box(0, 0, "after a word\nsee you | tomorrow · at · soon", "phone"),
            "prefix": Box(0, 1, "letters typed\nsee you to | tomorrow · today · to", "phone"),
            "slip": Box(0, 2, "a slip of a finger\nsee you tomorow | tomorrow", "phone"),
            "learned": Box(0, 3, "the line was sent\nits words may come next time", "phone"),
        },
        (
            Arrow("empty", "prefix", 'suggest("to")'),
            Arrow("prefix", "slip", 'suggest("tomorow"), slips allowed'),
            Arrow("slip", "learned", 'learn("see you tomorrow")'),
        ),
        width=290,
    ),
    "server-round": Diagram(
        "A round's life on the server",
        {
            "open": Box(0, 0, "open\nupdates come in", "server"),
            "closing": Box(0, 1, "closing\na model is made", "server"),
            "closed": Box(0, 2, "closed: full\nor deadline", "store"),
            "failed": Box(1, 1, "failed\nupdates are kept"),
            "rollback": Box(1, 0, "rollback\nupdates discarded"),
            "next": Box(0.5, 3, "the next round opens", "server"),
        },
        (
            Arrow("open", "closing", "enough, or the deadline"),
            Arrow("closing", "closed", "the model is published"),
            Arrow("closing", "failed", "no model", dashed=True),
            Arrow("open", "rollback", "operator", dashed=True),
            Arrow("closed", "next"),
            Arrow("failed", "next", "from the same model"),
        ),
        width=165,
        gap=(76, 46),
    ),
    "masked-stages": Diagram(
        "The stages of a masked round",
        {
            "gathering": Box(0, 1, "gathering\nphones send keys", "phone"),
            "drawing": Box(0, 2, "drawing\nwho is whose neighbour", "phone"),
            "sharing": Box(0, 3, "sharing\nsealed shares of secrets", "phone"),
            "uploading": Box(1, 3, "uploading\nmasked updates", "phone"),
            "agreeing": Box(1, 2, "agreeing\nwhose update came", "phone"),
            "answering": Box(1, 1, "answering\nself masks and shares", "phone"),
            "over": Box(1, 0, "over\nserver knows the sum", "server"),
        },
        (
            Arrow("gathering", "drawing", "the cohort is fixed"),
            Arrow("drawing", "sharing"),
            Arrow("sharing", "uploading"),
            Arrow("uploading", "agreeing"),
            Arrow("agreeing", "answering", "enough have signed"),
            Arrow("answering", "over", "masks cancel"),
        ),
        width=188,
        gap=(40, 46),
    ),
    "topologies": Diagram(
        "One server with its folder; several servers over PostgreSQL and an object store",
        {
            "phones1": Box(0, 0, "phones", "phone"),
            "one": Box(0, 1.5, "one server", "server"),
            "folder": Box(0, 3, "state folder:\nSQLite, models", "store"),
            "phones": Box(1.5, 0, "phones", "phone"),
            "nginx": Box(1.5, 1, "nginx, or a\nload balancer"),
            "a": Box(1, 2, "server 1", "server"),
            "b": Box(2, 2, "server 2, ...", "server"),
            "ledger": Box(1, 3, "PostgreSQL:\nthe ledger", "store"),
            "store": Box(2, 3, "S3: models,\nupdates", "store"),
        },
        (
            Arrow("phones1", "one", "HTTPS"),
            Arrow("one", "folder"),
            Arrow("phones", "nginx", "HTTPS"),
            *(Arrow("nginx", server) for server in "ab"),
            *(Arrow(server, place) for server in "ab" for place in ("ledger", "store")),
        ),
        width=128,
        gap=(30, 46),
    ),
}


def codecs() -> str:
    """Size against perplexity: what eight rounds in each codec cost and brought (`phonograd reproduce codecs`)."""
    rows = json.loads(RESULTS.read_text("utf-8"))["rows"]
    points = {name: (row["MB up a round"][0], row["user perplexity"][0]) for name, row in rows.items()}
    words = "\n".join(f"{name}: {size:g} MB, perplexity {perplexity:g}" for name, (size, perplexity) in points.items())
    return svg_file([partial(_codecs, points=points)], words)


def _codecs(axes: Any, points: dict[str, tuple[float, float]]) -> None:
    for colour, (name, (size, perplexity)) in zip(COLOURS, points.items(), strict=False):
        axes.plot([size], [perplexity], "o", ms=9, color=colour, label=name)
    axes.set(xlabel="MB up a round of ten phones", ylabel="new users' perplexity", ylim=(280, 300), xlim=(1, 2000))
    logarithmic(axes, "x")


def main() -> None:
    """Draw all."""
    for name, diagram in DIAGRAMS.items():
        (FOLDER / f"{name}.svg").write_text(draw(diagram), "utf-8")
    (FOLDER / "codecs.svg").write_text(codecs(), "utf-8")


if __name__ == "__main__":
    main()
