"""The state folder is the server's own: what else lies somewhere is not touched, and a failed start leaves nothing."""

import contextlib
import socket
import sqlite3
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import StorageError, WeightsError
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.publication import model_drafts
from phonograd.server_agg.storage.folder_claim import MARKER
from phonograd.server_agg.storage.state_folder import StateFolder
from tests.server_agg.coordinators import file_names, open_coordinator, send
from tests.server_agg.faults import raising
from tests.server_agg.workshop import Workshop, settings_with
from tests.support.command_line import Run, phono

__all__ = ["phono"]

SUBFOLDERS = ("updates", "incoming", "noise", "drafts", "optimizers", "models")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Somebody's folder, with folders named as a server's and a file in each."""
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o700)
    for name in SUBFOLDERS:
        (folder / name).mkdir()
        (folder / name / f"{'ab' * 32}.safetensors").write_text("mine")
    return folder


def below(folder: Path) -> dict[str, str | None]:
    return {
        str(path.relative_to(folder)): path.read_text("latin-1") if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("ledger", [False, True])
def test_a_folder_of_other_things_is_refused_untouched(mine: Path, ledger: bool, workshop: Workshop) -> None:
    """Even if another program's ledger is among them."""
    if ledger:
        with contextlib.closing(sqlite3.connect(mine / "ledger.sqlite")) as other:
            other.execute("CREATE TABLE accounts (id INTEGER)")
    before = below(mine)
    with pytest.raises(StorageError, match="an empty folder, or no folder; found drafts, incoming,"):
        Coordinator(workshop.artifacts, mine, settings_with())
    assert below(mine) == before


def test_nothing_is_deleted_through_a_symbolic_link(mine: Path, workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state):
        pass
    for name in SUBFOLDERS:
        (state / name).rename(state / "moved")
        (state / name).symlink_to(mine / name)
        with pytest.raises(StorageError, match=f"state/{name}: is a symbolic link, and the server would delete"):
            Coordinator(workshop.artifacts, state, settings_with())
        assert file_names(mine / name) == {f"{'ab' * 32}.safetensors"}
        (state / name).unlink()
        (state / "moved").rename(state / name)


def test_an_empty_folder_is_taken_and_marked(workshop: Workshop, state: Path) -> None:
    state.mkdir(mode=0o700)
    for _ in range(2):  # the second time it is known by its mark, whatever else has come into it
        with open_coordinator(workshop, state) as coordinator:
            assert coordinator.current.round == 1
        assert "deletes files in it" in (state / MARKER).read_text()
        (state / "notes.txt").write_text("mine")
    assert (state / "notes.txt").read_text() == "mine"


def test_a_folder_that_others_can_read_is_refused(workshop: Workshop, tmp_path: Path) -> None:
    state = tmp_path / "a state"
    with open_coordinator(workshop, state):
        pass
    for mode in (0o755, 0o750, 0o701):
        state.chmod(mode)
        with pytest.raises(
            StorageError, match=rf"other users can read it \(mode {mode:o}\).*; run: chmod 700 '/.*/a state'$"
        ):
            Coordinator(workshop.artifacts, state, settings_with())
    state.chmod(0o700)
    Coordinator(workshop.artifacts, state, settings_with()).close()


def test_files_that_the_server_did_not_name_are_not_deleted(workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state):
        pass
    for name in SUBFOLDERS:
        (state / name / "notes.txt").write_text("mine")
    with open_coordinator(workshop, state, settings_with(clients_per_round=1, models_kept=1)) as coordinator:
        send(coordinator, workshop.update(1), "a")
    for name in SUBFOLDERS:
        assert (state / name / "notes.txt").read_text() == "mine"


# A start that fails

refuse_weights = raising(WeightsError("weights: truncated"))


def test_a_failed_start_leaves_nothing_behind(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o700)
    # When folder, ledger and model are there.
    monkeypatch.setattr("phonograd.server_agg.rounds.aggregator.TensorFile", refuse_weights)
    for state in (tmp_path / "above" / "state", empty):
        with pytest.raises(WeightsError, match="truncated"):
            Coordinator(workshop.artifacts, state, settings_with())
    assert not (tmp_path / "above").exists()
    assert list(empty.iterdir()) == []


def test_a_failed_start_on_an_older_state_takes_nothing_away(
    workshop: Workshop, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_coordinator(workshop, state) as coordinator:
        send(coordinator, workshop.update(1), "a")
    with monkeypatch.context() as patch, pytest.raises(WeightsError, match="truncated"):
        patch.setattr("phonograd.server_agg.rounds.aggregator.TensorFile", refuse_weights)
        Coordinator(workshop.artifacts, state, settings_with())
    with open_coordinator(workshop, state) as coordinator:
        assert coordinator.current.accepted == 1


def test_a_start_where_another_one_begins_takes_nothing_away(tmp_path: Path) -> None:
    with contextlib.closing(StateFolder(tmp_path / "state")):
        with pytest.raises(StorageError, match="another server uses this state folder"):
            StateFolder(tmp_path / "state")
        assert (tmp_path / "state" / MARKER).is_file()


def test_a_start_removes_what_a_killed_server_left_of_a_model(tmp_path: Path) -> None:
    for _ in range(2):
        folder = StateFolder(tmp_path / "state")
        with model_drafts(folder) as drafts:
            assert [*drafts.weights.parent.iterdir()] == []
        for path in (drafts.weights, drafts.weights.with_suffix(".draft")):
            path.touch()
            path.with_name(f".{path.name}.0123abcd.partial").touch()
        folder.close()


def test_a_port_in_use_leaves_nothing_behind(phono: Run, workshop: Workshop, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = phono(
            "serve", "--artifacts", workshop.artifacts.folder, "--state", tmp_path / "state", "--port", port
        )
    assert (outcome.code, "cannot listen there" in outcome.err) == (13, True)
    assert not (tmp_path / "state").exists()


def test_enrolling_asks_for_a_state_folder_as_well(phono: Run, mine: Path, tmp_path: Path) -> None:
    before = below(mine)
    refused = phono("tokens", "add", "alice", "--state", mine)
    assert (refused.code, "an empty folder, or no folder" in refused.err) == (11, True)
    assert below(mine) == before
    assert phono("tokens", "add", "no name", "--state", tmp_path / "state").code != 0
    assert not (tmp_path / "state").exists()
    assert phono("tokens", "add", "alice", "--state", tmp_path / "state").code == 0
