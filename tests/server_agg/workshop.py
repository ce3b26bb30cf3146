"""A tiny model, its artifacts folder, updates made from it, and servers on loopback."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from phonograd.bench.synthetic import write_synthetic_artifacts
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.base.settings import fields_of
from phonograd.device_runtime.client.server_client import Connection
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.listening import Listener
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.slow_closing import Students
from phonograd.server_agg.server import AggregationServer
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.server import ServerSettings
from tests.support.waiting import PATIENCE_SECONDS

SMALL = LanguageModelConfig("lstm", vocabulary=50, embedding=8, hidden=8, layers=1)


def random_weights(config: LanguageModelConfig, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {spec.name: rng.standard_normal(spec.shape, np.float32) for spec in config.tensor_specs()}


def write_artifacts(folder: Path, config: LanguageModelConfig, weights: Mapping[str, Array]) -> Artifacts:
    """An artifacts folder as far as a server looks at it."""
    write_synthetic_artifacts(folder, config, weights)
    return open_artifacts(folder)


@dataclass
class Workshop:
    """Makes artifacts of one model, and updates of it."""

    folder: Path
    config: LanguageModelConfig
    artifacts: Artifacts

    @property
    def base_path(self) -> Path:
        return self.artifacts.path(WEIGHTS)

    @property
    def base_sha256(self) -> str:
        return self.artifacts.weights_sha256

    def trained(self, seed: int, scale: float = 0.01, base: Path | None = None) -> dict[str, Array]:
        """Weights that moved by `scale` times noise."""
        noise = random_weights(self.config, 1000 + seed)
        with TensorFile(base or self.base_path) as file:
            return {name: file.read(name) + np.float32(scale) * noise[name] for name in file.specs}

    def update(
        self,
        seed: int,
        round: int = 1,
        tokens: int = 100,
        codec: str = "full-f32",
        base: Path | None = None,
        trained: Mapping[str, Array] | None = None,
    ) -> Path:
        """An update file of phone `seed`, made from `base` (the artifacts' weights if none is given)."""
        base = base or self.base_path
        path = self.folder / f"update-{round}-{seed}-{codec}-{tokens}.safetensors"
        info = UpdateInfo(sha256_of_file(base), round, tokens, codec, seed)
        with TensorFile(base) as file:
            write_update(path, file, self.trained(seed, base=base) if trained is None else trained, info)
        return path


def small_workshop(folder: Path) -> Workshop:
    """A workshop of the smallest model."""
    return Workshop(folder, SMALL, write_artifacts(folder / "artifacts", SMALL, random_weights(SMALL, 0)))


def settings_with(**changes: object) -> ServerSettings:
    """Default settings but for some, each named as its own dataclass names it; models so small are all noise."""
    parts: dict[str, dict[str, Any]] = {"rules": {}, "strategy": {}, "": {"accept_noise": True}}
    kinds = {"rules": RoundRules, "strategy": StrategySettings}
    for name, value in changes.items():
        owner = next((part for part, kind in kinds.items() if name in fields_of(kind)), "")
        parts[owner][name] = value
    return ServerSettings(
        rules=RoundRules(**parts["rules"]), strategy=StrategySettings(**parts["strategy"]), **parts[""]
    )


@dataclass
class Clock:
    """Seconds since 1970, as the test moves them."""

    now: float = field(default_factory=time.time)

    def __call__(self) -> float:
        return self.now


# Admin tokens of the servers that run in this process, by URL.
_OWNERS: dict[str, str] = {}


def client_of(url: str, headers: Mapping[str, str] | None = None) -> httpx.Client:
    """A client for a server on loopback over plain HTTP: does not load the system's CA certificates, waits long.

    To a server of this process that lets phones in without tokens it speaks as its owner, unless there are `headers`.
    """
    if headers is None and url in _OWNERS:
        headers = {"Authorization": f"Bearer {_OWNERS[url]}"}
    return httpx.Client(base_url=url, headers=headers, trust_env=False, verify=False, timeout=PATIENCE_SECONDS)


@dataclass(frozen=True)
class RunningServer:
    """A server that runs in a thread of the test."""

    url: str
    coordinator: Coordinator
    state: Path
    workshop: Workshop
    requests: Collection[object]  # that are not over: their bytes are not counted yet
    owner: Connection  # an administrator's
    admin_url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])


@contextlib.contextmanager
def run_server(
    workshop: Workshop, state: Path, slow_models: Students | None = None, **changes: object
) -> Iterator[RunningServer]:
    settings = settings_with(**{"port": 0, "clients_per_round": 2} | changes)
    coordinator = Coordinator(workshop.artifacts, state, settings, slow_models=slow_models)
    try:
        server = AggregationServer(coordinator, settings, Listener(settings))
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            owner = Connection(server.local_url, server.admin_token)
            if settings.security.auth == "auto":
                _OWNERS[server.url] = str(server.admin_token)
            yield RunningServer(server.url, coordinator, state, workshop, server.requests, owner, server.admin_url)
        finally:
            _OWNERS.pop(server.url, None)
            server.stop()
            thread.join(timeout=PATIENCE_SECONDS)
            assert not thread.is_alive()
    finally:
        coordinator.close()


StartServer = Callable[..., contextlib.AbstractContextManager[RunningServer]]
