"""Three servers as they are deployed: processes behind nginx, over PostgreSQL and S3, killed at random."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from examples.cluster.run import compared
from examples.cluster.services import postgresql
from tests.server_agg.faults import adds_up

pytestmark = pytest.mark.cluster


def test_the_models_of_one_server_under_kills(tmp_path: Path) -> None:
    outcome = compared(replicas=3, rounds=3, phones=4, kills=8, folder=tmp_path)
    assert list(outcome.cluster) == list(outcome.alone)
    assert outcome.kills > 0
    *ended, last = outcome.report["rounds"]  # type: ignore[misc]
    assert [(entry["ending"], entry["accepted"]) for entry in ended] == [("full", 4)] * 3
    sizes = [sum(path.stat().st_size for path in tmp_path.glob(f"update-{number}-*")) for number in (1, 2, 3)]
    assert [entry["useful_bytes"] for entry in ended] == sizes
    assert all(adds_up(entry) for entry in (*ended, last))


def test_the_first_administrator_is_made_in_the_ledger() -> None:
    def phonograd(*options: str) -> "subprocess.CompletedProcess[str]":
        command, root = [sys.executable, "-m", "phonograd", *options], Path(__file__).parents[2]
        return subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)

    with postgresql() as url:
        assert phonograd("tokens", "list", "--ledger", url).returncode == 11  # there is no ledger yet
        token = phonograd("tokens", "add", "boss", "--role", "admin", "--ledger", url)
        assert token.stdout.startswith("pgd_"), token.stderr
        listed = json.loads(phonograd("tokens", "list", "--ledger", url, "--json").stdout)
        assert [(phone["name"], phone["role"]) for phone in listed["phones"]] == [("boss", "admin")]
    refused = phonograd("tokens", "list", "--ledger", "mysql://somewhere/x")
    assert (refused.returncode, "expected postgresql://" in refused.stderr) == (11, True)
