"""Three servers as they are deployed: processes behind nginx, over PostgreSQL and S3, killed at random."""

from pathlib import Path

import pytest

from examples.cluster.run import compare
from tests.server_agg.faults import adds_up
from tests.support.command_line import Run

pytestmark = pytest.mark.cluster


def test_the_models_of_one_server_under_kills(tmp_path: Path) -> None:
    outcome = compare(replicas=3, rounds=2, phones=4, kills=4, folder=tmp_path)
    assert list(outcome.cluster) == list(outcome.alone)
    assert outcome.kills > 0
    *ended, last = outcome.report["rounds"]  # type: ignore[misc]
    assert [(entry["ending"], entry["accepted"]) for entry in ended] == [("full", 4)] * 2
    sizes = [sum(path.stat().st_size for path in tmp_path.glob(f"update-{number}-*")) for number in (1, 2)]
    assert [entry["useful_bytes"] for entry in ended] == sizes
    assert all(adds_up(entry) for entry in (*ended, last))


def test_the_first_administrator_is_made_in_the_ledger(database: str, phono: Run) -> None:
    assert phono("tokens", "list", "--ledger", database).code == 11  # there is no ledger yet
    assert phono("tokens", "add", "boss", "--role", "admin", "--ledger", database).out.startswith("pgd_")
    listed = phono("tokens", "list", "--ledger", database, "--json").document
    assert [(phone["name"], phone["role"]) for phone in listed["phones"]] == [("boss", "admin")]
    refused = phono("tokens", "list", "--ledger", "mysql://somewhere/x")
    assert (refused.code, "expected postgresql://" in refused.err) == (11, True)
