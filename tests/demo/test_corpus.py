from pathlib import Path

import pytest

from phonograd.demo.corpus import Corpus, CorpusConfig, fetch_corpus, write_corpus
from phonograd.device_runtime.base.errors import TextError

TEXTS = {
    "general": [b"general number %d" % n for n in range(500)],
    "tweets": [b"tweet number %d" % n for n in range(500)],
    "words": [b"happy", b"sad"],
}


def lines(path: Path) -> set[bytes]:
    return set(path.read_bytes().splitlines())


def test_users_and_held_out_texts_share_no_message(tmp_path: Path) -> None:
    config = CorpusConfig(users=3, bytes_per_user=1000)
    corpus = write_corpus(tmp_path, TEXTS, config)
    parts = [lines(path) for path in (*corpus.users, corpus.users_test)]
    assert len(parts) == 4
    assert sum(map(len, parts)) == len(set().union(*parts))
    assert all(1000 <= path.stat().st_size < 1030 for path in corpus.users)
    general = [lines(p) for p in (corpus.general_train, corpus.general_valid, corpus.general_test)]
    assert sum(map(len, general)) == len(set().union(*general)) == 500
    again = write_corpus(tmp_path / "again", TEXTS, config)
    assert [p.read_bytes() for p in again.users] == [p.read_bytes() for p in corpus.users]


def test_too_few_tweets_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(TextError, match="tweets ran out at user"):
        write_corpus(tmp_path, TEXTS, CorpusConfig(users=50, bytes_per_user=1000))


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no network"), (b"something else", "SHA-256 5d7c06e027fc… expected, found")]
)
def test_a_download_that_fails_or_differs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, message: str
) -> None:
    class Done:
        stderr = "ERROR: no network\n"

    def pip(line: list[str], **options: object) -> Done:
        if content is not None:
            (Path(line[-1]) / "vaderSentiment-3.3.2.tar.gz").write_bytes(content)
        return Done()

    monkeypatch.setattr("phonograd.demo.corpus.subprocess.run", pip)
    with pytest.raises(TextError, match=message):
        fetch_corpus(tmp_path)
    assert Corpus(tmp_path).users == []
