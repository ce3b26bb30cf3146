"""RoundClient on a JVM: rounds end to end against a real server, over HTTP and TLS."""

from pathlib import Path

import pytest

from phonograd.device_runtime.client.server_client import report
from tests.android_harness.app.jvm import Jvm
from tests.android_harness.app.round_phones import REMAINS, Phones, exported, serving
from tests.server_agg.faults import states
from tests.support.phone_command import Place

pytestmark = pytest.mark.apk


@pytest.fixture
def phones(jvm: Jvm, place: Place, tmp_path: Path) -> Phones:
    return Phones(jvm, place, tmp_path)


def test_two_rounds(phones: Phones, place: Place, tmp_path: Path) -> None:
    with serving(place, tmp_path) as server, phones.app(server.url) as app:
        first = app.network()
        assert (first.action, first.receipt, first.trouble) == ("TRAIN", "-", "-")
        assert server.coordinator.current.base_sha256 == exported(place)
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
        assert phones.left() == REMAINS


def test_a_round_of_single_steps(phones: Phones, place: Place, tmp_path: Path) -> None:
    with serving(place, tmp_path, strategy="fedsgd") as server, phones.app(server.url, codec="full-f32") as app:
        app.ask("until 1")
        assert states(server) == [("phone-17", "accepted")]
