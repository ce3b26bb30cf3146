"""Phones of the API in a masked round of a server: what `phonograd train --server` does."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import phonograd
from phonograd.api.rounds import JoinedRound, join_round
from phonograd.device_runtime.base.errors import TookPartError
from phonograd.device_runtime.masked.phone import PhoneMasking, new_identity, require_new_model
from phonograd.server_agg.masked import round as round_
from phonograd.server_agg.masked.round import MaskedRound
from phonograd.server_agg.settings.masked import MaskedSettings
from tests.server_agg.http_uploads import final_report
from tests.server_agg.workshop import RunningServer, Workshop, run_server
from tests.simulation.test_published import ARTIFACTS
from tests.support.command_line import Run, phono
from tests.support.waiting import until

__all__ = ["phono"]

MASKED = MaskedSettings(cohort=3, min_cohort=3, clip=5.0, stage_seconds=60.0)
NAMES = ("a", "b", "c")
SERVED = cast(Workshop, SimpleNamespace(artifacts=ARTIFACTS))


def masking(folder: Path, phone: str) -> PhoneMasking:
    key = folder / f"{phone}.key"
    if not key.exists():
        new_identity(key)
    return PhoneMasking(state=folder / f"{phone}-state", identity=key, min_cohort=3)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningServer]:
    monkeypatch.setattr(round_, "POLLS", MASKED.stage_seconds)  # phones ask each second, and not each eighth of a stage
    with run_server(SERVED, tmp_path / "state", clients_per_round=3, weighting="equal", masked=MASKED) as running:
        yield running


def join_and_train(server: RunningServer, name: str, folder: Path) -> tuple[JoinedRound, Path]:
    """A phone that has a place in the open round, and its grid update."""
    joined, grid = join_round(server.url, ARTIFACTS, name, cache=folder / f"models-{name}"), folder / f"{name}.grid"
    text = [f"w{ord(name)} w{number % 7} w{number % 5}" for number in range(40)]
    settings = phonograd.TrainSettings(weights=joined.weights, masked=joined.opened.masked, max_unknown=1.0)
    phonograd.train(ARTIFACTS, text, settings, update=grid)
    return joined, grid


def test_three_phones_make_a_model_of_which_the_server_saw_the_sum(server: RunningServer, tmp_path: Path) -> None:
    def part(name: str) -> phonograd.UploadReceipt | None:
        joined, grid = join_and_train(server, name, tmp_path)
        receipt = joined.take_part(grid, masking(tmp_path, name))
        with pytest.raises(TookPartError, match="has taken part in round 1"):
            joined.take_part(grid, masking(tmp_path, name))
        return receipt

    with ThreadPoolExecutor(3) as pool:
        receipts = list(pool.map(part, NAMES))
    assert {receipt.phone for receipt in receipts if receipt} == set(NAMES)
    until(lambda: server.coordinator.current.round == 2, "the end of round 1")
    ended = final_report(server)["rounds"][0]
    assert (ended["ending"], ended["accepted"]) == ("full", 3)
    assert server.coordinator.current.base_sha256 != ARTIFACTS.weights_sha256
    phone = masking(tmp_path, "a")
    for base, number in ((ARTIFACTS.weights_sha256, 1), ("0" * 64, 2)):
        require_new_model(phone, base, number)
    with pytest.raises(TookPartError, match="this phone has sent a masked update of model .* which round 2 has again"):
        require_new_model(phone, ARTIFACTS.weights_sha256, 2)


def test_who_has_a_key_for_masked_rounds_sends_nothing_else(tmp_path: Path, phono: Run) -> None:
    """Whatever a server says of its round."""
    new_identity(tmp_path / "phone.key")
    (tmp_path / "text").write_text("w1 w2 w3\n" * 20)
    with run_server(SERVED, tmp_path / "state", clients_per_round=4) as server:
        line = ["train", ARTIFACTS.folder, "--user", tmp_path / "text", "--server", server.url, "--phone", "a"]
        done = phono(*line, "--set", f"masked.identity={tmp_path / 'phone.key'}", "--set", "training.max_unknown=1")
        assert (done.code, "round 1 is not masked" in done.err) == (8, True), done.err
        assert server.coordinator.current.accepted == 0


def test_phones_take_part_in_the_round_after_a_failed_one_with_the_same_update(
    server: RunningServer, tmp_path: Path
) -> None:
    parts = {name: join_and_train(server, name, tmp_path) for name in NAMES}

    def part(name: str) -> phonograd.UploadReceipt | None:
        joined, grid = parts[name]
        return joined.take_part(grid, masking(tmp_path, name))

    with ThreadPoolExecutor(3) as pool:
        first = [pool.submit(part, name) for name in NAMES[:2]]
        masked = server.coordinator.round.aggregator.stages
        assert isinstance(masked, MaskedRound)
        until(lambda: len(masked.facts.messages["keys"]) == 2, "the first two phones")
        masked.failure = "in a test"
        until(lambda: server.coordinator.current.round == 2, "the next round")
        receipts = [done.result() for done in (*first, pool.submit(part, NAMES[2]))]
    assert [(receipt.phone, receipt.round) for receipt in receipts if receipt] == [(name, 2) for name in NAMES]
    until(lambda: server.coordinator.current.round == 3, "the end of round 2")
    assert server.coordinator.current.base_sha256 != ARTIFACTS.weights_sha256
