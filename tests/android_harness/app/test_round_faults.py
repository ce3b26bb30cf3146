"""RoundClient where networks, servers, storage and texts fail: it says so, keeps what counts, and goes on."""

import fcntl
import random
from pathlib import Path

import pytest

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.server_client import upload_update
from phonograd.server_agg.settings.security import SecuritySettings
from tests.android_harness.app.round_phones import REMAINS, Phones
from tests.server_agg.faults import states
from tests.server_agg.relay import relay_to
from tests.server_agg.workshop import RunningServer
from tests.support.ports import reserved_port

pytestmark = pytest.mark.apk

# So that each request has a connection of its own, and each cut its request.
ALONE = {"http.keepAlive": "false"}
# Of the tests' model by rows-f32, which differ little.
UPDATE_BYTES = 300_000


def another_update_closes_the_round(server: RunningServer) -> None:
    current = server.coordinator.current
    base = server.coordinator.folder.model(current.base_sha256)
    update = server.workshop.update(7, round=current.round, base=base)
    assert upload_update(server.url, update, "another").round_closed


def test_cut_at_many_bytes(phones: Phones) -> None:
    cut, rounds = random.Random(7), 8
    with (
        phones.serving() as server,
        relay_to(server.port) as (wire, url),
        phones.app(url, **ALONE) as app,
    ):
        for number in range(1, rounds + 1):
            for cuts in (wire.cuts, wire.down_cuts):
                cuts[:] = [cut.choice((cut.randrange(1, 1000), cut.randrange(UPDATE_BYTES), None)) for _ in range(9)]
            said = app.ask(f"until {number}")
            assert [words[1] for words in said].count("began") == 1
            assert phones.models() == {server.coordinator.current.base_sha256}
        assert states(server) == [("phone-17", "accepted")] * rounds
        assert phones.remains() == REMAINS


def test_an_upload_goes_on_at_a_server_that_was_restarted(phones: Phones) -> None:
    with reserved_port() as port, relay_to(port) as (wire, url), phones.app(url, **ALONE) as app:
        with phones.serving(port=port):
            app.network()
            app.train()
            update = phones.workspace() / "update.safetensors"
            nbytes, sha256 = update.stat().st_size, sha256_of_file(update)
            wire.cuts[:] = [nbytes // 2]
            said = app.network()
            assert (said.action, said.after, said.receipt) == ("NETWORK", 300, "-")
        assert app.network().action == "NETWORK"  # nobody is there
        assert sha256_of_file(update) == sha256
        wire.up = 0
        with phones.serving(port=port) as server:
            said = app.network()
            assert (said.action, said.receipt) == ("TRAIN", "1")
            assert wire.up < nbytes // 2 + 4000
            assert states(server) == [("phone-17", "accepted")]


@pytest.mark.parametrize("how", ["rolled back", "closed"])
def test_the_round_ends_after_training(how: str, phones: Phones) -> None:
    """The update came late, or is unwanted: it is given up, and the next round begins."""
    with phones.serving() as server, phones.app(server.url) as app:
        app.ask("until 1")
        app.train()
        if how == "closed":
            another_update_closes_the_round(server)
        else:
            server.coordinator.rollback(0)
        said = app.network()
        assert (said.action, said.refused.partition(" ")[0]) == ("NETWORK", "409")
        assert "the server refused (409 The round is closed): the update is of round 2" in said.trouble
        assert phones.remains() == REMAINS
        app.ask("until 3")
        assert server.coordinator.current.round == 4
        assert states(server).count(("phone-17", "accepted")) == 2  # the first one, and the third round's


def test_rolled_back_before_training(phones: Phones) -> None:
    with phones.serving() as server, phones.app(server.url, codec="full-f32") as app:
        app.ask("until 1")
        server.coordinator.rollback(0)
        assert app.network().action == "TRAIN"
        assert phones.models() != {server.workshop.base_sha256}  # which was there, and is not fetched
        app.train()
        assert app.network().receipt == "3"


def test_the_round_closes_while_it_trains(phones: Phones) -> None:
    """The text is deleted by the network step that sees the end of the round."""
    phones.text.write_bytes(phones.place.user.read_bytes())  # a long one
    with phones.serving() as server:
        with phones.app(server.url, die=2) as app:
            app.ask("until 1")
        assert (phones.workspace() / "user.txt").exists()
        with phones.app(server.url) as app:
            assert app.network().action == "TRAIN"
            assert (phones.workspace() / "user.txt").exists()
            another_update_closes_the_round(server)
            assert app.network().action == "TRAIN"
            assert phones.remains() == REMAINS
            app.train()
            assert app.network().receipt == "2"


def test_a_place_is_not_to_be_had_twice(phones: Phones) -> None:
    with phones.serving(clients_per_round=2, retry_seconds=33) as server, phones.app(server.url) as app:
        app.network()
        app.train()
        said = app.network()
        assert (said.action, said.after, said.receipt) == ("NETWORK", 33, "1")
        assert "already has an update of this phone" in said.trouble
        assert app.train() == ["nothing to train"]
        assert phones.remains() == REMAINS - {"model.safetensors"}


def test_cut_after_the_receipt(phones: Phones) -> None:
    """The update counts: it is deleted, whether or not the next round can be asked for."""
    with phones.serving() as server, relay_to(server.port) as (wire, url), phones.app(url, **ALONE) as app:
        app.network()
        app.train()
        wire.down_cuts[:] = [None, None, 1, 1]  # Java asks twice
        said = app.network()
        assert (said.action, said.receipt) == ("NETWORK", "1")
        assert phones.remains() == REMAINS - {"model.safetensors"}


def test_a_model_that_was_changed_on_the_disk(phones: Phones) -> None:
    with phones.serving() as server, phones.app(server.url) as app:
        app.ask("until 1")
        with (phones.workspace() / "model.safetensors").open("r+b") as model:
            model.seek(-4, 2)
            model.write(b"\0\0\0\0")
        another_update_closes_the_round(server)
        assert app.network().action == "TRAIN"
        assert phones.models() == {server.coordinator.current.base_sha256}


def test_cancelled(phones: Phones) -> None:
    with phones.app("http://127.0.0.1:1", cancel="true") as app:
        said = app.network()
        assert (said.action, said.trouble) == ("NETWORK", "cancelled")


def full(path: Path) -> None:
    """What is written there meets a full disk."""
    path.symlink_to("/dev/full")


@pytest.mark.parametrize("file", [".round.json.partial", "model.fetched"])
def test_a_full_disk(file: str, phones: Phones) -> None:
    with phones.serving() as server, phones.app(server.url) as app:
        another_update_closes_the_round(server)
        if file == "model.fetched":  # not before the download
            model = server.coordinator.folder.model(server.coordinator.current.base_sha256)
            kept = model.rename(model.with_name("kept"))
            assert app.network().refused == "404 false"
            kept.rename(model)
        full(phones.workspace() / file)
        said = app.network()
        assert (said.action, said.after) == ("NETWORK", 300)
        assert "No space left on device" in said.trouble
        (phones.workspace() / file).unlink(missing_ok=True)
        app.ask("until 2")
        assert states(server).count(("phone-17", "accepted")) == 1


def test_a_full_disk_for_the_text(phones: Phones) -> None:
    text = phones.text.read_bytes()
    phones.text.unlink()
    with phones.serving() as server, phones.app(server.url) as app:
        app.network()
        assert "user.txt cannot be written, nothing is lost" in app.train()[1]
        phones.text.write_bytes(text)
        full(phones.workspace() / ".user.txt.partial")
        assert "nothing is lost: No space left on device" in app.train()[1]
        assert not (phones.workspace() / ".user.txt.partial").is_symlink()  # it might be half of a text
        app.ask("until 1")
        assert phones.remains() == REMAINS


def test_a_text_that_cannot_be_trained_on(phones: Phones) -> None:
    phones.text.write_text("secret\n")
    with phones.serving() as server, phones.app(server.url) as app:
        app.network()
        assert app.train() == ["trained", "FAILED", "NETWORK"]
        assert phones.remains() == REMAINS - {"model.safetensors"}
        said = app.network()  # the round is not trained again
        assert (said.action, said.after, said.trouble) == ("NETWORK", 3600, "-")
        assert app.train() == ["nothing to train"]
        assert states(server) == []


def test_a_damaged_file_of_its_own(phones: Phones) -> None:
    with phones.serving() as server, phones.app(server.url) as app:
        app.network()
        (phones.workspace() / "round.json").write_text("{")
        app.ask("until 1")
        assert states(server) == [("phone-17", "accepted")]


def test_another_process_is_at_the_round(phones: Phones) -> None:
    with phones.serving() as server, phones.app(server.url) as app:
        app.network()
        with (phones.workspace() / "round.lock").open("w") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            said = app.network()
            assert (said.action, said.trouble) == ("NETWORK", "another process is at the round")
            assert "another process is at the round" in app.ask("train")[0][2]
        app.ask("until 1")


def test_a_codec_that_the_server_does_not_take(phones: Phones) -> None:
    with phones.serving() as server, phones.app(server.url, codec="zip") as app:
        said = app.network()
        assert (said.action, said.refused) == ("NOTHING", "200 true")
        assert "takes no updates of codec zip" in said.trouble


def test_a_token_that_is_none_of_the_servers(phones: Phones) -> None:
    phones.token = f"pgd_{'0' * 16}_{'0' * 64}"
    with phones.serving(security=SecuritySettings(auth="tokens")) as server, phones.app(server.url) as app:
        said = app.network()
        assert (said.action, said.refused) == ("NOTHING", "401 true")
        assert "the token is not one of this server's" in said.trouble
        assert "pgd_" not in said.trouble


def test_what_no_connection_is_made_of(phones: Phones) -> None:
    for url, token, message in (
        ("example.org", "-", "server: a URL such as https://example.org expected"),
        (
            "http://192.0.2.1",
            f"pgd_{'0' * 16}_{'0' * 64}",
            "server: https expected, http would send the token unencrypted",
        ),
        ("https://192.0.2.1", "secret", "token: pgd_..._... expected, as it was shown"),
    ):
        phones.token = token
        with phones.app(url) as app:
            assert app.ask("network")[0][1:] == ["failed", f"java.lang.IllegalArgumentException: {message}"]


def test_what_cannot_be_synced_takes_no_files_place(phones: Phones) -> None:
    with phones.serving() as server, phones.app(server.url) as app:
        (phones.workspace() / ".round.json.partial").symlink_to("/dev/null")  # Java says that it has nothing to sync
        said = app.network()
        assert said.action == "NETWORK"
        assert "round.json cannot be written, nothing is lost" in said.trouble
        assert app.network().action == "TRAIN"


def test_what_a_kill_left_of_the_texts_copy_goes(phones: Phones) -> None:
    left = phones.workspace() / ".user.txt.partial"
    left.write_text("mine")
    with phones.serving() as server, phones.app(server.url) as app:
        app.network()
    assert not left.exists()
