"""Keystrokes that a keyboard's suggestions save, as its user sees them, with the words that it learns from them."""

from collections.abc import Callable, Sequence

from phonograd.device_runtime.engine.predictor import Predictor
from phonograd.device_runtime.text.tokenizer import plain_tokenizer


def keystroke_savings(
    predictor: Predictor, messages: Sequence[bytes], learn: bool, progress: Callable[[int, int], None] | None = None
) -> float:
    """Return paper P's eq. 5 over messages as a user writes them, one after the other.

    Unlike `evaluate`'s, it counts the predictor's own suggestions, so words that only the user has count too.
    learn: learn each piece between two spaces, into the personal words in use
    progress: called with (messages done, messages in all)
    """
    typed = characters = 0
    predictor.reset()
    for done, message in enumerate(messages, 1):
        for piece in message.split():
            place = predictor.state()
            for line in plain_tokenizer().lines("pg_tokenizer_tokens", piece):
                for word in line.decode("utf-8", "replace").split(" "):
                    characters += len(word)
                    typed += predictor.keystrokes(word)
                    predictor.feed(word)
            if learn:
                predictor.restore(place)
                predictor.learn(piece.decode("utf-8", "replace"))
        (predictor.learn if learn else predictor.feed)("\n")
        if progress is not None:
            progress(done, len(messages))
    return (characters - typed) / max(1, characters)
