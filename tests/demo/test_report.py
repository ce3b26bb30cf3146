"""The demo's report, with every figure, on a phone's screen."""

from pathlib import Path

import pytest

from phonograd.demo.report import write_report
from tests.support.chromium import chromium

EPOCH = {
    "seconds": 1.0, "tokens": 9000, "user_share": 0.5, "learning_rate": 0.75, "loss_reduction": "sum_over_time",
    "clip_norm": 5.0, "peak_rss_bytes": 1 << 28, "losses": [7.0, 6.5], "update": {"nbytes": 1 << 20},
    "output_layer": {"kind": "full", "words": 30000},
}  # fmt: skip
SCORES = {text: {"perplexity": 100.0, "perplexity_with_unknown": 120.0, "kss": 0.6} for text in ("user", "general")}
DOCUMENT = {
    "config": {"phones": 2, "threads_per_phone": 1},
    "phones": [{"phone": f"phone-{number}", "epoch": EPOCH} for number in range(2)],
    "output_layers": [EPOCH],
    "before": SCORES,
    "after": SCORES,
    "codecs": [{"codec": codec, "bytes_per_phone": 3e7, "bytes_per_round": 3e8} for codec in ("rows-f32", "rot-q1")],
    "seconds": 300.0,
    "artifacts": {"parameters": 45_700_000, "tools": {"phonograd": "0.1.0", "a-tool-of-a-long-name": "1.2.3"}},
}


@pytest.mark.browser
def test_the_report_fits_a_phone(tmp_path: Path) -> None:
    write_report(tmp_path / "page.html", DOCUMENT)
    assert "<td>the same with unknown words</td><td>120.0</td>" in (tmp_path / "page.html").read_text("utf-8")
    with chromium(tmp_path / "profile") as tab:
        tab.open((tmp_path / "page.html").as_uri())
        assert tab.fits()
