"""RoundClient on a JVM: rounds end to end against a real server, over HTTP and TLS."""

import json

import pytest
from sqlalchemy import select

from phonograd.device_runtime.client.server_client import report
from phonograd.server_agg.storage.tables import Traffic
from tests.android_harness.app.round_phones import REMAINS, Phones
from tests.server_agg.faults import states
from tests.server_agg.workshop import RunningServer
from tests.support.waiting import until

pytestmark = pytest.mark.apk


def upload_requests(server: RunningServer) -> list[int]:
    """Requests of uploads in the first two rounds, by round."""
    server.coordinator.ledger.flush()
    with server.coordinator.ledger.reading() as session:
        counted = select(Traffic.requests).where(Traffic.kind == "upload", Traffic.round < 3)
        return list(session.scalars(counted.order_by(Traffic.round)))


def test_two_rounds(phones: Phones) -> None:
    with phones.serving() as server, phones.app(server.url) as app:
        first = app.network()
        assert (first.action, first.receipt, first.trouble) == ("TRAIN", "-", "-")
        assert server.coordinator.current.base_sha256 == server.workshop.base_sha256
        assert app.train() == ["trained", "FINISHED", "NETWORK"]
        second = app.network()
        assert (second.action, second.receipt, second.trouble) == ("TRAIN", "1", "-")
        assert phones.models() == {server.coordinator.current.base_sha256}
        assert app.train() == ["trained", "FINISHED", "NETWORK"]
        links = report(server.owner)["rounds"][1]
        assert (links["model_bytes"], links["sent_link_bytes"] > 0) == (0, True)
        assert app.network().receipt == "2"
        assert server.coordinator.current.round == 3
        assert phones.models() == {server.coordinator.current.base_sha256}
        assert states(server) == [("phone-17", "accepted")] * 2
        # Announcement, bytes and receipt are one request; a request is counted once its answer is sent.
        until(lambda: all(upload_requests(server)), "the last upload's request in the ledger")
        assert upload_requests(server) == [1, 1]
        assert phones.remains() == REMAINS


def test_a_phone_counts_its_rounds_of_dp_ftrl_itself(phones: Phones) -> None:
    run = {"strategy": "dp-ftrl", "min_separation": 3, "deadline_seconds": 1e6, "clients_per_round": 2}
    with phones.serving(**run) as server:
        phones.enrol(server)
        with phones.app(server.url) as app:
            assert app.network().action == "TRAIN"
            assert app.train() == ["trained", "FINISHED", "NETWORK"]
            kept = phones.workspace() / "runs.json"
            ((run_sha256, steps),) = json.loads(kept.read_text()).items()
            assert steps == [1]
            (phones.workspace() / "update.safetensors").unlink()
            (phones.workspace() / "round.json").unlink()
            kept.write_text(json.dumps({run_sha256: [2]}))
            assert app.network().action == "TRAIN"
            assert app.train() == ["trained", "FAILED", "NETWORK"]
            assert phones.remains() == REMAINS - {"model.safetensors"} | {"runs.json"}
            assert app.network().action == "NETWORK"  # it has given the round up


def test_a_round_of_single_steps(phones: Phones) -> None:
    with phones.serving(strategy="fedsgd") as server, phones.app(server.url, codec="full-f32") as app:
        app.ask("until 1")
        assert states(server) == [("phone-17", "accepted")]
