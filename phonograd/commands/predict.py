"""`phonograd predict`: what a keyboard would suggest after a text."""

import dataclasses
from pathlib import Path
from typing import Annotated

import click

from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import COUNT, THREADS, arg, opt, own_options
from phonograd.commands.shared_options import PERSONAL, PREDICTION_WEIGHTS
from phonograd.console import Console, output_options
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.predictor import SUGGESTIONS
from phonograd.device_runtime.formats.manifest import open_artifacts


@click.command()
@own_options
@output_options
def predict(
    console: Console,
    artifacts: Annotated[Path, arg()],
    texts: Annotated[tuple[str, ...], arg(metavar="TEXT...")],
    prefix: Annotated[str, opt("The first letters of the word, as far as they are typed.", show_default=False)] = "",
    top: Annotated[int, opt("Words to show.", COUNT, metavar="K")] = SUGGESTIONS,
    weights: Annotated[Path | None, PREDICTION_WEIGHTS] = None,
    personal: Annotated[Path | None, PERSONAL] = None,
    threads: Annotated[int, opt(kind=THREADS)] = BackendOptions().threads,
) -> None:
    """Show the most probable next words after each TEXT, by a keyboard's predictor; "" is the start of a text.

    A TEXT is whole words; line feeds separate messages. Probabilities are among all words, whatever the prefix.
    """
    from phonograd.api.model import open_predictor

    folder = open_artifacts(artifacts)
    build_on_first_use(console)
    document: list[dict[str, object]] = []
    rows: list[dict[str, object]] = []
    with open_predictor(folder, weights=weights, personal=personal, options=BackendOptions(threads)) as predictor:
        for text in texts:
            predictor.reset()
            predictor.feed(text)
            words = predictor.suggest(prefix, top)
            document.append({"text": text, "prefix": prefix, "words": [dataclasses.asdict(one) for one in words]})
            rows += [
                {"text": text, "rank": rank, "word": one.word, "probability": one.probability}
                for rank, one in enumerate(words, 1)
            ] or [{"text": text, "rank": None, "word": None, "probability": None}]
    console.result(document, ("Next words", rows))
