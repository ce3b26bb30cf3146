"""Rounds of a masked fleet in the ledger, and the model that one must have made."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import cohorts
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Round
from tests.server_agg.coordinators import file_names, open_coordinator
from tests.server_agg.masked_fleet import Fleet, masked_settings
from tests.server_agg.workshop import Clock, Workshop


@contextlib.contextmanager
def open_masked(
    workshop: Workshop, state: Path, settings: ServerSettings | int = 3, clock: Clock | None = None
) -> Iterator[Coordinator]:
    """Open a coordinator of these settings, or of rounds of so many phones."""
    settings = masked_settings(settings) if isinstance(settings, int) else settings
    with open_coordinator(workshop, state, settings, clock or Clock()) as coordinator:
        yield coordinator


def a_round(ledger: Ledger, number: int = 1) -> Round:
    with ledger.reading() as session:
        return session.get_one(Round, number)


def check_model(coordinator: Coordinator, fleet: Fleet, alive: list[str], workshop: Workshop) -> None:
    """Round 1 published the model after the plain sum of these phones."""
    ended = a_round(coordinator.ledger)
    assert ended.ending in ("full", "deadline"), ended.reason
    found = load_tensors(coordinator.folder.model(str(ended.result_sha256)))
    for name, expected in fleet.model_of(alive, workshop.base_path).items():
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-6)  # decoders may round differently


def check_failed(coordinator: Coordinator, reason: str, base_sha256: str) -> None:
    """Round 1 failed for this reason, and nothing of it is left; round 2 is open on the same model."""
    ended = a_round(coordinator.ledger)
    assert ended.ending == "failed" and ended.result_sha256 is None
    assert reason in str(ended.reason)
    assert (coordinator.current.round, coordinator.current.base_sha256) == (2, base_sha256)
    assert file_names(coordinator.folder.updates) == set()
    with coordinator.ledger.reading() as session:
        assert not cohorts.has_messages(session, 1)
