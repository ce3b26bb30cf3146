"""Servers of one service: their rounds and models, what they do at a deadline, and updates that arrive in between."""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import select

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.responses import Receipt
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Model, Round, Update
from tests.server_agg import ftrl_runs
from tests.server_agg.coordinators import open_coordinator, send
from tests.server_agg.workshop import Workshop

FTRL = ftrl_runs.FTRL | {"min_separation": 2}
SAMPLED = FTRL | {"strategy": "dp-fedavg", "sampling": 1.0, "population": 2}


def name_of(value: object) -> str:
    return str(value["strategy"] if isinstance(value, dict) else value)


def rounds(ledger: Ledger) -> list[Round]:
    with ledger.reading() as session:
        return list(session.scalars(select(Round).order_by(Round.number)))


def endings(server: Coordinator) -> list[str | None]:
    return [one.ending for one in rounds(server.ledger)]


def models(server: Coordinator) -> list[Model]:
    with server.ledger.reading() as session:
        return list(session.scalars(select(Model).order_by(Model.round)))


def accepted_phones(server: Coordinator) -> set[str]:
    with server.ledger.reading() as session:
        return set(session.scalars(select(Update.phone).where(Update.state == "accepted")))


def follow(servers: list[Coordinator], number: int) -> None:
    for server in servers:
        server.tick()
        assert server.current.round == number


def one_process(workshop: Workshop, state: Path, settings: ServerSettings, count: int = 2) -> list[list[Path]]:
    """The updates of rounds on a server of the default kind; its models are in its folder."""
    made = []
    with open_coordinator(workshop, state, settings) as server:
        for number in range(1, count + 1):
            base = server.folder.model(server.current.base_sha256)
            made.append([workshop.update(10 * number + seed, number, 100 * seed, base=base) for seed in (1, 2, 3)])
            for seed, update in enumerate(made[-1]):
                send(server, update, f"phone{seed}")
    return made


def send_without_closing(server: Coordinator, update: Path, phone: str = "a") -> None:
    """Accept the last update of a round, whose closing is left for later."""
    end, server._end_or_try_again = server._end_or_try_again, lambda: None  # type: ignore[method-assign]
    send(server, update, phone)
    server._end_or_try_again = end  # type: ignore[method-assign]


def upload(server: Coordinator, update: Path, phone: str) -> Callable[[], Receipt]:
    """Store all bytes of an update. Returns what ingests it."""
    made = server.create_upload(UploadMetadata(phone, update.stat().st_size))
    server.folder.upload(made.id).write_bytes(update.read_bytes())
    return lambda: server.ingest(made.id, sha256_of_file(update), 0)


def before_acceptance(server: Coordinator, deed: Callable[[], object]) -> None:
    """Let `deed` happen once `server` has measured the next update, and before it is accepted."""
    link_into_place = server.folder.link_into_place

    def link_and_do(source: Path, target: Path, name: str) -> None:
        server.folder.link_into_place = link_into_place  # type: ignore[method-assign]
        link_into_place(source, target, name)
        deed()

    server.folder.link_into_place = link_and_do  # type: ignore[method-assign]


def enrol(*servers: Coordinator, count: int = 3) -> None:
    for number in range(count):
        PhoneRegistry(servers[0].ledger).add(f"phone{number}", "phone", "90d", "test")
    for server in servers:
        server.tick()


def deadline(*servers: Coordinator, seconds: float = 101.0) -> None:
    """Let time pass, at all servers."""

    def later(clock: Callable[[], float]) -> Callable[[], float]:
        return lambda: clock() + seconds

    for server in servers:
        server.ledger.clock = later(server.ledger.clock)


def end_round(first: Coordinator, *others: Coordinator) -> None:
    """Let the first one end the round at its deadline."""
    number = first.current.round
    deadline(first, *others)
    follow([first, *others], number + 1)


def update_of(workshop: Workshop, server: Coordinator, seed: int) -> Path:
    server.round.refresh()
    base = server.folder.fetch(server.folder.model(server.current.base_sha256))
    return workshop.update(seed, round=server.current.round, base=base)
