"""Phones of the API in a masked round of a server: what `phonograd train --server` does."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

import phonograd
from phonograd.api.rounds import join_round
from phonograd.device_runtime.base.errors import TookPartError
from phonograd.device_runtime.masked.phone import PhoneMasking, new_identity
from phonograd.server_agg.settings.masked import MaskedSettings
from tests.server_agg.test_report import final_report, until
from tests.server_agg.workshop import Workshop, run_server
from tests.simulation.test_published import ARTIFACTS

MASKED = MaskedSettings(cohort=3, min_cohort=3, clip=5.0, stage_seconds=60.0)
SERVED = cast(Workshop, SimpleNamespace(artifacts=ARTIFACTS))


def masking(folder: Path, phone: str) -> PhoneMasking:
    key = folder / f"{phone}.key"
    if not key.exists():
        new_identity(key)
    return PhoneMasking(folder / f"{phone}-state", key, min_cohort=3)


def test_three_phones_make_a_model_of_which_the_server_saw_the_sum(tmp_path: Path) -> None:
    with run_server(SERVED, tmp_path / "state", clients_per_round=3, weighting="equal", masked=MASKED) as server:

        def part(name: str) -> phonograd.UploadReceipt | None:
            joined = join_round(server.url, ARTIFACTS, name, cache=tmp_path / f"models-{name}")
            text = [f"w{len(name)} w{number % 7} w{number % 5}" for number in range(40)]
            grid = tmp_path / f"{name}.grid"
            phonograd.train(
                ARTIFACTS,
                text,
                weights=joined.weights,
                update=grid,
                masked=joined.opened.masked,
                max_unknown=1.0,
            )
            receipt = joined.take_part(grid, masking(tmp_path, name))
            with pytest.raises(TookPartError, match="has taken part in round 1"):
                joined.take_part(grid, masking(tmp_path, name))
            return receipt

        with ThreadPoolExecutor(3) as pool:
            receipts = list(pool.map(part, ("a", "b", "c")))
        assert {receipt.phone for receipt in receipts if receipt} == {"a", "b", "c"}
        until(lambda: server.coordinator.current.round == 2, "the end of round 1")
        ended = final_report(server)["rounds"][0]
    assert (ended["ending"], ended["accepted"]) == ("full", 3)
    assert server.coordinator.current.base_sha256 != ARTIFACTS.weights_sha256
