"""A server whose models and updates are in an object store: its state folder has copies, which may be lost."""

import shutil
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fsspec.registry import _registry
from sqlalchemy import select

from phonograd.device_runtime.base.errors import MissingExtraError, StorageError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.report.document import read_lineage, read_report
from phonograd.server_agg.rounds import offline
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.settings.storage import ServerStorage
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.stores import ObjectStore, store_at
from phonograd.server_agg.storage.tables import Chunk
from tests.server_agg.coordinators import open_coordinator, send, undisturbed_model
from tests.server_agg.faults import adds_up, raising
from tests.server_agg.http_uploads import final_report
from tests.server_agg.tus_phone import BODY, announced, checksum, phone_with
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server, settings_with


@pytest.fixture
def url() -> str:
    """A store of this process's, empty."""
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def server(workshop: Workshop, tmp_path: Path, url: str) -> Iterator[RunningServer]:
    with run_server(workshop, tmp_path / "state", store=url, clients_per_round=2) as running:
        yield running


def objects_in(url: str) -> dict[str, list[str]]:
    store = store_at(url)
    return {part: sorted(store.names(part)) for part in ("models", "optimizers", "updates", "incoming")}


def chunks(coordinator: Coordinator) -> list[tuple[int, int]]:
    with coordinator.ledger.reading() as session:
        return [(chunk.start, chunk.stop) for chunk in session.scalars(select(Chunk).order_by(Chunk.start))]


def test_an_object_s_life(tmp_path: Path, url: str) -> None:
    store, file = ObjectStore(f"{url}/sub"), tmp_path / "file"
    file.write_bytes(b"abc")
    store.put(file, "models/a")
    store.write(b"xyz", "incoming/id/1")
    assert (store.has("models/a"), store.has("models/b"), store.read("models/a")) == (True, False, b"abc")
    assert (store.names("incoming"), store.names("updates")) == (["id/1"], [])
    store.get("incoming/id/1", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == b"xyz"
    store.delete(["models/a", "models/missing"])
    assert not store.has("models/a")
    with pytest.raises(StorageError, match=r"memory://.*models/a: FileNotFoundError"):
        store.read("models/a")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("file:///tmp/x", "expected an object store, found a folder"), ("nonsense://x", "expected a URL such as s3://")],
)
def test_urls_that_are_no_store(wrong: str, message: str) -> None:
    with pytest.raises(StorageError, match=message):
        store_at(wrong)


def test_the_same_model_as_with_a_folder_and_old_objects_are_deleted(
    workshop: Workshop, tmp_path: Path, url: str
) -> None:
    model = undisturbed_model(workshop, tmp_path / "folder")
    settings = settings_with(clients_per_round=3, store=url, models_kept=1, server_optimizer="momentum")
    with open_coordinator(workshop, tmp_path / "state", settings) as coordinator:
        for number in (1, 2):
            base = coordinator.folder.model(coordinator.current.base_sha256)
            for seed in (1, 2, 3):
                send(coordinator, workshop.update(seed, number, 100 * seed, base=base), f"phone{seed}")
                assert len(objects_in(url)["updates"]) == seed % 3
            if number == 1:
                assert coordinator.current.base_sha256 == model
        newest = coordinator.current.base_sha256
    kept = objects_in(url)
    assert kept["models"] == sorted(f"{sha256}.safetensors" for sha256 in (workshop.base_sha256, newest))
    assert (len(kept["optimizers"]), kept["updates"], kept["incoming"]) == (1, [], [])


def test_a_lost_copy_is_fetched_and_a_damaged_object_is_not_taken(workshop: Workshop, tmp_path: Path, url: str) -> None:
    model = undisturbed_model(workshop, tmp_path / "folder")
    state, settings = tmp_path / "state", settings_with(clients_per_round=3, store=url)
    with open_coordinator(workshop, state, settings) as coordinator:
        for seed in (1, 2):
            send(coordinator, workshop.update(seed, tokens=100 * seed), f"phone{seed}")
    for part in ("models", "updates"):
        shutil.rmtree(state / part)
    with open_coordinator(workshop, state, settings) as coordinator:
        assert send(coordinator, workshop.update(3, tokens=300), "phone3").model_sha256 == model
        found = coordinator.folder.model(model)
        found.unlink()
        assert sha256_of_file(coordinator.folder.fetch(found)) == model
        found.unlink()
        ObjectStore(url).write(b"other bytes", f"models/{model}.safetensors")
        with pytest.raises(StorageError, match=rf"models/{model}.safetensors: damaged in the store"):
            coordinator.folder.fetch(found)
        assert not found.exists()


def test_a_round_whose_updates_the_store_lost_fails(workshop: Workshop, tmp_path: Path, url: str) -> None:
    """No waiting brings them back."""
    state, settings = tmp_path / "state", settings_with(clients_per_round=2, store=url, strategy="median")
    with open_coordinator(workshop, state, settings) as coordinator:
        send(coordinator, workshop.update(1), "a")
        coordinator.folder.store.delete(f"updates/{name}" for name in coordinator.folder.store.names("updates"))
        shutil.rmtree(coordinator.folder.updates)
        coordinator.folder.updates.mkdir()
        assert send(coordinator, workshop.update(2), "b").round_closed
        assert coordinator.current.round == 2
    assert "cannot be opened: No such file" in read_report(state)["rounds"][0]["reason"]


def test_going_back_without_a_server(workshop: Workshop, tmp_path: Path, url: str) -> None:
    state, storage = tmp_path / "state", ServerStorage(tmp_path / "state", url)
    with open_coordinator(workshop, state, settings_with(clients_per_round=2, store=url)) as coordinator:
        send(coordinator, workshop.update(1), "a")
    shutil.rmtree(state / "models")
    assert [model["kept"] for model in read_lineage(storage)] == [True]
    with pytest.raises(StorageError, match=r"store memory://other: expected models of .*ledger.sqlite in it"):
        offline.roll_back(ServerStorage(state, "memory://other"), 0, "operator:me")
    assert len(objects_in(url)["updates"]) == 1
    assert offline.roll_back(storage, 0, "operator:me") == {"round": 2, "base_sha256": workshop.base_sha256}
    assert objects_in(url)["updates"] == []
    with open_coordinator(workshop, state, settings_with(clients_per_round=2, store=url)) as coordinator:
        assert coordinator.current.round == 2


def test_a_store_that_does_not_answer_keeps_no_rollback_back(
    workshop: Workshop, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_coordinator(workshop, tmp_path / "state", settings_with(clients_per_round=2, store=url)) as coordinator:
        send(coordinator, workshop.update(1), "a")
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, "delete", raising(StorageError("the store does not answer")))
            assert coordinator.rollback(0).round == 2
        assert "old objects are kept until the next round: the store does not answer" in caplog.text
        for phone in "ab":
            send(coordinator, workshop.update(ord(phone), 2), phone)
        assert (coordinator.current.round, objects_in(url)["updates"]) == (3, [])


def test_an_upload_is_chunks_that_end_with_it(
    server: RunningServer, http: httpx.Client, workshop: Workshop, url: str
) -> None:
    phone = phone_with(http, "phone1", workshop.update(1))
    half = len(phone.data) // 2
    assert phone.create_upload(phone.data[:100], Content_Type=BODY).headers["Upload-Offset"] == "100"
    assert phone.patch(100, phone.data[100:half]).status_code == 204
    assert chunks(server.coordinator) == [(0, 100), (100, half)]
    assert len(objects_in(url)["incoming"]) == 2
    assert phone.patch(100, phone.data[100:]).status_code == 409
    assert phone.offset() == half
    assert phone.patch(half, phone.data[half:]).status_code == 204
    assert phone.outcome().json()["state"] == "accepted"
    assert chunks(server.coordinator) == []
    assert (objects_in(url)["incoming"], objects_in(url)["updates"]) == ([], [phone.path.rpartition("/")[2]])


def test_a_server_that_was_overtaken_adds_nothing(
    server: RunningServer, http: httpx.Client, workshop: Workshop
) -> None:
    """The phone went on elsewhere while a chunk of the broken connection was on its way to the store."""
    phone = announced(http, "phone1", workshop.update(1))
    behind = server.coordinator.uploads.bytes.append(phone.path.rpartition("/")[2], 0)
    assert phone.patch(0, phone.data[:300]).status_code == 204
    with pytest.raises(Exception, match="another request goes on with this upload"):
        behind.write(memoryview(phone.data[:200]))
    assert phone.offset() == 300
    assert phone.delete().status_code == 204
    with pytest.raises(Exception, match="another request goes on with this upload"):
        behind.write(memoryview(phone.data[:200]))


def test_bytes_that_changed_on_their_way_are_taken_back(
    server: RunningServer, http: httpx.Client, workshop: Workshop
) -> None:
    phone = phone_with(http, "phone1", workshop.update(1))
    phone.create_upload(Upload_Metadata="")
    assert phone.patch(0, phone.data[:100], checksum(phone.data[:100])).status_code == 204
    assert phone.patch(100, b"\0" * 300, checksum(phone.data[100:400])).status_code == 460
    assert (phone.offset(), chunks(server.coordinator)) == (100, [(0, 100)])
    other = announced(http, "phone2", workshop.update(2))
    assert other.patch(0, bytes(len(other.data))).status_code == 460
    assert other.offset() == 0
    assert other.patch(0, other.data).status_code == 204
    assert other.outcome().json()["state"] == "accepted"


def test_an_upload_outlasts_the_round_that_it_began_in(workshop: Workshop, tmp_path: Path, url: str) -> None:
    with (
        run_server(workshop, tmp_path / "state", store=url, clients_per_round=1, late="next") as server,
        client_of(server.url) as http,
    ):
        slow, quick = (phone_with(http, f"phone{seed}", workshop.update(seed)) for seed in (1, 2))
        slow.create_upload()
        slow.patch(0, slow.data[:500])
        assert quick.finish()["round_closed"]
        assert slow.patch(500, slow.data[500:]).status_code == 204
        assert slow.outcome().json()["receipt"]["round"] == 2


def test_an_upload_goes_on_at_a_server_that_has_no_file_of_it(workshop: Workshop, state: Path, url: str) -> None:
    """An upload that was whole when the server was killed is ingested; what the kill left behind is deleted."""
    with run_server(workshop, state, store=url, clients_per_round=2) as first, client_of(first.url) as http:
        phones = [phone_with(http, f"phone{seed}", workshop.update(seed)) for seed in (1, 2)]
        for phone in phones:
            phone.create_upload()
        phones[0].patch(0, phones[0].data[:500])
        sink = first.coordinator.uploads.bytes.append(phones[1].path.rpartition("/")[2], 0)
        sink.write(memoryview(phones[1].data))
        ObjectStore(url).write(b"no row", f"{phones[0].path.replace('/v1/uploads', 'incoming')}/orphan")
    shutil.rmtree(state / "incoming")
    with run_server(workshop, state, store=url, clients_per_round=2) as second, client_of(second.url) as http:
        phones[0].http = phones[1].http = http
        assert phones[1].outcome().json()["state"] == "accepted"
        assert phones[0].offset() == 500
        assert phones[0].patch(500, phones[0].data[500:]).status_code == 204
        assert phones[0].outcome().json()["receipt"]["round_closed"]
    assert (objects_in(url)["incoming"], objects_in(url)["updates"]) == ([], [])


def test_each_byte_of_a_chunk_is_counted_with_it(server: RunningServer, http: httpx.Client, workshop: Workshop) -> None:
    """However the server ends then: nothing is left to count at a start, which other servers' uploads would see."""
    phone = announced(http, "phone1", workshop.update(1))
    server.coordinator.uploads.bytes.append(phone.path.rpartition("/")[2], 0).write(memoryview(phone.data[:700]))
    assert phone.patch(700, phone.data[700:]).status_code == 204
    (entry,) = final_report(server)["rounds"]
    assert (entry["useful_bytes"], entry["retried_bytes"], entry["upload_starts"]) == (len(phone.data), 0, 2)
    assert adds_up(entry)


def test_a_store_that_does_not_answer_costs_nothing(
    server: RunningServer, http: httpx.Client, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = announced(http, "phone1", workshop.update(1))
    for name in ("write", "put"):
        with monkeypatch.context() as patch:
            patch.setattr(ObjectStore, name, raising(StorageError("the store does not answer")))
            assert phone.patch(phone.offset(), phone.data[phone.offset() :]).status_code == 507
    assert phone.patch(phone.offset(), phone.data[phone.offset() :]).status_code == 204
    assert phone.outcome().json()["state"] == "accepted"


def test_what_an_extra_is_missing_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("psycopg", "s3fs"):
        monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(_registry, "s3", raising=False)  # another test has imported it
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[s3\]'"):
        store_at("s3://bucket/folder")
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[postgres\]'"):
        Ledger("postgresql://localhost/x")
    for wrong in ("sqlite:///x", "nonsense"):
        with pytest.raises(StorageError, match=f"ledger {wrong}: expected postgresql://"):
            Ledger(wrong)


def test_what_a_ledger_for_several_servers_needs() -> None:
    for wrong, message in (
        ({}, "`store` is None, expected one"),
        ({"store": "memory://x", "strategy": "transfer"}, "expected none for transfer"),
    ):
        with pytest.raises(ValueError, match=message):
            settings_with(ledger="postgresql://localhost/x", **wrong)
    assert ServerSettings(ledger="postgresql://localhost/x", store="memory://x").store == "memory://x"
