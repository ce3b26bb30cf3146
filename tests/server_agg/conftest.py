"""Fixtures: a tiny model with its artifacts folder, and servers on loopback."""

import contextlib
import functools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import trustme
from sqlalchemy import Connection, Engine, event
from sqlalchemy.util import LRUCache

from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.server_agg.aggregation.correlation import optimise
from phonograd.server_agg.aggregation.privacy import mechanism
from phonograd.server_agg.settings.security import SecuritySettings
from phonograd.server_agg.storage import noise_keys
from tests.server_agg.slow_models import Work
from tests.server_agg.workshop import (
    SMALL,
    Clock,
    RunningServer,
    Workshop,
    client_of,
    random_weights,
    run_server,
    write_artifacts,
)


class Statements(LRUCache[Any, Any]):
    """Compiled statements, whichever of equal dialects they were compiled for."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((type(key[0]), *key[1:]), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        super().__setitem__((type(key[0]), *key[1:]), compiled)


@pytest.fixture(scope="session", autouse=True)
def statements_of_all_ledgers() -> Iterator[None]:
    """Compile a statement of SQLite once a process: each test has its own ledger, which would compile it again."""
    statements = Statements(2000)

    def share(connection: Connection) -> None:
        if connection.dialect.name == "sqlite":
            connection.engine._compiled_cache = statements

    event.listen(Engine, "engine_connect", share)
    yield
    event.remove(Engine, "engine_connect", share)


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
def state(tmp_path: Path) -> Path:
    """Path for a server's state folder."""
    return tmp_path / "state"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def work() -> Work:
    return Work()


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


@dataclass(frozen=True)
class Certificates:
    """A private authority and a server's certificate from it, as PEM files."""

    authority: Path
    certificate: Path
    key: Path


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    made = Certificates(folder / "authority.pem", folder / "certificate.pem", folder / "key.pem")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(made.authority))
    issued = authority.issue_cert("127.0.0.1", "localhost")
    made.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    made.key.write_bytes(issued.private_key_pem.bytes())
    made.key.chmod(0o600)
    return made


@pytest.fixture
def tls(certificates: Certificates) -> SecuritySettings:
    return SecuritySettings(tls_cert=certificates.certificate, tls_key=certificates.key)


optimise_blt = functools.cache(optimise.optimise_blt)


@pytest.fixture
def known_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same key for a round of every server, by its number; another one if a server makes it twice.

    And a run's matrix is computed once for all tests.
    """
    monkeypatch.setattr("phonograd.server_agg.aggregation.correlation.run.optimise_blt", optimise_blt)
    made: Counter[tuple[Path, int]] = Counter()

    class Keys(noise_keys.NoiseKeys):
        def get_or_create(self, number: int) -> bytes:
            def key(count: int) -> bytes:
                made[self._folder, number] += 1
                return bytes([number, made[self._folder, number]]) * (count // 2)

            monkeypatch.setattr(noise_keys, "secrets", SimpleNamespace(token_bytes=key))
            return super().get_or_create(number)

    monkeypatch.setattr("phonograd.server_agg.storage.state_folder.NoiseKeys", Keys)


@pytest.fixture
def known_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same phones and noise in every run."""
    chance = random.Random(1)
    monkeypatch.setattr(mechanism, "secrets", SimpleNamespace(randbits=chance.getrandbits))
    monkeypatch.setattr(noise_keys, "secrets", SimpleNamespace(token_bytes=chance.randbytes))
