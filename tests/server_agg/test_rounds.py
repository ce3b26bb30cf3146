import contextlib
import errno
import logging
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy.exc import DatabaseError

from phonograd.device_runtime.base.errors import ArtifactsError, OutOfMemoryError, StorageError, WeightsError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.server_agg.refusals import (
    DuplicatePhoneError,
    InvalidUpdateError,
    LateUpdateError,
    StaleUpdateError,
)
from phonograd.server_agg.report.document import read_lineage, read_report
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.storage import ledger
from phonograd.server_agg.storage.tables import Model
from tests.server_agg.coordinators import THREE, file_names, open_coordinator, send, undisturbed_model
from tests.server_agg.faults import raising
from tests.server_agg.hostile_updates import Parts
from tests.server_agg.workshop import Workshop, random_weights, settings_with, small_workshop, write_artifacts

refuse_to_write = raising(StorageError("model: cannot write: No space left on device"))


def test_enough_updates_close_the_round(workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state) as coordinator:
        receipts = [send(coordinator, workshop.update(seed, tokens=seed), f"phone{seed}") for seed in (1, 2, 3)]
        assert [receipt.accepted for receipt in receipts] == [1, 2, 3]
        assert [receipt.round_closed for receipt in receipts] == [False, False, True]
        model = receipts[-1].model_sha256
        assert model is not None
        assert (coordinator.current.round, coordinator.current.base_sha256, coordinator.current.accepted) == (
            2,
            model,
            0,
        )
        assert sha256_of_file(coordinator.folder.model(model)) == model
        assert file_names(state / "updates") == file_names(state / "incoming") == set()

        averaged = load_tensors(coordinator.folder.model(model))
        trained = [workshop.trained(seed) for seed in (1, 2, 3)]
        for name, found in averaged.items():
            exact = sum(n * t[name].astype(np.float64) for n, t in zip((1, 2, 3), trained, strict=True)) / 6
            assert np.linalg.norm(found - exact) <= 1e-6 * np.linalg.norm(exact)

        base = coordinator.folder.model(model)
        assert send(coordinator, workshop.update(1, round=2, base=base), "phone1").round == 2


def test_a_restart_in_mid_round_changes_nothing(workshop: Workshop, tmp_path: Path) -> None:
    with open_coordinator(workshop, tmp_path / "before") as coordinator:
        for seed in (1, 2):
            send(coordinator, workshop.update(seed, tokens=100 * seed), f"phone{seed}")
        (coordinator.folder.uploads / ("ab" * 16)).write_bytes(b"an upload the crash cut off")
        (coordinator.folder.updates / f"{'ab' * 32}.safetensors").write_bytes(
            b"stored, but its ledger row was never written"
        )
        # What a power cut would leave: the folder as it is now, under a coordinator that was never closed.
        shutil.copytree(tmp_path / "before", tmp_path / "after")
    with open_coordinator(workshop, tmp_path / "after") as coordinator:
        assert coordinator.current.accepted == 2
        assert file_names(coordinator.folder.uploads) == set()
        assert len(file_names(coordinator.folder.updates)) == 2
        receipt = send(coordinator, workshop.update(3, tokens=300), "phone3")
    assert receipt.model_sha256 == undisturbed_model(workshop, tmp_path / "undisturbed")


@pytest.mark.parametrize("moment", ["before the model is written", "before the ledger knows of it"])
def test_a_restart_between_the_last_update_and_the_close(
    moment: str, workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    with monkeypatch.context() as patch, open_coordinator(workshop, state) as coordinator:
        if moment == "before the model is written":
            patch.setattr("phonograd.server_agg.aggregation.next_model.write_model", refuse_to_write)
        else:
            patch.setattr("phonograd.server_agg.rounds.opening.add_round", refuse_to_write)
        receipts = [send(coordinator, workshop.update(s, tokens=100 * s), f"phone{s}") for s in (1, 2, 3)]
        # The update is safe and gets its receipt, though the disk refused the model.
        assert (receipts[-1].accepted, receipts[-1].round_closed, coordinator.current.round) == (3, False, 1)
    with open_coordinator(workshop, state) as coordinator:
        assert coordinator.current.round == 2
        assert coordinator.current.base_sha256 == undisturbed_model(workshop, tmp_path / "undisturbed")
        assert file_names(coordinator.folder.updates) == file_names(coordinator.folder.uploads) == set()


def test_a_close_that_failed_is_tried_again_at_the_next_upload(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        with monkeypatch.context() as patch:
            patch.setattr("phonograd.server_agg.aggregation.next_model.write_model", refuse_to_write)
            for seed in (1, 2, 3):
                send(coordinator, workshop.update(seed), f"phone{seed}")
            with pytest.raises(StorageError, match="No space left"):
                send(coordinator, workshop.update(4), "phone4")
        assert "round 1 cannot be closed, retrying" in caplog.text
        with pytest.raises(LateUpdateError):  # the round that was due has closed before it
            send(coordinator, workshop.update(4), "phone4")
        assert coordinator.current.round == 2


def test_the_same_update_again_gets_its_receipt_and_counts_once(workshop: Workshop, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with open_coordinator(workshop, state) as coordinator:
        first = send(coordinator, workshop.update(1, tokens=100), "phone1")
        assert send(coordinator, workshop.update(1, tokens=100), "phone1") == first
        assert coordinator.current.accepted == 1
        send(coordinator, workshop.update(2, tokens=200), "phone2")
        last = send(coordinator, workshop.update(3, tokens=300), "phone3")
        # The answer to the last update got lost; the round has closed since.
        assert send(coordinator, workshop.update(3, tokens=300), "phone3") == last
        assert last.round_closed
        assert coordinator.current.round == 2
        assert last.model_sha256 == undisturbed_model(workshop, tmp_path / "undisturbed")
    entry = read_report(state)["rounds"][0]
    size = workshop.update(1).stat().st_size
    assert (entry["accepted"], entry["repeated"], entry["rejected"]) == (3, 0, 0)
    assert (entry["useful_bytes"], entry["retried_bytes"]) == (3 * size, 0)


def test_two_phones_may_send_the_same_bytes(workshop: Workshop, tmp_path: Path) -> None:
    update = workshop.update(1)
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        send(coordinator, update, "a")
        send(coordinator, update, "b")
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        receipt = send(coordinator, update, "c")
        averaged = load_tensors(coordinator.folder.model(str(receipt.model_sha256)))
    for name, trained in workshop.trained(1).items():
        assert np.allclose(averaged[name], trained, rtol=0, atol=1e-6)


def test_once_closed_nothing_changes_any_more(workshop: Workshop, tmp_path: Path) -> None:
    """A request may still be at it when the server stops, and another server may use the folder by then."""
    update = workshop.update(1)
    with open_coordinator(workshop, tmp_path / "state", settings_with(clients_per_round=1)) as coordinator:
        send(coordinator, update, "phone1")
        upload = coordinator.create_upload(UploadMetadata("phone2", update.stat().st_size))
        shutil.copy(update, coordinator.folder.upload(upload.id))
    before = read_report(tmp_path / "state")
    for deed in (
        lambda: coordinator.ingest(upload.id, sha256_of_file(update), update.stat().st_size),
        lambda: coordinator.rollback(0),
        lambda: coordinator.discard(1),
    ):
        with pytest.raises(StorageError, match="the server is stopping; retry when it is running again"):
            deed()
    coordinator.tick()
    assert read_report(tmp_path / "state") == before
    assert coordinator.folder.upload(upload.id).is_file()


def refusal(coordinator: Coordinator, update: Path, phone: str, kind: type[Exception]) -> str:
    before = coordinator.current, file_names(coordinator.folder.updates)
    with pytest.raises(kind) as caught:
        send(coordinator, update, phone)
    assert (coordinator.current, file_names(coordinator.folder.updates)) == before
    assert file_names(coordinator.folder.uploads) == set()
    assert str(coordinator.folder.root) not in str(caught.value)
    return str(caught.value)


def test_refuses_a_second_update_of_a_phone(workshop: Workshop, tmp_path: Path) -> None:
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        send(coordinator, workshop.update(1), "phone1")
        message = refusal(coordinator, workshop.update(2), "phone1", DuplicatePhoneError)
    assert message == "phone phone1: round 1 already has an update of this phone; wait for the next round"


def test_refuses_updates_of_another_round_or_model(
    workshop: Workshop, make_workshop: Callable[..., Workshop], tmp_path: Path
) -> None:
    other = make_workshop(seed=7, name="other")
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        message = refusal(coordinator, workshop.update(1, round=2), "a", StaleUpdateError)
        assert "is of round 2, expected round 1, which has the same model; make it with `round_number` 1" in message
        message = refusal(coordinator, other.update(1), "a", StaleUpdateError)
    assert f"model {other.base_sha256[:12]}…, expected round 1 and model {workshop.base_sha256[:12]}…" in message


def test_what_the_server_can_not_read_is_not_the_phones_fault(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_files_left(path: Path) -> UpdateFile:
        raise OutOfMemoryError(f"{path}: cannot be opened: Too many open files")

    def bad_disk(path: Path) -> str:
        raise OSError(errno.EIO, "Input/output error")

    update, aggregator = workshop.update(1), "phonograd.server_agg.rounds.aggregator"
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        with monkeypatch.context() as patch, pytest.raises(StorageError, match="Too many open files"):
            patch.setattr("phonograd.server_agg.rounds.aggregator.UpdateFile", no_files_left)
            send(coordinator, update, "a")
        update.write_bytes(update.read_bytes()[:-1])
        monkeypatch.setattr(f"{aggregator}.sha256_of_file", bad_disk)
        with pytest.raises(StorageError, match="cannot be read: Input/output error"):
            send(coordinator, update, "a")


@pytest.mark.parametrize("wrong", ["not finite", "far away"])
def test_a_refused_update_leaves_the_round_whole(wrong: str, workshop: Workshop, tmp_path: Path) -> None:
    far = {name: array + np.float32(2.0**29) for name, array in workshop.trained(9).items()}
    evil, message = workshop.update(9, tokens=900, trained=far), "an update is far from the base model"
    if wrong == "not finite":
        evil.write_bytes(Parts.of(evil.read_bytes()).overwritten("decoder.bias", np.float32(np.nan).tobytes()))
        message = "tensor decoder.bias: element 49 .* nan, expected a finite number"
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        send(coordinator, workshop.update(1, tokens=100), "phone1")
        assert re.search(message, refusal(coordinator, evil, "phone9", InvalidUpdateError))
        send(coordinator, workshop.update(2, tokens=200), "phone2")
        receipt = send(coordinator, workshop.update(3, tokens=300), "phone3")
    assert receipt.model_sha256 == undisturbed_model(workshop, tmp_path / "undisturbed")


def test_refuses_a_state_of_other_artifacts(
    workshop: Workshop, make_workshop: Callable[..., Workshop], tmp_path: Path
) -> None:
    with open_coordinator(workshop, tmp_path / "state"):
        pass
    other_shape = make_workshop(LanguageModelConfig("lstm", 51, 8, 8, 1), name="shape")
    with pytest.raises(ArtifactsError, match=r"embedding.weight F32\[51, 8\] expected, .*started from other artifacts"):
        Coordinator(other_shape.artifacts, tmp_path / "state", THREE)
    other_weights = make_workshop(seed=8, name="weights")
    with pytest.raises(ArtifactsError, match="choose another `state` folder, or the artifacts it was started with"):
        Coordinator(other_weights.artifacts, tmp_path / "state", THREE)
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        assert coordinator.current.round == 1


def test_refuses_a_model_that_is_not_finite(workshop: Workshop, tmp_path: Path) -> None:
    weights = random_weights(workshop.config, 0)
    weights["decoder.bias"][3] = np.inf
    artifacts = write_artifacts(tmp_path / "broken", workshop.config, weights)
    with pytest.raises(WeightsError, match="tensor decoder.bias: element 3 is inf"):
        Coordinator(artifacts, tmp_path / "state", THREE)


def test_says_which_stored_update_is_damaged(workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state) as coordinator:
        send(coordinator, workshop.update(1), "phone1")
        (stored,) = coordinator.folder.updates.iterdir()
    data = bytearray(stored.read_bytes())
    data[-1] ^= 1
    stored.write_bytes(data)
    with pytest.raises(StorageError, match=f"{stored.name}: changed, its SHA-256 is .*; restore the state folder"):
        Coordinator(workshop.artifacts, state, THREE)
    stored.unlink()
    with pytest.raises(StorageError, match=f"{stored.name}: cannot read an accepted update"):
        Coordinator(workshop.artifacts, state, THREE)


@pytest.mark.parametrize(("left", "said"), [(0.5, "malformed"), (0.0, "no such table|not a database")])
def test_refuses_a_torn_ledger(left: float, said: str, workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state):
        pass
    whole = (state / "ledger.sqlite").read_bytes()
    (state / "ledger.sqlite").write_bytes(whole[: int(left * len(whole))] or b"this is not SQLite" * 100)
    with pytest.raises(
        StorageError, match=rf"the ledger failed: .*({said}).*; it is damaged: restore it from a backup$"
    ):
        Coordinator(workshop.artifacts, state, THREE)


def test_an_error_that_a_torn_ledger_led_to_is_called_so(workshop: Workshop, state: Path) -> None:
    torn = raising(DatabaseError("SELECT", {}, sqlite3.DatabaseError("torn")))
    with open_coordinator(workshop, state) as coordinator, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "damage_in", torn)
        with pytest.raises(StorageError, match="the ledger failed: torn"), coordinator.ledger.errors():
            raise KeyError("row")


@pytest.fixture(scope="module")
def two_rounds(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """A workshop with the state after two rounds beside it."""
    workshop = small_workshop(tmp_path_factory.mktemp("workshop"))
    settings = settings_with(clients_per_round=1, publish="top-rows", publish_rows=3)
    with open_coordinator(workshop, workshop.folder / "two rounds", settings) as coordinator:
        for number in (1, 2):
            base = coordinator.folder.model(coordinator.current.base_sha256)
            send(coordinator, workshop.update(1, number, base=base), "phone1")
    return workshop


@pytest.mark.parametrize(
    ("column", "change", "said"),
    [
        ("models.sha256", "substr(sha256, 2) || 'e' WHERE round = 2", "rounds.base_sha256 is"),
        ("models.sha256", "substr(sha256, 2) || 'e' WHERE round = 0", "rounds.base_sha256 is"),
        ("models.parent_sha256", "'' WHERE round = 2", "parent_sha256 is ''"),
        ("rounds.base_sha256", "substr(base_sha256, 2) || 'e' WHERE number = 3", "rounds.base_sha256 is"),
        ("rounds.base_sha256", "substr(base_sha256, 2) || 'e' WHERE number = 1", "rounds.base_sha256 is"),
        ("rounds.rules", "replace(rules, 'clients', 'client5') WHERE number = 1", "rules: .*client5"),
        ("rounds.strategy", "replace(strategy, 'fedavg', 'fedAvg') WHERE number = 3", "strategy: .*'fedAvg'"),
        ("rounds.closed_at", "'x' WHERE number = 1", "rounds.closed_at is 'x'"),
        ("updates.state", "'acceptad'", "state is 'acceptad'"),
    ],
)
def test_a_damaged_row_of_the_ledger_is_called_so(
    column: str, change: str, said: str, two_rounds: Workshop, state: Path
) -> None:
    """Whoever stumbles over it, the server or a report; one of them does."""
    workshop = two_rounds
    shutil.copytree(workshop.folder / "two rounds", state)
    with contextlib.closing(sqlite3.connect(state / "ledger.sqlite")) as ledger, ledger:
        table, _, name = column.partition(".")
        assert ledger.execute(f"UPDATE {table} SET {name} = {change}").rowcount >= 1
    errors = []
    for read in (lambda: Coordinator(workshop.artifacts, state, THREE).close(), lambda: read_report(state)):
        try:
            read()
        except StorageError as error:
            errors.append(str(error))
    assert errors
    for error in errors:
        assert re.search(rf"ledger.sqlite: it is damaged, .*{said}.*: restore it from a backup$", error)


@pytest.mark.parametrize(
    ("pragma", "cure"),
    [
        ("max_page_count=1", "is full; free disk space"),
        ("query_only=1", "readonly database; let this user write there"),
    ],
)
def test_says_what_helps_against_an_error_of_the_ledger(
    pragma: str, cure: str, workshop: Workshop, state: Path
) -> None:
    with (
        open_coordinator(workshop, state) as coordinator,
        pytest.raises(StorageError, match=cure),
        coordinator.ledger.writing() as session,
    ):
        session.connection().exec_driver_sql(f"PRAGMA {pragma}")
        session.add(Model(sha256="0" * 64, round=0, bytes=1, created_at=0.0, parent_sha256="x" * 100_000))


@pytest.mark.parametrize(("publish", "files"), [("rows-f32", 2), ("top-rows", 3)])
def test_there_is_room_for_what_is_announced(
    publish: str, files: int, workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for this update, for what is missing of others, and for what the round publishes; else 507 at once."""
    with open_coordinator(workshop, tmp_path / "state", settings_with(publish=publish)) as coordinator:
        model, usage = coordinator.current.model_bytes, shutil.disk_usage(tmp_path)
        free = [0]
        monkeypatch.setattr(
            "phonograd.server_agg.storage.state_folder.shutil.disk_usage", lambda _: usage._replace(free=free[0])
        )
        to_come = 0
        for number, (length, arrived) in enumerate(((1000, 300), (500, 0))):
            phone, needed = UploadMetadata(f"phone{number}", length), to_come + length + files * model
            free[0] = needed - 1
            with pytest.raises(StorageError, match=f"needs {needed} bytes, has {needed - 1} free; free space and send"):
                coordinator.create_upload(phone)
            free[0] = needed
            coordinator.uploads.count_received(coordinator.create_upload(phone).id, arrived)
            to_come += length - arrived
        assert len(coordinator.uploads.unfinished_uploads()) == 2


def test_new_settings_apply_to_an_empty_round_only(
    workshop: Workshop, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_coordinator(workshop, state):
        pass
    with open_coordinator(workshop, state, settings_with(clients_per_round=2, weighting="equal")) as coordinator:
        assert (coordinator.current.clients_per_round, coordinator.current.weighting) == (2, "equal")
        send(coordinator, workshop.update(1), "phone1")
    with caplog.at_level(logging.WARNING), open_coordinator(workshop, state) as coordinator:
        assert (coordinator.current.clients_per_round, coordinator.current.weighting) == (2, "equal")
        assert send(coordinator, workshop.update(2), "phone2").round_closed
        assert (coordinator.current.clients_per_round, coordinator.current.weighting) == (3, "tokens")
    assert "round 1 already has updates and keeps its settings until it closes" in caplog.text


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"models_kept": 2}, [0, 5, 6]),
        ({}, [0, 2, 3, 4, 5, 6]),
        ({"models_kept": None}, [0, 1, 2, 3, 4, 5, 6]),
    ],
    ids=["two", "by default", "all"],
)
def test_keeps_the_first_and_the_newest_models(
    changes: dict[str, object], expected: list[int], workshop: Workshop, tmp_path: Path
) -> None:
    state, settings = tmp_path / "state", settings_with(clients_per_round=1, server_optimizer="momentum", **changes)
    with open_coordinator(workshop, state, settings) as coordinator:
        made = [workshop.base_sha256]
        for number in range(1, 7):
            base = coordinator.folder.model(coordinator.current.base_sha256)
            made.append(str(send(coordinator, workshop.update(number, round=number, base=base), "a").model_sha256))
        assert file_names(state / "models") == {f"{made[number]}.safetensors" for number in expected}
        assert len(file_names(state / "optimizers")) == len(expected) - 1  # the exported one has none
        models = read_lineage(state)
        assert [model["sha256"] for model in models] == made
        assert [model["parent_sha256"] for model in models] == [None, *made[:-1]]
        assert [number for number, model in enumerate(models) if model["kept"]] == expected
        assert coordinator.rollback(0).base_sha256 == workshop.base_sha256
    with open_coordinator(workshop, state, settings) as coordinator:
        assert coordinator.current.round == 8
