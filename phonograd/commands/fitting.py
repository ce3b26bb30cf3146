"""Warnings of texts and vocabularies that do not fit each other, or how text is split."""

from collections.abc import Iterable
from pathlib import Path

from phonograd.console import Console
from phonograd.device_runtime.text.rehearsal import unknown_share
from phonograd.device_runtime.text.vocabulary import Vocabulary

# A larger share of unknown words, and a text is likely not what the model is for; the phone command's too.
WARN_UNKNOWN_SHARE = 0.3


def warn_of_text(console: Console, vocabulary: Vocabulary, text: Path | str, messages: Iterable[bytes]) -> None:
    """Warn of messages that are not all UTF-8, or of whose words the vocabulary lacks many."""
    messages = list(messages)
    warn_of_unknown(console, text, unknown_share(vocabulary.encode(messages)))
    warn_of_invalid(console, text, invalid_share(messages))


def invalid_share(messages: Iterable[bytes]) -> float:
    """The share of bytes that are part of no UTF-8 character."""
    text = b"".join(messages)
    return 1 - len(text.decode("utf-8", "ignore").encode()) / max(1, len(text))


def warn_of_invalid(console: Console, text: Path | str, share: float) -> None:
    """Warn of a text of whose bytes this share is not UTF-8."""
    if share > 0:
        console.say(
            f"phonograd: warning: {text}: {100 * share:.2g} % of the bytes are not UTF-8; is it Latin-1 (convert it "
            "with: iconv -f LATIN1 -t UTF-8), or no text?"
        )


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
