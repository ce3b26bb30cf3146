"""`phonograd predict`: what a keyboard would suggest after a text."""

import dataclasses
from pathlib import Path
from typing import Annotated

import click

from phonograd.commands.fitting import warn_of_text
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import COUNT, THREADS, arg, opt, own_options
from phonograd.commands.paths import INPUT
from phonograd.commands.shared_options import PERSONAL, PREDICTION_WEIGHTS
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.errors import TextError, UsageError
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.predictor import SUGGESTIONS, Predictor, Shift, SuggestOptions
from phonograd.device_runtime.formats.manifest import VOCABULARY, open_artifacts
from phonograd.device_runtime.text.vocabulary import Vocabulary


@click.command()
@own_options
@output_options
def predict(
    console: Console,
    artifacts: Annotated[Path, arg()],
    texts: Annotated[tuple[str, ...], arg(metavar="TEXT...")],
    prefix: Annotated[str, opt("The first letters of the word, as far as they are typed.", show_default=False)] = "",
    top: Annotated[int, opt("Words to show.", COUNT, metavar="K")] = SUGGESTIONS,
    shift: Annotated[
        Shift, opt("Capitals that the shift key asks for: by-place is one at a sentence's start.")
    ] = SuggestOptions.shift,
    emoji: Annotated[bool, "Suggest emoji too."] = SuggestOptions.emoji,
    slips: Annotated[bool, "Suggest words whose beginning is one slip of a finger away too."] = SuggestOptions.slips,
    block: Annotated[Path | None, opt("Words that are never suggested, one a line.", INPUT)] = None,
    weights: Annotated[Path | None, PREDICTION_WEIGHTS] = None,
    personal: Annotated[Path | None, PERSONAL] = None,
    threads: Annotated[int, opt(kind=THREADS)] = BackendOptions().threads,
) -> None:
    """Show the most probable next words after each TEXT, by a keyboard's predictor with the model in ARTIFACTS.

    "" is the start of a text.

    A TEXT is whole words; line feeds separate messages. Probabilities are among all words, whatever the prefix.
    """
    from phonograd.api.model import open_predictor

    folder = open_artifacts(artifacts)
    options = SuggestOptions(shift, emoji, slips)
    build_on_first_use(console)
    document: list[dict[str, object]] = []
    rows: list[dict[str, object]] = []
    vocabulary = Vocabulary.load(folder.path(VOCABULARY), folder.manifest.model.vocabulary)
    warn_of_text(console, vocabulary, "TEXT", "\n".join(texts).encode("utf-8", "surrogateescape").split(b"\n"))
    with open_predictor(folder, weights=weights, personal=personal, options=BackendOptions(threads)) as predictor:
        if block is not None:
            _block(predictor, block)
        for text in texts:
            predictor.reset()
            predictor.feed(text)
            words = predictor.suggest(prefix, top, options)
            document.append({"text": text, "prefix": prefix, "words": [dataclasses.asdict(one) for one in words]})
            rows += [
                {"text": text, "rank": rank, "word": one.word, "probability": one.probability}
                for rank, one in enumerate(words, 1)
            ] or [{"text": text, "rank": None, "word": None, "probability": None}]
    console.result(document, ("Next words", rows))


def _block(predictor: Predictor, path: Path) -> None:
    """Block the words of a file. Raises TextError, and UsageError for a line of several words."""
    try:
        words = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TextError(f"{path}: words in UTF-8, one a line, expected; it cannot be read: {error}") from error
    try:
        predictor.block(words)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
