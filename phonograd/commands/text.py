"""`phonograd corpus fetch` and `phonograd vocab build`: text before there is a model."""

from pathlib import Path
from typing import Annotated, Any

import click

from phonograd.commands.options import arg, opt, own_options
from phonograd.commands.paths import OUT_FOLDER, OUTPUT
from phonograd.console import Console, output_options

SHOWN_CHANGES = 20  # lines of a foreign vocabulary that a table shows


@click.group()
def corpus() -> None:
    """Get text to try phonograd with."""


@corpus.command()
@own_options
@output_options
def fetch(console: Console, out: Annotated[Path, opt("Folder for the texts.", OUT_FOLDER)]) -> None:
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
@own_options
@output_options
def build(
    console: Console,
    texts: Annotated[tuple[Path, ...], arg()],
    out: Annotated[Path, opt("Where to write vocab.txt; the counts are written beside it.", OUTPUT)],
    size: Annotated[int, opt("Number of words, including <unk> and <eos>.", click.IntRange(3))] = 30_000,
    reserve: Annotated[bool, "Add <reserved-N> words if the texts have fewer words."] = False,
) -> None:
    """Keep the most frequent words of TEXTS."""
    from phonograd.device_runtime.formats.outputs import require_apart
    from phonograd.export.vocabulary_builder import build_vocabulary, counts_path

    require_apart(counts_path(out), texts)
    counted = build_vocabulary(texts, size, reserve)
    counted.write(out)
    document = {"vocabulary": str(out), "words": size, "coverage": counted.coverage}
    console.result(document, ("Vocabulary", [document]))


@vocab.command("import")
@own_options
@output_options
def import_(
    console: Console, source: Annotated[Path, arg()], out: Annotated[Path, opt("Where to write vocab.txt.", OUTPUT)]
) -> None:
    """Convert a vocabulary from another tool to the order and spelling that phonograd needs.

    SOURCE has one word a line, alone or with numbers behind it (GloVe, word2vec and gensim, SentencePiece's .vocab); or
    it is a pickled list (fastai's itos).

    <unk> and <eos> come first, words that differ only in capitals are merged, and words that the tokenizer never
    produces are dropped. To convert weights trained with SOURCE: phonograd export --vocab OUT --weights FILE
    --weights-vocab SOURCE.
    """
    from phonograd.device_runtime.base.files import write_bytes
    from phonograd.export.vocabulary_import import import_vocabulary

    imported = import_vocabulary(source)
    write_bytes(out, imported.vocabulary.to_bytes())
    if imported.rows[0] < 0 or imported.rows[1] < 0:
        console.say(f"{source}: <unk> or <eos> is not there and was added; weights trained with it have no row for it")
    changes: list[dict[str, Any]] = []
    for entry in (*imported.dropped, *imported.merged):
        word, became = (part and part.decode("utf-8", "replace") for part in (entry.word, entry.became))
        changes.append({"line": entry.line, "word": word, "became": became})
    counts = {"dropped": len(imported.dropped), "merged": len(imported.merged)}
    document = {"vocabulary": str(out), "words": len(imported.vocabulary), **counts}
    shown = [{**change, "became": change["became"] or "dropped"} for change in changes[:SHOWN_CHANGES]]
    title = f"Dropped and merged, {len(shown)} of {len(changes)} (all of them: --json)"
    console.result({**document, "changes": changes}, ("Vocabulary", [document]), *([(title, shown)] if shown else []))
