"""Settings: what is out of range is named, and a round's settings survive as JSON."""

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phonograd.server_agg.aggregation.strategies import STRATEGIES, StrategySettings


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("strategy", "mean", "`strategy` is 'mean', expected one of fedavg, fedsgd, fedatt"),
        ("weighting", "size", "`weighting` is 'size', expected one of tokens, equal"),
        ("server_optimizer", "sgd", "`server_optimizer` is 'sgd', expected one of none, momentum, adam"),
        ("attention_norm", "3", "`attention_norm` is '3', expected one of 1, 2, inf"),
        ("estimator", "mean", "`estimator` is 'mean', expected one of fixed, clipped"),
        ("max_tokens", 0, "`max_tokens` is 0, expected at least 1"),
        ("server_lr", 0.0, "`server_lr` is 0.0, expected more than 0"),
        ("server_lr", math.nan, "`server_lr` is nan, expected more than 0"),
        ("server_lr", math.inf, "`server_lr` is inf, expected more than 0"),
        ("momentum", 1.0, "`momentum` is 1.0, expected at least 0 and below 1"),
        ("trim_share", 0.5, "`trim_share` is 0.5, expected at least 0 and below 0.5"),
        ("krum_byzantine", -1, "`krum_byzantine` is -1, expected at least 0"),
        ("clip_norm", 0, "`clip_norm` is 0, expected at least 1e-6"),
        ("sampling", 1.1, "`sampling` is 1.1, expected at least 1e-9, at most 1"),
        ("noise_multiplier", -0.1, "`noise_multiplier` is -0.1, expected at least 0"),
        ("min_share", 0.0, "`min_share` is 0.0, expected more than 0, at most 1"),
        ("delta", 1.0, "`delta` is 1.0, expected"),
        ("token_cap", 0, "`token_cap` is 0, expected at least 1"),
        ("epsilon_budget", -1.0, "`epsilon_budget` is -1.0, expected more than 0"),
        ("token_cap", 1.5, "`token_cap` is 1.5, expected a whole number or none"),
        ("max_tokens", True, "`max_tokens` is True, expected a whole number"),
        ("per_layer", 1, "`per_layer` is 1, expected true or false"),
        ("server_lr", "1", "`server_lr` is '1', expected a number"),
        ("strategy", None, "`strategy` is None, expected text"),
    ],
)
def test_out_of_range(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(StrategySettings(), **{field: value})
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
    settings = dataclasses.replace(StrategySettings(), **changes)
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
