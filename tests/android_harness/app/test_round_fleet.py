"""A fleet of apps at one server: cut off and killed at random, and each accepted update counts once."""

import random
from pathlib import Path

import pytest

from tests.android_harness.app.jvm import Jvm
from tests.android_harness.app.round_phones import REMAINS, Phones, serving
from tests.server_agg.faults import states
from tests.server_agg.relay import relay_to
from tests.support.phone_command import Place

pytestmark = pytest.mark.apk

NAMES = [f"phone-{number}" for number in range(20)]


def test_twenty_phones(jvm: Jvm, place: Place, tmp_path: Path) -> None:
    """Phones are killed alone, one step in 30, and all at once after 100 and after 300 steps."""
    phones, cut = Phones(jvm, place, tmp_path, NAMES), random.Random(11)
    with serving(place, tmp_path, clients_per_round=len(NAMES)) as server, relay_to(server.port) as (wire, url):
        for cuts in (wire.cuts, wire.down_cuts):
            cuts += [cut.choice((cut.randrange(100_000), None, None, None)) for _ in range(300)]
        properties = {"http.keepAlive": "false", "kill": 33}
        for seed, halt in ((1, {"halt": 100}), (2, {"halt": 300}), (3, {})):
            with phones.app(url, seed=seed, **properties, **halt) as app:
                said = app.ask("until 2")
        assert {words[1] for words in said} >= {"killed", "TRAIN"}
        assert states(server) == sorted((name, "accepted") for name in NAMES for _ in range(2))
        assert server.coordinator.current.round == 3
        assert phones.models() == {server.coordinator.current.base_sha256}
        assert phones.left() == REMAINS
