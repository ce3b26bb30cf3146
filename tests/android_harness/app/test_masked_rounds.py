"""RoundClient in masked rounds: with other phones, killed at every step, refused, cut off."""

import contextlib
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.masked.phone import certify, new_identity
from phonograd.server_agg.masked.round import MaskedRound
from tests.android_harness.app.jvm import Jvm
from tests.android_harness.app.masked_others import MASKED, SIZES, Others
from tests.android_harness.app.portal import HTML, JSON, Answer, answering
from tests.android_harness.app.round_phones import REMAINS, App, Phones, serving
from tests.server_agg.faults import states
from tests.server_agg.relay import relay_to
from tests.server_agg.workshop import RunningServer
from tests.support.phone_command import Place
from tests.support.waiting import until

pytestmark = pytest.mark.apk

NAMES = ("phone-17", "phone-18", "phone-19")
KEPT = REMAINS | {"identity.key", "masking"}
# From the grid update to the end of the phone's part: requests, and both sides of each change of the disk.
STEPS = 50


def in_folder(phones: Phones, name: str = "phone-17") -> set[str]:
    return {path.name for path in (phones.workspace(name) / "masking").iterdir()}


@pytest.fixture(scope="session")
def trained(jvm: Jvm, place: Place, tmp_path_factory: pytest.TempPathFactory) -> Phones:
    """A phone with a grid update of round 1."""
    folder = tmp_path_factory.mktemp("trained")
    phones = Phones(jvm, place, folder)
    with serving(place, folder, **SIZES) as server, phones.app(server.url) as app:
        assert app.network().action == "TRAIN"
        assert app.train() == ["trained", "FINISHED", "NETWORK"]
    assert phones.remains() == {"artifacts", "round.json", "round.lock", "grid.safetensors"}
    return phones


class Scene(NamedTuple):
    """The trained phone at a server of round 1, beside two others."""

    phones: Phones
    server: RunningServer
    others: Others

    def take_part(self, app: App) -> list[str] | None:
        """Take turns until the phone has done its part, and is the only one to have answered: the receipts that it had.

        None: it was killed.
        """
        receipts = []
        while True:
            self.others.go(before="answer")
            said = app.ask("network")
            if not said or said[0][1] == "killed":
                return None
            receipts.append(said[0][4])
            if not (self.phones.workspace() / "grid.safetensors").exists():
                return receipts

    def model(self) -> str:
        """The round's."""
        self.others.go()
        until(lambda: self.server.coordinator.current.round == 2, "the next round")
        assert states(self.server) == [(name, "accepted") for name in NAMES]
        return self.server.coordinator.current.base_sha256


@contextlib.contextmanager
def scene(
    trained: Phones, folder: Path, names: tuple[str, ...] = NAMES[1:], vendor: tuple[Path, str] | None = None
) -> Iterator[Scene]:
    phones = Phones(trained.jvm, trained.place, folder)
    shutil.rmtree(phones.workspace())
    shutil.copytree(trained.workspace(), phones.workspace(), symlinks=True)
    settings = SIZES | {"masked": replace(MASKED, vendor=vendor and vendor[1])}
    with serving(trained.place, folder, **settings) as server:
        others = Others(folder, server.url, trained.workspace() / "grid.safetensors", names, vendor)
        with contextlib.closing(others):
            yield Scene(phones, server, others)


@pytest.fixture(scope="session")
def undisturbed(trained: Phones, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model of a round that nobody disturbed."""
    with scene(trained, tmp_path_factory.mktemp("undisturbed")) as at, at.phones.app(at.server.url, cohort=3) as app:
        assert at.take_part(app) == ["-", "1", "-"]
        assert app.steps == STEPS, app.steps
        return at.model()


@pytest.mark.parametrize("step", [10, 40])
def test_an_app_killed_at_a_step(step: int, trained: Phones, undisturbed: str, tmp_path: Path) -> None:
    with scene(trained, tmp_path) as at:
        with at.phones.app(at.server.url, cohort=3, halt=step) as app:
            assert at.take_part(app) is None
        with at.phones.app(at.server.url, cohort=3) as app:
            check_the_rest(at, app, undisturbed)


def test_killed_at_each_step(trained: Phones, undisturbed: str, tmp_path: Path) -> None:
    """One JVM: an error ends the phone, which begins again with its files."""
    (tmp_path / "app").mkdir()
    with Phones(trained.jvm, trained.place, tmp_path / "app").app("-", cohort=3) as app:
        for step in range(1, STEPS + 1):
            (folder := tmp_path / str(step)).mkdir()
            with scene(trained, folder) as at:
                app.scene(at.phones, at.server.url, step)
                assert at.take_part(app) is None, step
                check_the_rest(at, app, undisturbed)


def check_the_rest(at: Scene, app: App, undisturbed: str) -> None:
    """The phone does its part, the round ends with the undisturbed model, and nothing is left."""
    at.take_part(app)
    assert at.model() == undisturbed != at.server.workshop.base_sha256
    app.ask("until 1")
    assert at.phones.models() == {undisturbed}
    assert at.phones.remains() == KEPT
    assert in_folder(at.phones) == {"history.json"}


def test_three_apps_and_what_they_send(jvm: Jvm, place: Place, tmp_path: Path) -> None:
    """Killed and cut off at random, they send neither text nor grid update nor secret."""
    phones, cut = Phones(jvm, place, tmp_path, NAMES), random.Random(5)
    private = [phones.text.read_bytes()[:40]]
    with serving(place, tmp_path, **SIZES) as server, relay_to(server.port) as (wire, url):
        with phones.app(server.url, cohort=3) as app:
            app.ask("network")
            app.ask("train")
            for name in NAMES:
                with TensorFile(phones.workspace(name) / "grid.safetensors") as grid:
                    private.append(grid.read("codes").tobytes()[:64])
        for cuts in (wire.cuts, wire.down_cuts):
            cuts += [cut.choice((cut.randrange(3000), None)) for _ in range(40)]
        with phones.app(url, cohort=3, **{"http.keepAlive": "false"}) as app:
            app.ask("network")
            for name in NAMES:
                private.append((phones.workspace(name) / "identity.key").read_bytes().split()[1])
                masking = phones.workspace(name) / "masking" / "round.json"
                secrets = json.loads(masking.read_text()) if masking.exists() else {}
                private += [secrets[kind].encode() for kind in ("sealing", "masking") if secrets]
        with phones.app(url, cohort=3, kill=60, seed=2, **{"http.keepAlive": "false"}) as app:
            said = app.ask("until 1")
        assert {words[1] for words in said} >= {"killed", "TRAIN"} > {"began"} & {words[1] for words in said}
        assert states(server) == [(name, "accepted") for name in NAMES]
        assert phones.models() == {server.coordinator.current.base_sha256}
        assert phones.remains() == KEPT
        assert len(private) > 7
        assert b'"masking":' in wire.heard
        assert not [one for one in private if one in wire.heard]


@pytest.mark.parametrize(
    ("pinned", "trouble"),
    [
        ("vendor", None),
        ("stranger", "phone phone-18: a certificate by the vendor for this name and identity expected"),
    ],
)
def test_a_certified_phone(pinned: str, trouble: str | None, trained: Phones, tmp_path: Path) -> None:
    keys = {name: new_identity(tmp_path / name) for name in ("vendor", "stranger")}
    with scene(trained, tmp_path, vendor=(tmp_path / "vendor", keys["vendor"])) as at:
        with at.phones.app(at.server.url) as app:
            ((_, key),) = app.ask("key")
            assert app.ask("key") == [["phone-17", key]]
        certificate = certify(tmp_path / "vendor", "phone-17", key)
        with at.phones.app(at.server.url, cohort=3, vendor=keys[pinned], certificate=certificate) as app:
            if trouble is None:
                assert at.take_part(app) == ["-", "1", "-"]
                assert at.model()
            else:
                at.others.go()
                assert trouble in app.network().trouble
                over(at, app)


def test_no_place_in_the_cohort(trained: Phones, tmp_path: Path) -> None:
    with scene(trained, tmp_path, ("a", "b", "c")) as at, at.phones.app(at.server.url, cohort=3) as app:
        at.others.go(before="answer")
        said = app.network()
        assert (said.action, said.after, said.refused) == ("NETWORK", 300, "409 false")
        over(at, app)


def test_too_few_phones(trained: Phones, tmp_path: Path) -> None:
    with scene(trained, tmp_path) as at, at.phones.app(at.server.url) as app:
        at.others.go()
        said = app.network()
        assert (said.action, said.after, "at least 50 expected" in said.trouble) == ("NETWORK", 300, True)
        over(at, app)


def test_the_round_is_over_before_the_masks(trained: Phones, tmp_path: Path) -> None:
    with scene(trained, tmp_path) as at, at.phones.app(at.server.url, cohort=3) as app:
        assert app.network().after == 10_000  # an eighth of the stage
        at.server.coordinator.rollback(0)
        said = app.network()
        assert (said.action, said.refused) == ("NETWORK", "410 true")
        over(at, app)


def test_the_round_after_a_failed_one_is_not_trained_in_vain(trained: Phones, tmp_path: Path) -> None:
    with scene(trained, tmp_path) as at, at.phones.app(at.server.url, cohort=3) as app:
        while app.network().receipt == "-":
            at.others.go(before="list")
        masked = at.server.coordinator.round.aggregator.stages
        assert isinstance(masked, MaskedRound)
        masked.failure = "in a test"
        until(lambda: at.server.coordinator.current.round == 2, "the next round")
        assert app.network().refused == "410 true"
        said = app.network()
        assert (said.action, said.after) == ("NETWORK", 3600)
        assert "a model of which this phone has sent a masked update" in said.trouble
        assert app.train() == ["nothing to train"]


def over(at: Scene, app: App) -> None:
    """The round is, for the phone: nothing of it is left, and it is not trained for again."""
    assert at.phones.remains() == KEPT - {"model.safetensors"}
    assert in_folder(at.phones) == {"history.json"}
    if at.server.coordinator.current.round == 1:
        assert app.network().action == "NETWORK"
        assert app.train() == ["nothing to train"]


def test_wrong_answers_lose_nothing(trained: Phones, undisturbed: str, tmp_path: Path) -> None:
    """Neither a captive portal's nor a proxy's is taken for the server's; nor does a full disk end the round."""
    answers: tuple[Answer, ...] = (
        HTML,
        (200, JSON, b"<html>"),
        (200, JSON, b'{"cohort": [{"phone": "'),
        (202, {}, b""),
        (302, {"Location": "/v1/round"}, b""),
        (409, {"Content-Type": "text/html"}, b""),
        (410, {"Content-Type": "text/html"}, b""),
        (401, {"Content-Type": "application/problem+json"}, b"{}"),
    )
    remaining: list[Answer] = []
    with scene(trained, tmp_path) as at:
        files = (at.phones.workspace() / "grid.safetensors", at.phones.workspace() / "masking" / "round.json")
        with answering(lambda _: remaining[0]) as portal, at.phones.app(portal, cohort=3) as app:
            for answer in answers:
                remaining[:] = [answer]
                assert app.network().trouble != "-"
                kept = [sha256_of_file(path) for path in files]
        full = files[1].with_name(".answer.json.partial")
        full.symlink_to("/dev/full")
        with at.phones.app(at.server.url, cohort=3) as app:
            at.others.go()
            assert "answer.json cannot be written, nothing is lost" in app.network().trouble
            assert kept == [sha256_of_file(path) for path in files]
            at.take_part(app)
            assert at.model() == undisturbed


def test_masked_rounds_alone(phones: Phones) -> None:
    """An app without a codec trains for no other round, and sends no update that an earlier one trained."""
    with phones.serving() as server:
        with phones.app(server.url) as app:
            app.network()
            app.train()
        with phones.app(server.url, codec="none") as app:
            said = app.network()
            assert (said.action, said.after) == ("NETWORK", 3600)
            assert "is not masked" in said.trouble
            assert app.train() == ["nothing to train"]
        assert states(server) == []
        assert phones.remains() == REMAINS - {"model.safetensors"}


def test_another_server_masks_the_same_round(phones: Phones, tmp_path: Path) -> None:
    """The phone has a place in a round that was not masked: what it trains then stays with it."""
    with phones.serving() as server, phones.app(server.url) as app:
        app.network()
    (tmp_path / "masked").mkdir()
    with serving(phones.place, tmp_path / "masked", **SIZES) as server, phones.app(server.url, cohort=3) as app:
        app.network()
        app.train()
        assert phones.remains() & {"grid.safetensors", "update.safetensors"} == {"grid.safetensors"}
