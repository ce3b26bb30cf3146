"""RoundClient's process killed at every step of a round, and in mid-epoch: nothing is lost, doubled or left."""

from pathlib import Path

import pytest

from tests.android_harness.app.jvm import Jvm
from tests.android_harness.app.round_phones import REMAINS, Phones, serving
from tests.server_agg.faults import states
from tests.server_agg.workshop import RunningServer
from tests.support.phone_command import Place, text_of

pytestmark = pytest.mark.apk

# From nothing to the next round's model: requests, and both sides of each change of the disk and of the training.
STEPS = 30


@pytest.fixture(scope="session")
def undisturbed(jvm: Jvm, place: Place, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model of a round that nobody disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    phones = Phones(jvm, place, folder)
    with serving(place, folder) as server, phones.app(server.url) as app:
        app.ask("until 1")
        assert app.steps == STEPS, app.steps
        return server.coordinator.current.base_sha256


@pytest.mark.parametrize("step", [6, 26])
def test_an_app_killed_at_a_step(step: int, jvm: Jvm, place: Place, undisturbed: str, tmp_path: Path) -> None:
    phones = Phones(jvm, place, tmp_path)
    with serving(place, tmp_path) as server:
        with phones.app(server.url, halt=step) as app:
            said = app.ask("until 1")
        with phones.app(server.url) as app:
            said += app.ask("until 1")
        check_round(said, phones, server, undisturbed)


def test_killed_at_each_step(jvm: Jvm, place: Place, undisturbed: str, tmp_path: Path) -> None:
    """One JVM: an error ends the phone, which begins again with its files."""
    (tmp_path / "app").mkdir()
    with Phones(jvm, place, tmp_path / "app").app("-") as app:
        for step in range(1, STEPS + 1):
            (folder := tmp_path / str(step)).mkdir()
            phones = Phones(jvm, place, folder)
            with serving(place, folder) as server:
                app.scene(phones, server.url, step)
                said = app.ask("until 1")
                assert [words[1] for words in said].count("killed") == 1, step
                check_round(said, phones, server, undisturbed)


def check_round(said: list[list[str]], phones: Phones, server: RunningServer, undisturbed: str) -> None:
    """One training, one update, the undisturbed round's model, and nothing left."""
    assert [words[1] for words in said].count("began") == 1
    assert states(server) == [("phone-17", "accepted")]
    assert phones.models() == {server.coordinator.current.base_sha256} == {undisturbed}
    assert phones.remains() == REMAINS


def test_killed_in_mid_epoch(jvm: Jvm, place: Place, tmp_path: Path) -> None:
    phones = Phones(jvm, place, tmp_path)
    phones.text.write_bytes(place.user.read_bytes())  # a long one
    with serving(place, tmp_path) as server:
        with phones.app(server.url, die=2) as app:
            app.ask("until 1")
        phones.text.write_bytes(text_of(9, 6000))  # the user writes on; the epoch keeps its copy
        assert (phones.workspace() / "user.txt").exists()
        with phones.app(server.url) as app:
            assert app.train() == ["trained", "FINISHED", "NETWORK"]
            assert app.network().receipt == "1"
        assert states(server) == [("phone-17", "accepted")]
        assert phones.models() == {server.coordinator.current.base_sha256}
        assert phones.remains() == REMAINS
