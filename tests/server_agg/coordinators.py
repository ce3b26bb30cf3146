"""Coordinators without a server, and updates that they get."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.responses import Receipt
from phonograd.server_agg.rounds.slow_closing import Students
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.settings.server import ServerSettings
from tests.server_agg.workshop import Clock, Workshop, settings_with

THREE = settings_with(clients_per_round=3)


@contextlib.contextmanager
def open_coordinator(
    workshop: Workshop,
    state: Path,
    settings: ServerSettings = THREE,
    clock: Clock | None = None,
    slow_models: Students | None = None,
) -> Iterator[Coordinator]:
    coordinator = Coordinator(workshop.artifacts, state, settings, clock, slow_models)
    try:
        yield coordinator
    finally:
        coordinator.close()


def send(coordinator: Coordinator, update: Path, phone: str) -> Receipt:
    """What the application does once a body has arrived."""
    upload = coordinator.create_upload(UploadMetadata(phone, update.stat().st_size, sha256_of_file(update)))
    if upload.state != "receiving":
        return coordinator.receipt(upload.id)
    path = coordinator.folder.upload(upload.id)
    shutil.copy(update, path)
    return coordinator.ingest(upload.id, sha256_of_file(path), path.stat().st_size)


def file_names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def undisturbed_model(workshop: Workshop, state: Path, settings: ServerSettings = THREE) -> str:
    """The hash of round 1's model when nothing goes wrong."""
    with open_coordinator(workshop, state, settings) as coordinator:
        for seed in (1, 2, 3):
            receipt = send(coordinator, workshop.update(seed, tokens=100 * seed), f"phone{seed}")
    assert receipt.model_sha256 is not None
    return receipt.model_sha256
