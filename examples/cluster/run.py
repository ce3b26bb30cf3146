"""Rounds on three servers behind nginx, some of them killed on the way, and the same rounds on one: the same models.

    python -m examples.cluster.run --replicas 3 --rounds 3 --phones 6 --kills 6

It starts PostgreSQL, an S3, nginx and the servers, all on this machine, and ends them. It needs Debian's packages
postgresql and nginx-light, and: pip install '.[postgres,s3]' 'moto[s3]' flask flask-cors
"""

import argparse
import contextlib
import functools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

import phonograd
from examples.cluster.services import BUCKET, held_port, nginx, postgresql, s3
from phonograd.bench.synthetic import random_weights, write_synthetic_artifacts
from phonograd.device_runtime.base.errors import ServerRefusedError, ServerUnreachableError
from phonograd.device_runtime.client.connection import RetryPolicy
from phonograd.device_runtime.client.server_client import Connection, ask, upload_update
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update

MODEL = LanguageModelConfig("lstm", vocabulary=2000, embedding=64, hidden=64, layers=1)
PATIENCE_SECONDS = 120.0
Result = TypeVar("Result")
QUICKLY = RetryPolicy(attempts=20, first_wait_seconds=0.05, longest_wait_seconds=0.2)


@dataclass
class Replica:
    """One server of the cluster, started again on its port after each kill."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start it; it answers a moment later."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stdout=log, stderr=log)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it, and wait until it has ended."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()


@dataclass
class Killer:
    """Kills a replica at a time, at random, and starts it again. kills: how many to kill; done: so far."""

    replicas: Sequence[Replica]
    kills: int
    seed: int = 0
    done: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Kill servers until `over`, or until enough are killed."""
        chance = random.Random(self.seed)
        while self.done < self.kills and not self.over.wait(chance.uniform(0.2, 1.5)):
            replica = chance.choice(self.replicas)
            replica.end(signal.SIGKILL)
            self.done += 1
            self.over.wait(chance.uniform(0.0, 0.5))
            replica.start()


@dataclass(frozen=True)
class Outcome:
    """The models of the rounds, on one server and on the cluster, and what happened on the way."""

    alone: Sequence[str]
    cluster: Sequence[str]
    kills: int
    report: Mapping[str, object]


def compare(replicas: int, rounds: int, phones: int, kills: int, folder: Path) -> Outcome:
    """Run the rounds on one server, then on a cluster; `folder`: an empty one for all files."""
    artifacts = folder / "artifacts"
    write_synthetic_artifacts(artifacts, MODEL, random_weights(MODEL, 0))
    updates, alone = _on_one_server(artifacts, folder, rounds, phones)
    with cluster(artifacts, folder, replicas, phones) as (url, token, servers):
        admin = Connection(url, token)
        names = [f"phone{number}" for number in range(phones)]
        tokens = [_again(functools.partial(_enroll, admin, name)) for name in names]
        killer = Killer(servers, kills)
        with ThreadPoolExecutor(phones + 1) as pool:
            killing = pool.submit(killer.run)
            try:
                model_hashes = [_round(pool, url, tokens, sent, folder) for sent in updates]
            finally:
                killer.over.set()
                killing.result()
        return Outcome(alone, model_hashes, killer.done, _again(lambda: ask(admin, "GET", "/v1/report")))


@contextlib.contextmanager
def cluster(artifacts: Path, folder: Path, count: int, phones: int) -> Iterator[tuple[str, str, list[Replica]]]:
    """A cluster; yields nginx's URL, an administrator's token, and the servers."""
    with contextlib.ExitStack() as stack:
        ledger, s3_environment = stack.enter_context(postgresql()), stack.enter_context(s3(folder))
        ports = [stack.enter_context(held_port()) for _ in range(count)]
        url = stack.enter_context(nginx(folder, ports))
        program = [sys.executable, "-m", "phonograd"]
        shared = ["--set", f"server.ledger={ledger}", "--set", f"server.store=s3://{BUCKET}/service"]
        shared += ["--clients-per-round", str(phones)]
        environment = {**os.environ, **s3_environment, "OPENBLAS_NUM_THREADS": "1"}
        enrol = [*program, "tokens", "add", "boss", "--role", "admin", "--ledger", ledger]
        token = subprocess.run(enrol, env=environment, check=True, capture_output=True, text=True).stdout.strip()
        replicas = []
        for number, port in enumerate(ports):
            state = ["--artifacts", str(artifacts), "--state", str(folder / f"replica{number}"), "--port", str(port)]
            serve = [*program, "serve", *state, *shared, "--set", "security.auth=tokens"]
            replicas.append(Replica(serve, environment, folder / f"replica{number}.log"))
            replicas[-1].start()
            stack.callback(replicas[-1].end)
        yield url, token, replicas


def _on_one_server(artifacts: Path, folder: Path, rounds: int, phones: int) -> tuple[list[list[Path]], list[str]]:
    """The updates of each round, made from the models that one server makes of them."""
    rules = phonograd.RoundRules(clients_per_round=phones)
    updates: list[list[Path]] = []
    models: list[str] = []
    with phonograd.start_server(artifacts, folder / "alone", phonograd.ServerSettings(port=0, rules=rules)) as server:
        base = folder / "base.safetensors"
        for number in range(1, rounds + 1):
            phonograd.download(server.url, base)
            updates.append([_update(base, folder, number, phone) for phone in range(phones)])
            for phone, update in enumerate(updates[-1]):
                phonograd.upload(server.url, update, f"phone{phone}")
            models.append(server.current.base_sha256)
    return updates, models


def _update(base: Path, folder: Path, number: int, phone: int) -> Path:
    """An update as a phone makes it: half of the phones send all weights, half of them the rows that moved."""
    random_numbers, path = np.random.default_rng([number, phone]), folder / f"update-{number}-{phone}.safetensors"
    codec = ("full-f32", "rows-f32")[phone % 2]
    with TensorFile(base) as file:
        noise = {name: random_numbers.standard_normal(spec.shape, np.float32) for name, spec in file.specs.items()}
        trained = {name: file.read(name) + np.float32(1e-3) * noise[name] for name in file.specs}
        write_update(path, file, trained, UpdateInfo(file.sha256(), number, 100 + phone, codec, phone))
    return path


def _round(pool: ThreadPoolExecutor, url: str, tokens: Sequence[str], updates: Sequence[Path], folder: Path) -> str:
    """Every phone fetches the model and sends its update, all at once; the round's model, once it is there."""
    admin, number = (
        Connection(url, tokens[0]),
        _again(lambda: phonograd.current_round(Connection(url, tokens[0])).round),
    )

    def take_part(phone: int, update: Path) -> None:
        server = Connection(url, tokens[phone])
        _again(lambda: phonograd.download(server, folder / f"model-{phone}.safetensors"))
        _again(lambda: upload_update(server, update, f"phone{phone}", retry=QUICKLY))

    list(pool.map(take_part, range(len(updates)), updates))
    end = time.monotonic() + PATIENCE_SECONDS
    while (now := _again(lambda: phonograd.current_round(admin))).round == number:
        if time.monotonic() > end:
            raise TimeoutError(f"round {number} does not close; see the logs in {folder}")
        time.sleep(0.1)
    return now.base_sha256


def _enroll(admin: Connection, name: str) -> str:
    """A token of a phone; a new one if an earlier answer was lost."""
    try:
        return str(ask(admin, "POST", "/v1/phones", {"name": name, "role": "phone", "expires": "1d"}, 201)["token"])
    except ServerRefusedError as error:
        if error.status != 409:
            raise
        return str(ask(admin, "POST", f"/v1/phones/{name}/tokens", {"expires": "1d", "overlap": "0s"}, 201)["token"])


def _again(call: Callable[[], Result]) -> Result:
    """Call until a server answers."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return call()
        except ServerUnreachableError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def main() -> int:
    """Run it; 1 if any model differs."""
    parser = argparse.ArgumentParser(description="Rounds on a cluster, with kills, and on one server")
    for name, default in (("replicas", 3), ("rounds", 3), ("phones", 6), ("kills", 6)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="phonograd-cluster-") as folder:
        outcome = compare(options.replicas, options.rounds, options.phones, options.kills, Path(folder))
    for number, (alone, together) in enumerate(zip(outcome.alone, outcome.cluster, strict=True), 1):
        print(f"round {number}: one server {alone[:16]}  cluster {together[:16]}  {'same' * (alone == together)}")
    print(f"{options.replicas} servers, {outcome.kills} kills")
    return int(list(outcome.alone) != list(outcome.cluster))


if __name__ == "__main__":
    sys.exit(main())
