"""Fixtures: a tiny model with its artifacts folder, and servers on loopback."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from tests.server_agg.workshop import (
    SMALL,
    RunningServer,
    Workshop,
    client_of,
    random_weights,
    run_server,
    write_artifacts,
)


@pytest.fixture
def make_workshop(tmp_path: Path) -> Callable[..., Workshop]:
    def make(config: LanguageModelConfig = SMALL, seed: int = 0, name: str = "artifacts") -> Workshop:
        artifacts = write_artifacts(tmp_path / name, config, random_weights(config, seed))
        return Workshop(tmp_path, config, artifacts)

    return make


@pytest.fixture
def workshop(make_workshop: Callable[..., Workshop]) -> Workshop:
    return make_workshop()


@pytest.fixture
def start_server(workshop: Workshop, tmp_path: Path) -> Callable[..., contextlib.AbstractContextManager[RunningServer]]:
    return lambda **changes: run_server(workshop, tmp_path / "state", **changes)


@pytest.fixture
def server(workshop: Workshop, tmp_path: Path) -> Iterator[RunningServer]:
    with run_server(workshop, tmp_path / "state") as running:
        yield running


@pytest.fixture
def http(server: RunningServer) -> Iterator[httpx.Client]:
    with client_of(server.url) as client:
        yield client
