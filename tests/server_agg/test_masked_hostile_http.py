"""`phonograd train --server` at a hostile server of masked rounds: it leaves the round, and says why."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from phonograd.api import rounds
from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.client.server_client import upload_update
from phonograd.device_runtime.masked.cohort import MaskedCohort
from phonograd.device_runtime.masked.phone import new_identity
from phonograd.server_agg.masked import round as round_
from phonograd.server_agg.masked.round import MaskedRound
from phonograd.server_agg.masked.stages import Facts
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.storage import cohorts
from tests.server_agg.masked_fleet import Fleet
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server
from tests.simulation.test_published import ARTIFACTS
from tests.support.command_line import Outcome, Run, phono
from tests.support.waiting import until

__all__ = ["phono"]
pytestmark = pytest.mark.long

MASKED = MaskedSettings(cohort=4, min_cohort=3, clip=5.0, stage_seconds=60.0, support=64)
NAME = "phone9"
Document = Mapping[str, Any]
Change = Callable[[str, str, Document, dict[str, Any]], Document]  # of kind, phone, honest answer, reference phones


class Scene:
    """A server that answers as `change` says, three reference phones, and the command as the fourth."""

    def __init__(self, server: RunningServer, folder: Path, phono: Run):
        self.server, self.folder, self.phono = server, folder, phono
        new_identity(folder / "phone.key")
        (folder / "text").write_text("\n".join(f"w{n} w{n % 7} w{n % 5}" for n in range(40)))
        workshop = SimpleNamespace(folder=folder, base_path=ARTIFACTS.path("weights.safetensors"))
        self.fleet = Fleet(server.coordinator, cast(Workshop, workshop), 3)
        self.refused: dict[str, str] = {}

    def train(self) -> Outcome:
        line = ["train", ARTIFACTS.folder, "--user", self.folder / "text", "--server", self.server.url]
        line += ["--phone", NAME, "--set", f"masked.identity={self.folder / 'phone.key'}"]
        line += ["--set", "masked.min_cohort=3", "--set", "training.max_unknown=1"]
        return self.phono(*line)

    def train_beside_others(self, refuse: int = 0) -> Outcome:
        """The others go on beside the command, and after it until so many of them refuse."""
        over = threading.Event()
        others = threading.Thread(target=self._go, args=(over,))
        others.start()
        try:
            done = self.train()
            until(lambda: len(self.refused) >= refuse, "the others' refusal")
            return done
        finally:
            over.set()
            others.join()

    def _go(self, over: threading.Event) -> None:
        with client_of(self.server.url, {}) as http:
            self.fleet.send = lambda name, kind, body: self._send(http, name, kind, body)  # type: ignore[method-assign]
            while not over.wait(0.1):
                for name in [one for one in self.fleet.phones if one not in self.refused]:
                    try:
                        if self.fleet.requests[name] is not None:
                            self.fleet.deliver(name)
                    except UpdateError as error:
                        self.refused[name] = str(error)

    def _send(self, http: httpx.Client, name: str, kind: str, body: Any) -> Document | None:
        if kind == "upload":
            upload_update(self.server.url, body, name)
            return {}
        answer = http.post(f"/v1/masked/{kind}", json=body)
        return dict(answer.json()) if answer.status_code == 200 else None


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phono: Run) -> Iterator[Callable[[Change], Scene]]:
    """Begin a scene."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(round_, "POLLS", MASKED.stage_seconds)  # phones ask each second
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "kept"))
    monkeypatch.setattr(rounds, "cache_folder", lambda: tmp_path / "cache")
    served = cast(Workshop, SimpleNamespace(artifacts=ARTIFACTS))
    with contextlib.ExitStack() as stack:

        def begin(change: Change) -> Scene:
            sizes = {"clients_per_round": 4, "weighting": "equal", "masked": MASKED}
            server = stack.enter_context(run_server(served, tmp_path / "state", **sizes))
            at, honest = Scene(server, tmp_path, phono), Facts.answer

            def answer(facts: Facts, kind: Any, phone: str) -> Document | None:
                found = honest(facts, kind, phone)
                return found if found is None else change(kind, phone, found, at.fleet.phones)

            monkeypatch.setattr(Facts, "answer", answer)
            return at

        yield begin


def with_other_members(kind: str, phone: str, answer: Document, phones: dict[str, Any]) -> Document:
    return {**answer, "members": [NAME, "phone0", "phone1"]} if kind == "shares" and phone == NAME else answer


def test_other_members_are_refused_on_both_sides(
    scene: Callable[[Change], Scene], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("check_members", "list"):  # the server knows what it has done
        monkeypatch.setattr(MaskedCohort, name, lambda *given: None)
    at = scene(with_other_members)
    done = at.train_beside_others(refuse=3)
    expected = "answer to this phone's list: phone phone0: its signature is not of these members: it was shown others"
    assert (done.code, expected in done.err) == (7, True), done.err
    assert set(at.refused.values()) == {f"phone {NAME}: wrong signature of the members"}
    with at.server.coordinator.ledger.reading() as session:
        assert len(cohorts.messages_of(session, 1)["members"]) == 4
        assert cohorts.messages_of(session, 1)["answer"] == {}


def test_a_second_update_of_a_model_is_refused(scene: Callable[[Change], Scene]) -> None:
    """The round fails once all updates are there, so that the next one has the same model."""

    def failing(kind: str, phone: str, answer: Document, phones: dict[str, Any]) -> Document:
        if kind == "list":
            masked = at.server.coordinator.round.aggregator.stages
            assert isinstance(masked, MaskedRound)
            masked.failure = "in a test"
        return answer

    at = scene(failing)
    done = at.train_beside_others()
    assert (done.code, "round 1: failed: in a test" in done.err) == (8, True), done.err
    until(lambda: at.server.coordinator.current.round == 2, "the next round")
    done = at.train()
    base = at.server.coordinator.current.base_sha256
    assert (done.code, f"this phone has sent a masked update of model {base}" in done.err) == (29, True), done.err
    assert not [path for path in Path("phonograd-updates").rglob("*") if path.is_file()]  # it is of no more use
