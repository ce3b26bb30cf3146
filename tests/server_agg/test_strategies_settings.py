"""Settings: what is out of range is named, and a round's settings survive as JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from phonograd.server_agg.aggregation.settings import STRATEGIES, StrategySettings


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("strategy", "mean", "`strategy` is 'mean', expected one of fedavg, fedsgd, fedatt"),
        ("server_lr", "1", "`server_lr` is '1', expected a finite number, more than 0"),
        ("strategy", None, "`strategy` is None, expected text"),
    ],
)
def test_out_of_range(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        structs.replace(StrategySettings(), **{field: value})
    document = json.loads(StrategySettings().to_json()) | {field: value}
    with pytest.raises(ValueError, match=message):
        StrategySettings.from_json(json.dumps(document))


@given(
    strategy=st.sampled_from(STRATEGIES),
    server_lr=st.floats(1e-300, 1e6),
    sampling=st.floats(1e-9, 1),
    token_cap=st.none() | st.integers(1, 10**18 - 1),
    per_layer=st.booleans(),
)
def test_json_keeps_every_bit(**changes: Any) -> None:
    settings = structs.replace(StrategySettings(), **changes)
    assert StrategySettings.from_json(settings.to_json()) == settings
    assert settings.private == (settings.strategy in {"dp-fedavg", "dp-fedsgd", "dp-ftrl"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "expected a JSON object, found list"),
        ('{"krum": 1}', "'krum' is unknown; was it written by a newer version"),
    ],
)
def test_other_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StrategySettings.from_json(text)


def test_what_an_earlier_version_did_not_know_gets_its_default() -> None:
    assert StrategySettings.from_json('{"strategy": "median"}') == StrategySettings(strategy="median")
