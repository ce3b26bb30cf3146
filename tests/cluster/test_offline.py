"""Reports, rollback and discard on what several servers share, without asking one: stopped or running."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

import phonograd
from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.base.errors import StorageError, UsageError, WeightsError
from phonograd.server_agg.aggregation import next_model
from phonograd.server_agg.refusals import LateUpdateError, UnknownRoundError
from phonograd.server_agg.report.document import report_of
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.live_round import LiveRound
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.settings.storage import ServerStorage
from phonograd.server_agg.storage import migrations
from phonograd.server_agg.storage.audit import AuditLog
from phonograd.server_agg.storage.migrations import VERSION, VERSION_TABLE
from phonograd.server_agg.storage.stores import store_at
from tests.cluster.conftest import Open, administrator
from tests.cluster.servers import endings, follow, rounds, upload
from tests.server_agg.coordinators import open_coordinator, send
from tests.server_agg.faults import raising
from tests.server_agg.workshop import Workshop, settings_with
from tests.support.command_line import Run

pytestmark = pytest.mark.cluster


@pytest.fixture
def storage(place: dict[str, object]) -> ServerStorage:
    return ServerStorage(str(place["ledger"]), str(place["store"]))


def one_after_another(workshop: Workshop, servers: list[Coordinator], count: int) -> None:
    """`count` rounds of one phone."""
    for number in range(1, count + 1):
        server = servers[number % len(servers)]
        server.tick()
        base = server.folder.fetch(server.folder.model(server.current.base_sha256))
        send(server, workshop.update(number, number, base=base), "a")


def test_going_back_while_all_servers_are_stopped(
    workshop: Workshop, tmp_path: Path, place: dict[str, object], storage: ServerStorage
) -> None:
    """There are a closed round and one with an update, then the rollback, then another round."""
    settings = settings_with(**place, clients_per_round=2, server_lr=0.5)
    with open_coordinator(workshop, tmp_path / "one", settings) as server:
        for phone in "ab":
            send(server, workshop.update(ord(phone)), phone)
        send(server, workshop.update(3, 2, base=server.folder.model(server.current.base_sha256)), "a")
        reported = document_of(report_of(server.ledger))
    assert phonograd.report(storage) == reported
    assert phonograd.round_report(storage, 2)[0]["state"] == "accepted"
    with pytest.raises(UnknownRoundError, match="round 7: expected a closed round"):
        phonograd.rollback(storage, 7)
    assert phonograd.rollback(storage, 0) == {"round": 3, "base_sha256": workshop.base_sha256}
    with open_coordinator(workshop, tmp_path / "one", settings) as server:
        assert (server.current.round, server.current.base_sha256) == (3, workshop.base_sha256)
        (entry,) = AuditLog(server.ledger).entries()
        assert (entry.action, entry.subject) == ("rollback", "to round 0")
        for phone in "ab":
            send(server, workshop.update(ord(phone), 3), phone)

    assert [model["kept"] for model in phonograd.models(storage)] == [True] * 3
    ended = phonograd.report(storage)["rounds"]
    assert [entry["ending"] for entry in ended] == ["full", "rollback", "full", None]
    assert [entry["rolled_back"] for entry in ended] == [True, True, False, False]


def test_a_lost_model_is_gone_back_from(
    workshop: Workshop, tmp_path: Path, place: dict[str, object], storage: ServerStorage
) -> None:
    settings = settings_with(**place, clients_per_round=1)
    with open_coordinator(workshop, tmp_path / "one", settings) as server:
        send(server, workshop.update(1), "a")
        lost = server.current.base_sha256
    store_at(storage.store).delete([f"models/{lost}.safetensors"])
    with pytest.raises(UnknownRoundError, match="its model file .* was deleted"):
        phonograd.rollback(storage, 1)
    assert phonograd.rollback(storage, 0)["round"] == 3
    with open_coordinator(workshop, tmp_path / "two", settings) as server:
        assert send(server, workshop.update(2, 3), "a").round_closed


def test_servers_that_run_follow_a_rollback(workshop: Workshop, storage: ServerStorage, replicas: Open) -> None:
    first, second = replicas(2, clients_per_round=1, models_kept=1)
    one_after_another(workshop, [first, second], 2)
    second.tick()
    stale = workshop.update(7, 3, base=second.folder.fetch(second.folder.model(second.current.base_sha256)))
    ingest = upload(second, stale, "b")
    assert phonograd.rollback(storage, 0)["round"] == 4
    with pytest.raises(LateUpdateError):  # though no tick has come since then
        ingest()
    follow([first, second], 4)
    assert {server.current.base_sha256 for server in (first, second)} == {workshop.base_sha256}
    assert send(first, workshop.update(9, 4), "a").round_closed
    follow([second, first], 5)
    assert endings(first) == ["full", "full", "rollback", "full", None]
    kept = [f"{sha256}.safetensors" for sha256 in (workshop.base_sha256, first.current.base_sha256)]
    assert (first.folder.store.names("updates"), sorted(first.folder.store.names("models"))) == ([], sorted(kept))


@pytest.mark.parametrize("deed", [phonograd.rollback, phonograd.discard])
def test_nothing_changes_while_a_server_closes_a_round(
    deed: Callable[..., object],
    workshop: Workshop,
    storage: ServerStorage,
    replicas: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Closing deletes old models, perhaps the one to return to."""
    (server,) = replicas(1, clients_per_round=1)
    record_model = LiveRound.record_model

    def meanwhile(*arguments: object) -> None:
        with pytest.raises(StorageError, match="a server is closing a round; wait until it is closed, and try again"):
            deed(storage, 1)
        assert len(rounds(server.ledger)) == 1
        record_model(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(LiveRound, "record_model", meanwhile)
    assert send(server, workshop.update(1), "a").round_closed
    assert endings(server) == ["full", None]


def test_kept_updates_are_discarded_while_servers_run(
    workshop: Workshop, storage: ServerStorage, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_model, "write_model", raising(WeightsError("no model")))
    (server,) = replicas(1, clients_per_round=1)
    for number in (1, 2):
        send(server, workshop.update(number, number), "a")
    send_part = server.create_upload(UploadMetadata("b", 1000))
    server.uploads.bytes.append(send_part.id, 0).write(memoryview(b"begun"))
    store = server.folder.store
    assert len(store.names("updates")) == 2
    assert phonograd.discard(storage, 1) == {"round": 1, "discarded": 1}
    assert (len(store.names("updates")), len(store.names("incoming"))) == (1, 1)
    assert phonograd.discard(storage, 1)["discarded"] == 0
    with pytest.raises(UnknownRoundError, match="round 3: expected a failed round"):
        phonograd.discard(storage, 3)


def test_what_is_refused(
    workshop: Workshop, database: str, storage: ServerStorage, replicas: Open, tmp_path: Path
) -> None:
    with pytest.raises(StorageError, match="expected a ledger, found none in it"):
        phonograd.report(storage)  # the database is empty
    (server,) = replicas(1, clients_per_round=1)
    send(server, workshop.update(1), "a")
    for deed in (phonograd.rollback, phonograd.discard):
        with pytest.raises(UsageError, match="expected the servers' `store` beside it"):
            deed(ServerStorage(database), 0)
        with pytest.raises(StorageError, match=r"store memory://other: expected models of postgresql.* found none"):
            deed(ServerStorage(database, "memory://other"), 0)
    with pytest.raises(UsageError, match="expected the servers' `store` beside it"):
        phonograd.models(ServerStorage(database))
    assert len(rounds(server.ledger)) == 2


def test_a_ledger_that_an_earlier_release_runs_on_is_left_as_it_is(
    workshop: Workshop, tmp_path: Path, database: str, place: dict[str, object], storage: ServerStorage, phono: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with open_coordinator(workshop, tmp_path / "first", settings_with(**place)):
        pass
    monkeypatch.setattr(migrations, "VERSION", VERSION + 1)
    message = f"expected ledger version {VERSION + 1}, found {VERSION}, which a server's start migrates"
    for deed in (phonograd.report, phonograd.models, lambda place: phonograd.rollback(place, 0)):
        with pytest.raises(StorageError, match=message):
            deed(storage)
    added = phono("tokens", "add", "phone1", "--ledger", database)
    assert (added.code, message in added.err) == (11, True)
    with administrator(database) as connection:
        assert connection.scalar(text(f"SELECT version_num FROM {VERSION_TABLE}")) == str(VERSION)


def test_a_role_that_may_only_read_reports(
    workshop: Workshop, tmp_path: Path, database: str, place: dict[str, object]
) -> None:
    with open_coordinator(workshop, tmp_path / "first", settings_with(**place, clients_per_round=1)) as server:
        send(server, workshop.update(1), "a")
    role = database.rpartition("/")[2]
    with administrator(database) as connection:
        connection.execute(text(f"CREATE ROLE reader_{role} LOGIN"))
        connection.execute(text(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader_{role}"))
    reader = ServerStorage(database.replace("phonograd@", f"reader_{role}@"), str(place["store"]))
    assert phonograd.report(reader)["totals"]["accepted"] == 1
    with pytest.raises(StorageError, match="permission denied"):
        phonograd.rollback(reader, 0)


def test_the_commands(workshop: Workshop, tmp_path: Path, place: dict[str, object], phono: Run) -> None:
    with open_coordinator(workshop, tmp_path / "first", settings_with(**place, clients_per_round=1)) as server:
        send(server, workshop.update(1), "a")
    ledger = ("--ledger", place["ledger"])
    both = (*ledger, "--store", place["store"])
    assert phono("report", *ledger, "--json").document["totals"]["accepted"] == 1
    assert phono("models", *both, "--json").document[1]["kept"]
    alone = phono("rollback", "0", *ledger)
    assert (alone.code, "--ledger is given alone, expected the servers' --store beside it" in alone.err) == (2, True)
    assert phono("rollback", "0", *both, "--json").document["round"] == 3
    assert phono("discard", "1", *both).code == 8
    beside = phono("models", "--server", "http://127.0.0.1:9", "--store", place["store"])
    assert (beside.code, "--store: expected with --state or --ledger" in beside.err) == (2, True)
