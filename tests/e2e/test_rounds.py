"""What a server's operator does after the first rounds: who sent what, which models there are, and going back."""

import csv
import io
from pathlib import Path

import pytest

from phonograd.device_runtime.base.files import sha256_of_file
from tests.support.command_line import Run, Workplace
from tests.support.serving import serving
from tests.support.waiting import until


@pytest.fixture(scope="module")
def update(workplace: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from phonograd.cli import phonograd
    from phonograd.console import run

    path = tmp_path_factory.mktemp("update") / "user.update"
    arguments = ("train", workplace.artifacts, "--user", workplace.user, "--update", path, "--json", "--quiet")
    assert run(phonograd, [*map(str, arguments)]) == 0
    return path


def test_phones_models_and_going_back(phono: Run, workplace: Workplace, update: Path, tmp_path: Path) -> None:
    exported = sha256_of_file(workplace.artifacts / "weights.safetensors")
    with serving(workplace.artifacts, tmp_path / "state", "--clients-per-round", "1") as url:
        assert phono("report", "--server", url, "--project", "10", "300").code == 2
        first = phono("upload", update, "--server", url, "--phone", "p1", "--json").document
        assert first["round_closed"]
        assert phono("upload", update, "--server", url, "--phone", "p2").code == 8  # late

        (one,) = phono("report", "--server", url, "--round", "1", "--json").document
        assert (one["phone"], one["state"], one["useful_bytes"]) == ("p1", "accepted", update.stat().st_size)
        assert "p2" in phono("report", "--server", url, "--round", "2").out
        lines = list(csv.DictReader(io.StringIO(phono("report", "--server", url, "--csv").out)))
        assert [(line["round"], line["accepted"], line["late"]) for line in lines] == [("1", "1", "0"), ("2", "0", "1")]

        def projected_bytes() -> int:
            document = phono("report", "--server", url, "--project", "10", "300", "--json").document
            return int(document["projection"]["up_bytes"])

        until(lambda: projected_bytes() > 3000 * update.stat().st_size, "the heads of the uploads in the report")

        # The other server is asked as its owner, who is this user: no token is given, and this one's goes nowhere.
        comparison = phono("report", "--server", url, "--compare", url, "--json").document["comparison"]
        assert [entry["up_bytes"]["ratio"] for entry in comparison["rounds"]] == [1, 1]

        models = phono("models", "--server", url, "--json").document
        assert [(model["round"], model["parent_sha256"]) for model in models] == [(0, None), (1, exported)]
        assert models == phono("models", "--state", tmp_path / "state", "--json").document
        fetched = tmp_path / "fetched.safetensors"
        assert phono("models", "--server", url, "--fetch", exported[:10], "--out", fetched).code == 0
        assert fetched.read_bytes() == (workplace.artifacts / "weights.safetensors").read_bytes()

        local = tmp_path / "local.safetensors"
        local.write_bytes(fetched.read_bytes())
        pulled = phono("pull", local, "--server", url, "--json").document
        assert (pulled["sha256"], pulled["changed"]) == (models[1]["sha256"], True)
        assert sha256_of_file(local) == models[1]["sha256"]
        assert not phono("pull", local, "--server", url, "--json").document["changed"]
        assert phono("pull", local, "--server", url, "--base", tmp_path, "--json").code == 6
        link = phono("report", "--server", url, "--json").document["rounds"][0]["link_bytes"]
        assert pulled["received_bytes"] == min(link or models[1]["bytes"], models[1]["bytes"])

        back = phono("rollback", "0", "--server", url, "--json").document
        assert (back["round"], back["base_sha256"], back["accepted"]) == (3, exported, 0)
        rounds = phono("report", "--server", url, "--json").document["rounds"]
        assert [(entry["rolled_back"], entry["ending"]) for entry in rounds] == [
            (True, "full"),
            (True, "rollback"),
            (False, None),
        ]
        # What p2 learned from the exported model is of today's model again.
        again = phono("upload", update, "--server", url, "--phone", "p2", "--json").document
        assert (again["round"], again["round_closed"]) == (3, True)

        assert phono("rollback", "9", "--server", url).code == 8
        held = phono("rollback", "0", "--state", tmp_path / "state")
        assert (held.code, "another server uses this state folder; stop it" in held.err) == (11, True)
        assert "round 99: not here" in phono("report", "--server", url, "--round", "99").err
        assert phono("models", "--server", url, "--fetch", "no-hash", "--out", fetched).code == 2
    back = phono("rollback", "0", "--state", tmp_path / "state", "--json").document
    assert back == {"round": 5, "base_sha256": exported}
    assert phono("rollback", "9", "--state", tmp_path / "state").code == 8
    assert phono("discard", "1", "--state", tmp_path / "state").code == 8
    (entry,) = phono("tokens", "audit", "--state", tmp_path / "state", "--limit", "1", "--json").document["entries"]
    assert (entry["action"], entry["subject"]) == ("rollback", "to round 0")
