"""The noise key that several servers share: made once, of two halves, gone with its round; what a backup does to it."""

import itertools
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

import phonograd
from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.settings.storage import ServerStorage
from phonograd.server_agg.storage import shared_noise
from phonograd.server_agg.storage.shared_noise import SharedNoiseKeys
from phonograd.server_agg.storage.stores import ObjectStore
from tests.cluster.conftest import Open, administrator
from tests.cluster.servers import FTRL, SAMPLED, deadline, end_round, enrol, name_of, rounds
from tests.server_agg.coordinators import open_coordinator
from tests.server_agg.workshop import Workshop, settings_with

pytestmark = pytest.mark.cluster


def test_a_key_is_made_once_and_neither_half_outlives_its_round(replicas: Open) -> None:
    three = replicas(3, **FTRL)  # started at the same time
    store = three[0].folder.store
    assert isinstance(store, ObjectStore)
    keys = {one.folder.noise_keys.get_or_create(1) for one in three}
    (row,), (name,) = rounds(three[0].ledger), store.names("noise")
    stored, half = store.read(f"noise/{name}"), bytes.fromhex(str(row.noise_half))
    assert (len(keys), name.startswith("1-"), half.hex() in name) == (1, True, False)
    assert not keys & {stored, half}
    assert not any(path.name for server in three for path in (server.folder.root / "noise").iterdir())
    end_round(*three)
    ended, row = rounds(three[0].ledger)
    (now,) = store.names("noise")
    assert (ended.noise_half, row.noise_half == half.hex(), now.startswith("2-")) == (None, False, True)
    for server in three:
        with pytest.raises(StorageError, match="round 1: another server ended it, and its noise key is gone"):
            server.folder.noise_keys.get_or_create(1)
        assert server.folder.noise_keys.get_or_create(2) not in keys
    three[1].rollback(1)
    assert [row.noise_half is None for row in rounds(three[0].ledger)] == [True, True, False]


def test_a_key_needs_both_halves(workshop: Workshop, tmp_path: Path, place: dict[str, object]) -> None:
    """Changing the half in the ledger, or in the store, makes another key; losing one leaves no key."""
    with open_coordinator(workshop, tmp_path / "one", settings_with(**place, **FTRL)) as server:
        keys, store = server.folder.noise_keys, server.folder.store
        assert isinstance(store, ObjectStore)
        (name,) = store.names("noise")
        key, stored = keys.get_or_create(1), store.read(f"noise/{name}")
        store.write(bytes(32), f"noise/{name}")
        assert keys.get_or_create(1) != key
        store.write(stored[:-1], f"noise/{name}")
        with pytest.raises(StorageError, match="expected 32 bytes in the store, found 31"):
            keys.get_or_create(1)
        store.write(stored, f"noise/{name}")
        half = bytes.fromhex(str(rounds(server.ledger)[0].noise_half))
        other = bytes([half[0] ^ 1]) + half[1:]
        patched = SharedNoiseKeys(server.ledger, store)
        patched._half = lambda number: other.hex()  # type: ignore[method-assign]
        with pytest.raises(
            StorageError, match="half of the noise key of round 1: the ledger and the store are of diff"
        ):
            patched.get_or_create(1)
        store.write(stored, shared_noise._place(1, other.hex()))
        assert patched.get_or_create(1) not in (key, stored, half, other)


def test_of_two_servers_that_make_a_key_at_once_the_first_one_s_counts(
    workshop: Workshop, tmp_path: Path, place: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_coordinator(
        workshop, tmp_path / "one", settings_with(**place)
    ) as server:  # without noise, and without a key
        store, made = server.folder.store, []
        assert isinstance(store, ObjectStore)
        assert (store.names("noise"), rounds(server.ledger)[0].noise_half) == ([], None)
        slow, quick = (SharedNoiseKeys(server.ledger, store) for _ in range(2))
        write = store.write

        def meanwhile(data: bytes, name: str) -> None:
            write(data, name)
            monkeypatch.setattr(store, "write", write)
            made.append(quick.get_or_create(1))
            quick.delete_all_except(1)  # as a server that loads the round

        monkeypatch.setattr(store, "write", meanwhile)
        assert [slow.get_or_create(1)] == made
        assert slow.get_or_create(1) == quick.get_or_create(1) == made[0]
        assert len(store.names("noise")) == 1


@pytest.fixture
def copy_of(database: str) -> Callable[[dict[str, object]], dict[str, object]]:
    """A backup of a service whose servers are stopped: of its database, and of its store."""
    numbers = itertools.count()

    def copy(place: dict[str, object]) -> dict[str, object]:
        source, url = str(place["ledger"]), f"memory://{uuid.uuid4().hex}"
        name = f"{database.rpartition('/')[2]}_{next(numbers)}"
        with administrator(database.replace(database.rpartition("/")[2], "postgres")) as connection:
            connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {source.rpartition('/')[2]}"))
        old, new = ObjectStore(str(place["store"])), ObjectStore(url)
        for part in ("models", "buffers", "noise", "links"):
            for found in old.names(part):
                new.write(old.read(f"{part}/{found}"), f"{part}/{found}")
        return {"ledger": f"{source.rpartition('/')[0]}/{name}", "store": url}

    return copy


@pytest.mark.parametrize(("changes", "old"), [(SAMPLED, "ledger"), (FTRL, "store"), (SAMPLED, "store")], ids=name_of)
def test_a_backup_of_one_without_the_other_is_seen_and_no_noise_is_used_again(
    changes: dict[str, object],
    old: str,
    workshop: Workshop,
    tmp_path: Path,
    place: dict[str, object],
    copy_of: Callable[[dict[str, object]], dict[str, object]],
) -> None:
    def settings(place: dict[str, object]) -> ServerSettings:
        return settings_with(**place | changes)

    with open_coordinator(workshop, tmp_path / "one", settings(place)) as server:
        enrol(server)
        end_round(server)
    backup = copy_of(place)
    with open_coordinator(workshop, tmp_path / "one", settings(place)) as server:
        deadline(server)  # as far as before
        end_round(server)
    mixed = place | {old: backup[old]}
    for _ in range(2):  # nothing is made again; and the server's own folder still has all models
        refused = pytest.raises(
            StorageError, match=r"half of the noise key of round \d: the ledger|restore the state fol"
        )
        with refused, open_coordinator(workshop, tmp_path / "one", settings(mixed)):
            pass
    if changes is SAMPLED:  # whose key can be given up: the next round has another
        published = ObjectStore(str(place["store"])).names("models")
        phonograd.rollback(ServerStorage(str(mixed["ledger"]), str(mixed["store"])), 1)
        assert [name for name in ObjectStore(str(mixed["store"])).names("noise") if name < "3-"] == []
        with open_coordinator(workshop, tmp_path / "one", settings(mixed)) as server:
            end_round(server)
            assert f"{server.current.base_sha256}.safetensors" not in published
