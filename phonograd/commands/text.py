"""`phonograd corpus fetch` and `phonograd vocab build`: text before there is a model."""

from pathlib import Path

import click

from phonograd.commands.paths import INPUT, OUT_FOLDER, OUTPUT
from phonograd.console import Console, output_options

SHOWN_CHANGES = 20  # lines of a foreign vocabulary that a table shows


@click.group()
def corpus() -> None:
    """Get text to try phonograd with."""


@corpus.command()
@click.option("--out", type=OUT_FOLDER, required=True, help="Folder for the texts.")
@output_options
def fetch(console: Console, out: Path) -> None:
    """Fetch tweets, editorials and reviews (MIT licence) and split them into users and general text."""
    from phonograd.demo.corpus import fetch_corpus
    from phonograd.device_runtime.text.messages import read_messages

    console.say("fetching the source distribution of vaderSentiment 3.3.2 through pip")
    texts = fetch_corpus(out)
    general = [texts.general_train, texts.general_valid, texts.general_test]
    paths = [*general, texts.users_test, texts.words, *texts.users]
    rows = [{"text": str(path), "messages": len(read_messages(path)), "bytes": path.stat().st_size} for path in paths]
    console.result(rows, ("Corpus", rows))


@click.group()
def vocab() -> None:
    """Build and import vocabularies."""


@vocab.command()
@click.argument("texts", type=INPUT, nargs=-1, required=True)
@click.option("--size", type=click.IntRange(3), default=30_000, help="Number of words, including <unk> and <eos>.")
@click.option("--reserve", is_flag=True, help="Add <reserved-N> words if the texts have fewer words.")
@click.option("--out", type=OUTPUT, required=True, help="Where to write vocab.txt; the counts are written beside it.")
@output_options
def build(console: Console, texts: tuple[Path, ...], size: int, reserve: bool, out: Path) -> None:
    """Keep the most frequent words of TEXTS."""
    from phonograd.device_runtime.formats.outputs import require_apart
    from phonograd.export.vocabulary_builder import build_vocabulary, counts_path

    require_apart(counts_path(out), texts)
    counted = build_vocabulary(texts, size, reserve)
    counted.write(out)
    document = {"vocabulary": str(out), "words": size, "coverage": counted.coverage}
    console.result(document, ("Vocabulary", [document]))


@vocab.command("import")
@click.argument("source", type=INPUT)
@click.option("--out", type=OUTPUT, required=True, help="Where to write vocab.txt.")
@output_options
def import_(console: Console, source: Path, out: Path) -> None:
    """Convert a vocabulary from another tool (one word a line) to the order and spelling that phonograd needs.

    <unk> and <eos> come first, words that differ only in capitals are merged, and words that the tokenizer never
    produces are dropped. To convert weights trained with SOURCE: phonograd export --vocab OUT --weights FILE
    --weights-vocab SOURCE.
    """
    from phonograd.device_runtime.base.files import write_bytes
    from phonograd.export.vocabulary_import import import_vocabulary

    imported = import_vocabulary(source)
    write_bytes(out, imported.vocabulary.to_bytes())
    changes = [
        {
            "line": entry.line,
            "word": entry.word.decode("utf-8", "replace"),
            "became": None if entry.became is None else entry.became.decode("utf-8", "replace"),
        }
        for entry in (*imported.dropped, *imported.merged)
    ]
    document = {
        "vocabulary": str(out),
        "words": len(imported.vocabulary),
        "dropped": len(imported.dropped),
        "merged": len(imported.merged),
    }
    shown = [{**change, "became": change["became"] or "dropped"} for change in changes[:SHOWN_CHANGES]]
    title = f"Dropped and merged, {len(shown)} of {len(changes)} (all of them: --json)"
    console.result({**document, "changes": changes}, ("Vocabulary", [document]), *([(title, shown)] if shown else []))
