"""Rounds of one phone whose update moves few rows, so that links are small."""

from pathlib import Path

from phonograd.device_runtime.formats.tensor_file import Array, load_tensors
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.storage.tables import Model
from tests.server_agg.coordinators import send
from tests.server_agg.workshop import Workshop

LOSSY = {"clients_per_round": 1, "publish": "top-rows", "publish_bits": 1}
LOSSLESS = {"clients_per_round": 1}


def few_rows(workshop: Workshop, base: Path, seed: int) -> dict[str, Array]:
    """Weights of which five embedding rows moved, and the output's bias."""
    trained, moved = load_tensors(base), workshop.trained(seed, base=base)
    trained["embedding.weight"][seed : seed + 5] = moved["embedding.weight"][seed : seed + 5]
    trained["decoder.bias"] = moved["decoder.bias"]
    return trained


def run_round(coordinator: Coordinator, workshop: Workshop, seed: int = 0) -> Model:
    """One round of one phone; the row of its model."""
    current, seed = coordinator.current, seed or coordinator.current.round
    base = coordinator.folder.model(current.base_sha256)
    trained = few_rows(workshop, base, seed)
    send(coordinator, workshop.update(seed, round=current.round, base=base, trained=trained), "a")
    with coordinator.ledger.reading() as session:
        return session.get_one(Model, coordinator.current.base_sha256)
