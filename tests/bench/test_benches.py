from pathlib import Path

import pytest

from bench.aggregate import bench_aggregate
from bench.demo_corpus import Corpus, CorpusConfig, fetch_corpus, write_corpus
from bench.epoch import EpochBenchConfig, bench_epoch
from device_runtime.errors import TextError
from device_runtime.manifest import TrainingConfig
from device_runtime.vocabulary import Vocabulary
from export.artifacts import export_artifacts
from export.presets import preset_named
from export.torch_layout import seeded_weights


def test_an_epoch_is_measured_step_by_step(tmp_path: Path) -> None:
    model = preset_named("tiny").model
    words = Vocabulary((b"<unk>", b"<eos>", *(b"w%d" % n for n in range(98))))
    export_artifacts(tmp_path / "a", model, TrainingConfig(), seeded_weights(model, 0), words)
    result = bench_epoch(tmp_path / "a", "ort", EpochBenchConfig(steps=3, warm_up=1, threads=1))
    assert len(result.step_seconds) == 3
    assert result.median_seconds == sorted(result.step_seconds)[1]
    assert result.epoch_seconds == pytest.approx(20 * result.median_seconds)
    work = 6 * 200 * (model.parameters - 100 * 16)
    assert result.step_gflops == pytest.approx(work / result.median_seconds / 1e9)
    assert result.peak_rss_bytes > 10e6


def test_aggregation_is_measured_for_each_codec_and_count() -> None:
    results = bench_aggregate("tiny", (1, 3), ("full-f32", "rows-f32"))
    assert [(r.codec, r.updates) for r in results] == [
        ("full-f32", 1), ("full-f32", 3), ("rows-f32", 1), ("rows-f32", 3),
    ]  # fmt: skip
    assert results[2].update_bytes < results[0].update_bytes
    assert all(r.seconds_per_update > 0 for r in results)


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

    monkeypatch.setattr("bench.demo_corpus.subprocess.run", pip)
    with pytest.raises(TextError, match=message):
        fetch_corpus(tmp_path)
    assert Corpus(tmp_path).users == []
