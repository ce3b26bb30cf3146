"""Warnings of texts and vocabularies that do not fit each other, or how text is split."""

from collections.abc import Iterable
from pathlib import Path

from phonograd.console import Console
from phonograd.device_runtime.text.rehearsal import unknown_share
from phonograd.device_runtime.text.vocabulary import Vocabulary

# A larger share of unknown words, and a text is likely not what the model is for; the phone command's too.
WARN_UNKNOWN_SHARE = 0.3


def warn_of_text(console: Console, vocabulary: Vocabulary, text: Path | str, messages: Iterable[bytes]) -> None:
    """Warn of messages of whose words the vocabulary lacks many."""
    warn_of_unknown(console, text, unknown_share(vocabulary.encode(messages)))


def warn_of_unknown(console: Console, text: Path | str | None, share: float | None) -> None:
    """Warn of a text of whose words this share is unknown, if that is a large one."""
    if share is not None and share > WARN_UNKNOWN_SHARE:
        console.say(
            f"phonograd: warning: {text}: {share:.0%} of the words are unknown to the vocabulary; is it UTF-8, and in "
            "the model's language?"
        )


def warn_of_misfit(console: Console, vocabulary: Vocabulary) -> None:
    """Warn of words that no text has as one token."""
    from phonograd.export.vocabulary_import import misfit

    for odd in misfit(vocabulary):
        console.say(f"phonograd: warning: {odd}")
