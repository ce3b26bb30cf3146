"""kill -9 of `phonograd serve --masked` in each stage of a round: it goes on to the same sum, or the next one opens."""

import contextlib
import signal
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import numpy as np
import pytest

from phonograd.device_runtime.client.server_client import download_model, upload_update
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.server_agg.rounds.coordinator import Coordinator
from tests.server_agg.masked_fleet import STAGES, Fleet
from tests.server_agg.test_counting_proxy import served
from tests.server_agg.workshop import Workshop, client_of
from tests.support.waiting import until

# A stage waits for a day, so that nothing here hangs on the clock.
MASKED = ("--masked", "--cohort", 4, "--min-cohort", 3, "--support", 64, "--stage-seconds", 86400)
FIRST, SECOND, *OTHERS = PHONES = [f"phone{one}" for one in range(4)]


class FarFleet(Fleet):
    """Phones of a server in a process of its own; they keep what they were answered."""

    def __init__(self, http: httpx.Client, workshop: Workshop):
        current = SimpleNamespace(**http.get("/v1/round").json())
        super().__init__(cast(Coordinator, SimpleNamespace(current=current)), workshop, len(PHONES))
        self.http = http
        self.answers: dict[tuple[str, str], tuple[Any, Mapping[str, Any]]] = {}

    def send(self, name: str, kind: str, body: Any) -> Mapping[str, Any] | None:
        """Every request is answered, or its answer comes later: nobody is told to begin again."""
        if kind == "upload":
            upload_update(str(self.http.base_url), body, name)
            return {}
        response = self.http.post(f"/v1/masked/{kind}", json=body)
        assert response.status_code in (200, 202), response.text
        answer = response.json() if response.status_code == 200 else None
        if answer is not None:
            known = self.answers.setdefault((name, kind), (body, answer))
            assert known == (body, answer)
        return answer

    def ask_again(self) -> None:
        """All answers stand: the server has forgotten none, and fixed nothing anew."""
        for (name, kind), (body, answer) in list(self.answers.items()):
            assert self.send(name, kind, body) == answer

    def finish(self) -> None:
        """Go on until all have done their part and the next round is open."""
        while any(left := [name for name in PHONES if self.requests[name]]):
            moved = [self.deliver(name) for name in left]
            assert any(moved)
        until(lambda: self.http.get("/v1/round").json()["round"] == self.number + 1, "the next round")

    def check_model(self, workshop: Workshop) -> None:
        """The open round's model is that of the plain sum of all."""
        path = workshop.folder / "made.safetensors"
        download_model(str(self.http.base_url), path)
        found = load_tensors(path)
        for name, expected in self.model_of(PHONES, workshop.base_path).items():
            np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-6)


@contextlib.contextmanager
def killed_at_last(workshop: Workshop, state: Path) -> Iterator[httpx.Client]:
    with served(workshop, state, signal.SIGKILL, *MASKED) as url, client_of(url) as http:
        yield http


@pytest.mark.long
@pytest.mark.parametrize("stage", STAGES)
def test_a_killed_server_goes_on_with_the_round(workshop: Workshop, state: Path, stage: str) -> None:
    with killed_at_last(workshop, state) as http:
        fleet = FarFleet(http, workshop)
        fleet.to(stage)
        for name in (FIRST, SECOND):
            fleet.deliver(name)
    with killed_at_last(workshop, state) as fleet.http:  # half of the stage's messages had come
        fleet.ask_again()
        for name in (*OTHERS, FIRST):
            if fleet.requests[name]:
                fleet.deliver(name)
        if fleet.requests[SECOND]:
            fleet.send(SECOND, *fleet.requests[SECOND])  # and the answer is lost
    with killed_at_last(workshop, state) as fleet.http:  # some phones are in the next stage
        if stage != "answer":
            fleet.ask_again()
        fleet.finish()
        fleet.check_model(workshop)


@pytest.mark.long
def test_a_server_that_was_down_for_longer_than_a_stage_opens_the_next_round(workshop: Workshop, state: Path) -> None:
    with killed_at_last(workshop, state) as http:
        fleet = FarFleet(http, workshop)
        fleet.to("upload")
        fleet.deliver(FIRST)
    with contextlib.closing(sqlite3.connect(state / "ledger.sqlite")) as ledger, ledger:
        ledger.execute("UPDATE cohorts SET since = since - 100000")
    with killed_at_last(workshop, state) as fleet.http:
        until(lambda: fleet.http.get("/v1/round").json()["round"] == 2, "the next round")
        refused = fleet.http.post("/v1/masked/list", json={"round": 1, "phone": FIRST})
        assert refused.status_code == 410
        assert "failed: uploading: at least 3 phones expected, 1 got through" in refused.json()["detail"]
        again = FarFleet(fleet.http, workshop)
        again.finish()
        again.check_model(workshop)
