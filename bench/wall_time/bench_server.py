"""What a server does: the average of updates, and taking one in."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from phonograd.bench.ingest import UNREACHED_CLIENTS
from phonograd.bench.peers.fold import FoldAggregator
from phonograd.bench.uploads.bodies import BodyMaker
from phonograd.bench.uploads.receivers import phonograd_serve
from phonograd.bench.uploads.sending import Upload, post_update, send_at_once
from phonograd.bench.worker import AggregationJob
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts
from phonograd.device_runtime.update.codecs import DEFAULT_CODEC

ROUNDS = 6


@pytest.mark.parametrize("phones", [4], ids=["4 phones"])
@pytest.mark.parametrize("codec", [DEFAULT_CODEC])
def bench_fold(benchmark: Any, artifacts: Artifacts, updates: Mapping[str, Path], codec: str, phones: int) -> None:
    """The average of the phones' updates, read from their files."""
    job = AggregationJob("", str(artifacts.path(WEIGHTS)), [(str(updates[codec]), 1)] * phones, "")
    benchmark(FoldAggregator(job).aggregate)


@pytest.mark.parametrize("codec", [DEFAULT_CODEC])
def bench_ingest(benchmark: Any, artifacts: Artifacts, updates: Mapping[str, Path], place: Path, codec: str) -> None:
    """Upload an update until the answer: received, checked, synced, folded and in the ledger."""
    maker, phones = BodyMaker(updates[codec]), itertools.count()

    def next_upload() -> tuple[tuple[Upload], dict[str, object]]:
        phone = next(phones)
        return (post_update(maker.body(phone, 1, maker.info.base_sha256), f"phone-{phone}"),), {}

    with phonograd_serve(artifacts.folder, place / "state", UNREACHED_CLIENTS) as server:
        benchmark.pedantic(lambda upload: send_at_once(server.port, [upload]), setup=next_upload, rounds=ROUNDS)
