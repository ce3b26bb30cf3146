from pathlib import Path

import numpy as np
import pytest

from phonograd.bench.results import Document, render
from phonograd.bench.upload import UploadBenchConfig, bench_upload
from phonograd.device_runtime.base.errors import TextError
from tests.support.margins import Margin

CODECS = ("full-f32", "rows-f32", "rot-q4", "rot-q1")


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, Path]:
    random = np.random.default_rng(0)
    found = {}
    for name in ("user-1", "user-2", "general", "test"):
        lines = [b" ".join(b"w%d" % number for number in random.integers(0, 98, 9)) for _ in range(60)]
        lines += [b"nowhere"] if name == "test" else []  # a word that the vocabulary lacks
        found[name] = tmp_path / f"{name}.txt"
        found[name].write_bytes(b"\n".join(lines))
    return found


def both(result: Document) -> list[float]:
    """Perplexities before the round, without unknown words and with them."""
    return [*result["before"].values(), *result["before_with_unknown"].values()]


@pytest.mark.learns
def test_a_round_in_each_codec(artifacts: Path, texts: dict[str, Path], margin: Margin, threads: int) -> None:
    users = (texts["user-1"], texts["user-2"])
    config = UploadBenchConfig(CODECS, users, texts["general"], (texts["test"], texts["test"]), threads=threads)
    result = bench_upload(artifacts, config)
    full, rows, four, one_bit = result["codecs"]
    assert (result["phones"], result["trained"], list(result["before"])) == (2, True, ["test", "test 2"])
    assert rows["perplexities"] == full["perplexities"]
    margin("perplexity after, of that before", full["perplexities"]["test"] / result["before"]["test"], high=0.99)
    assert four["perplexities"]["test"] == pytest.approx(full["perplexities"]["test"], rel=0.01)
    assert four["perplexities"] != full["perplexities"] != one_bit["perplexities"]
    assert one_bit["change"]["test"] == pytest.approx(
        one_bit["perplexities"]["test"] / full["perplexities"]["test"] - 1
    )
    assert 0.9 < full["ratio"] < 1 < four["ratio"] < one_bit["ratio"]
    assert all(one["encode_seconds"] > 0 < one["decode_seconds"] for one in result["codecs"])
    page = render({"upload.json": {**result, "command": "phonograd bench upload"}})
    assert f"| full-f32 | {full['bytes'] / 1e6:.3f} | 1.0 |" in page
    assert "2 phones, each trained on its own text:" in page
    assert result["before_with_unknown"]["test"] != result["before"]["test"]
    assert f"| before the round | - | - | - | - | {' | '.join(map('{:.2f}'.format, both(result)))} |" in page


def test_random_deltas_without_texts(artifacts: Path) -> None:
    result = bench_upload(artifacts, UploadBenchConfig(("full-f32", "delta-int8"), phones=3))
    assert (result["phones"], result["trained"], result["before"]) == (3, False, {})
    assert [one["perplexities"] for one in result["codecs"]] == [{}, {}]
    assert 3 < result["codecs"][1]["ratio"] < 10


def test_a_user_without_text_is_an_error(artifacts: Path, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_bytes(b"w1 w2\n")
    with pytest.raises(TextError, match="training text: "):
        bench_upload(artifacts, UploadBenchConfig(("full-f32",), (tmp_path / "short.txt",)))
