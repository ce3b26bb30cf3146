"""The noise buffers of a server's run of dp-ftrl: what survives a kill, who can read them, and what harm is refused."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.server_agg.aggregation import next_model
from phonograd.server_agg.aggregation.privacy.ftrl.buffers import BLOCK, apply_seal
from phonograd.server_agg.rounds import opening
from phonograd.server_agg.rounds.live_round import LiveRound
from phonograd.server_agg.storage.state_folder import StateFolder
from phonograd.server_agg.storage.stores import store_at
from phonograd.server_agg.storage.tables import Model
from tests.server_agg.coordinators import file_names
from tests.server_agg.ftrl_runs import FTRL, end_round, give, serve_ftrl
from tests.server_agg.workshop import Clock, Workshop, client_of, run_server

pytestmark = pytest.mark.usefixtures("known_noise")


UNDISTURBED: list[Any] = []  # what `whole_run` gives without a kill, once it was made


class Killed(BaseException):
    """The server dies here."""


def kill_at(patch: pytest.MonkeyPatch, moment: str) -> None:
    """Die at a moment of the next publication, with nothing done after it."""
    move = StateFolder.move_into_place

    def die(*_: object, **__: object) -> None:
        raise Killed

    def move_and_die(folder: StateFolder, source: Path, target: Path) -> None:
        move(folder, source, target)
        if target.parent == (folder.models if moment == "model in place" else folder.buffers):
            raise Killed

    places: dict[str, tuple[object, str, object]] = {
        "model written": (next_model, "publish", die),
        "buffers in place": (StateFolder, "move_into_place", move_and_die),
        "model in place": (StateFolder, "move_into_place", move_and_die),
        "ledger not committed": (opening, "add_round", die),
        "ledger committed": (LiveRound, "load_after_end", die),
    }
    target, name, replacement = places[moment]
    patch.setattr(target, name, replacement)


def whole_run(workshop: Workshop, state: Path, moment: str | None, patch: pytest.MonkeyPatch) -> list[Any]:
    """The models and buffers of three rounds, whose second one is closed amid a kill."""
    clock, made = Clock(1e9), []
    with serve_ftrl(workshop, state, clock) as coordinator:
        give(workshop, coordinator, "phone1")
        end_round(coordinator, clock)
        old = file_names(coordinator.folder.buffers)
        give(workshop, coordinator, "phone2")
        if moment is not None:
            with patch.context() as context:
                kill_at(context, moment)
                clock.now += 101
                with pytest.raises(Killed):
                    coordinator.tick()
    with serve_ftrl(workshop, state, clock) as coordinator:
        if moment is None:
            end_round(coordinator, clock)
        assert coordinator.current.round == 3
        assert old.isdisjoint(file_names(coordinator.folder.buffers))
        assert file_names(coordinator.folder.noise_keys._folder) == {"3"}
        end_round(coordinator, clock)
        with coordinator.ledger.reading() as session:
            made = [(one.sha256, one.buffers_sha256) for one in session.query(Model).order_by(Model.round)]
        assert file_names(coordinator.folder.buffers) == {f"{made[-1][1]}.safetensors"}
        assert file_names(coordinator.folder.models) == {f"{model}.safetensors" for model, _ in made}
    return made


@pytest.mark.parametrize(
    "moment",
    ["model written", "buffers in place", "model in place", "ledger not committed", "ledger committed"],
)
def test_a_kill_while_a_round_is_published_changes_no_bit(
    workshop: Workshop, state: Path, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not UNDISTURBED:
        UNDISTURBED.extend(whole_run(workshop, state / "undisturbed", None, monkeypatch))
        assert len(UNDISTURBED) == 4
    assert whole_run(workshop, state / "killed", moment, monkeypatch) == UNDISTURBED


def test_buffers_are_secret(workshop: Workshop, state: Path, clock: Clock) -> None:
    with serve_ftrl(workshop, state, clock) as coordinator:
        end_round(coordinator, clock)
    (path,) = (state / "buffers").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    with run_server(workshop, state, **FTRL | {"deadline_seconds": 1e9}) as server, client_of(server.url) as owner:
        assert owner.get(f"/v1/models/{server.coordinator.current.base_sha256}").status_code == 200
        for route in ("models", "links", "buffers"):
            for name in (path.stem, path.name, f"../buffers/{path.name}", f"%2e%2e/buffers/{path.name}"):
                answer = owner.get(f"/v1/{route}/{name}")
                assert answer.status_code in (400, 404)
                assert path.read_bytes()[:64] not in answer.content


@pytest.mark.parametrize("store", [None, "memory://sealed"])
def test_files_of_buffers_are_useless_once_they_were_used(workshop: Workshop, state: Path, store: str | None) -> None:
    """The ledger alone has their seal, and only that of the current ones."""
    clock, closed, seals = Clock(), {}, list[bytes]()
    with serve_ftrl(workshop, state, clock, store=store) as coordinator:
        for number in (1, 2):
            end_round(coordinator, clock)
            (path,) = coordinator.folder.buffers.iterdir()
            closed[number] = load_tensors(path)
            with coordinator.ledger.reading() as session:
                seals.append(str(session.get_one(Model, coordinator.current.base_sha256).buffers_seal).encode())
        kept = b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
        assert [seal in kept for seal in seals] == [False, True]  # SQLite keeps nothing of the first one
        with coordinator.ledger.reading() as session:
            exported, first, second = session.query(Model).order_by(Model.round)
    assert [one.buffers_seal for one in (exported, first)] == [None, None]
    assert second.buffers_seal is not None
    for name, found in closed[2].items():
        opened = apply_seal(found.copy(), bytes.fromhex(second.buffers_seal), name.removesuffix(".buffers"), 0)
        assert np.abs(opened).max() < 100
        with np.errstate(all="ignore"):
            assert not np.abs(found).max() < 1e9  # as bits at random are
    names = [] if store is None else store_at(store).names("buffers")
    assert names == ([] if store is None else [f"{second.buffers_sha256}.safetensors"])


def _harm(path: Path, harm: str, workshop: Workshop, tmp_path: Path) -> None:
    if harm == "missing":
        path.unlink()
    elif harm == "damaged":
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    else:
        clock = Clock()
        with serve_ftrl(workshop, tmp_path / "foreign", clock, clip_norm=0.3) as other:
            end_round(other, clock)
            (found,) = other.folder.buffers.iterdir()
            shutil.copy(found, path)


@pytest.mark.parametrize(
    ("harm", "running"), [("missing", True), ("damaged", True), ("damaged", False), ("foreign", False)]
)
def test_harmed_buffers_are_refused_and_fail_no_round(
    workshop: Workshop, state: Path, tmp_path: Path, clock: Clock, harm: str, running: bool
) -> None:
    with serve_ftrl(workshop, state, clock) as coordinator:
        end_round(coordinator, clock)
        (path,) = coordinator.folder.buffers.iterdir()
        sound = path.read_bytes()
        if running:
            _harm(path, harm, workshop, tmp_path)
            clock.now += 101
            coordinator.tick()
            assert (coordinator.overdue, coordinator.current.round) == (True, 2)  # it tries again
            path.write_bytes(sound)
            coordinator.tick()
            assert coordinator.current.round == 3
            return
    _harm(path, harm, workshop, tmp_path)
    with pytest.raises(StorageError, match="restore the state folder"), serve_ftrl(workshop, state, clock):
        pass
    path.write_bytes(sound)
    with serve_ftrl(workshop, state, clock) as coordinator:
        end_round(coordinator, clock)


def test_each_position_is_sealed_with_bits_of_its_own() -> None:
    bits = apply_seal(np.zeros(2 * BLOCK), bytes(32), "tensor", 0).view(np.uint64)
    assert len(np.unique(bits)) == 2 * BLOCK
