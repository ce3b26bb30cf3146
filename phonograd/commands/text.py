"""`phonograd corpus fetch` and `phonograd vocab build|check|import`: text before there is a model."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import click

from phonograd.commands.fitting import warn_of_misfit, warn_of_unknown
from phonograd.commands.options import arg, opt, own_options, refuse
from phonograd.commands.paths import INPUT, OUT_FOLDER, OUTPUT
from phonograd.console import Console, output_options
from phonograd.pages import to_words

UNSPACED_SHARE = 0.1  # of the tokens, from which `vocab build` says that there is no lexicon
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
    out: Annotated[Path, opt("Where to write vocab.txt: words and their counts.", OUTPUT)],
    size: Annotated[int, opt("Number of words, including <unk> and <eos>.", click.IntRange(3))] = 30_000,
    lexicon: Annotated[
        Path | None, opt("Words with counts, by which text of a script without spaces is split: lines WORD COUNT.")
    ] = None,
    turkish: Annotated[bool, "I is the capital of the dotless i."] = False,
    words: Annotated[
        Path | None, opt("Count the words of this vocabulary, in its order, in place of the most frequent.", INPUT)
    ] = None,
    reserve: Annotated[bool, "Add <reserved-N> words if the texts have fewer words."] = False,
) -> None:
    """Keep the most frequent words of TEXTS, with their counts and how they are usually written."""
    from phonograd.device_runtime.formats.outputs import require_apart
    from phonograd.export.vocabulary_builder import build_vocabulary, coverage, unspaced_share

    if words is not None:
        refuse("--words has all words, and how their text is split", "size", "lexicon", "turkish", "reserve")
    require_apart(out, [*texts, *filter(None, (lexicon, words))])
    vocabulary = build_vocabulary(texts, size, reserve, lexicon, turkish, words)
    if lexicon is None and (share := unspaced_share(vocabulary)) > UNSPACED_SHARE:
        console.say(
            f"{share:.0%} of the text is in a script without spaces: its graphemes are the words; give a --lexicon"
        )
    vocabulary.write(out)
    document = {"vocabulary": str(out), "words": len(vocabulary), "coverage": coverage(vocabulary)}
    console.result(document, ("Vocabulary", [to_words(document)]))


@vocab.command()
@own_options
@output_options
def check(console: Console, vocabulary: Annotated[Path, arg()], texts: Annotated[tuple[Path, ...], arg()]) -> None:
    """Show how much of TEXTS a VOCABULARY knows, and how well it knows which words have capitals.

    Capitals count in the middle of sentences, of words that it has. Recall is the share of the words with capitals that
    are shown as they are written, precision the share of the words shown with capitals that are written so.
    """
    from phonograd.device_runtime.text.messages import read_messages
    from phonograd.device_runtime.text.vocabulary import EOS, Vocabulary
    from phonograd.export.recasing import measure_recasing

    words = Vocabulary.load(vocabulary)
    warn_of_misfit(console, words)
    rows: list[dict[str, Any]] = []
    misses = []
    for path in texts:
        ids = words.encode(read_messages(path))
        known = float((ids > EOS).sum() / max(1, (ids != EOS).sum()))
        warn_of_unknown(console, path, 1 - known)
        found = measure_recasing(words, [path])
        rows.append({"text": str(path), "known": known, "precision": found.precision, "recall": found.recall})
        misses += [{"text": str(path), **dataclasses.asdict(miss)} for miss in found.misses]
    table = ("Written and shown otherwise, the commonest", misses[:SHOWN_CHANGES])
    named = {"precision": "shown capitals that are right", "recall": "right ones shown"}
    shown = [{named.get(name, name): value for name, value in to_words(row).items()} for row in rows]
    known_words = ("Words known, and their capitals", shown)
    console.result({"texts": rows, "misses": misses}, known_words, table)


@vocab.command("import")
@own_options
@output_options
def import_(
    console: Console,
    source: Annotated[Path, arg()],
    out: Annotated[Path, opt("Where to write vocab.txt.", OUTPUT)],
    turkish: Annotated[bool, "I is the capital of the dotless i."] = False,
) -> None:
    """Convert a vocabulary from another tool to the order and spelling that phonograd needs.

    SOURCE has one word a line, alone or with numbers behind it (counts, GloVe, word2vec and gensim, SentencePiece's
    .vocab); or it is a pickled list (fastai's itos).

    <unk> and <eos> come first, words are spelled as the tokenizer spells them, those that are then the same are merged,
    and words that it never produces are dropped. Counts are added up, those of dropped words to <unk>'s. To convert
    a model trained with SOURCE: phonograd export --model FILE --vocab OUT --set read.weights_vocab=SOURCE.
    """
    from phonograd.device_runtime.base.files import write_bytes
    from phonograd.export.vocabulary_import import import_vocabulary

    imported = import_vocabulary(source, turkish)
    write_bytes(out, imported.vocabulary.to_bytes())
    if imported.rows[0] < 0 or imported.rows[1] < 0:
        console.say(f"{source}: <unk> or <eos> is not there and was added; weights trained with it have no row for it")
    console.say(f"a model trained with {source} is exported with: --vocab {out} --set read.weights_vocab={source}")
    changes: list[dict[str, Any]] = []
    for entry in (*imported.dropped, *imported.merged, *imported.changed):
        word, became = (part and part.decode("utf-8", "replace") for part in (entry.word, entry.became))
        changes.append({"line": entry.line, "word": word, "became": became})
    counts = {name: len(getattr(imported, name)) for name in ("dropped", "merged", "changed")}
    document = {"vocabulary": str(out), "words": len(imported.vocabulary), **counts}
    shown = [{**change, "became": change["became"] or "dropped"} for change in changes[:SHOWN_CHANGES]]
    title = f"Dropped, merged and changed, {len(shown)} of {len(changes)} (all of them: --json)"
    tables = [("Vocabulary", [to_words(document)]), *([(title, shown)] if shown else [])]
    console.result({**document, "changes": changes}, *tables)
