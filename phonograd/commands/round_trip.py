"""A round from one phone's side, for `train --server`: its model here, and the update there."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from phonograd.device_runtime.base.errors import PhonogradError, ServerRefusedError, UsageError
from phonograd.device_runtime.base.files import storage_errors
from phonograd.device_runtime.client.server_client import Connection, CurrentRound, UploadReceipt
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.native_build.compiler import cache_folder

UPDATES = Path("phonograd-updates")  # as `phonograd round` has it


@dataclass(frozen=True)
class JoinedRound:
    """An open round in which this phone has a place; `weights` is its model on this machine's disk."""

    connection: Connection
    phone: str | None
    opened: CurrentRound
    weights: Path

    def update_path(self) -> Path:
        """Where the update waits until the server has it, in a folder of its owner's alone. Raises StorageError."""
        folder = UPDATES / f"round-{self.opened.round}"
        with storage_errors(folder):
            for made in (UPDATES, folder):
                made.mkdir(mode=0o700, exist_ok=True)
        return folder / f"{self.phone or 'phone'}.update"

    def send(self, update: Path, progress: Callable[[int, int], None]) -> UploadReceipt:
        """Upload it. Raises what `upload_update` raises, with the command that sends it later; the update stays."""
        from phonograd.device_runtime.client.server_client import upload_update

        try:
            return upload_update(self.connection, update, self.phone, progress)
        except PhonogradError as error:
            error.args = (f"{error}; the update is kept, send it with: {self._later(update)}",)
            raise

    def _later(self, update: Path) -> str:
        line = ["phonograd", "upload", str(update), "--server", self.connection.url]
        if self.phone is not None:
            line += ["--phone", self.phone]
        return shlex.join(line)


def join_round(connection: Connection, phone: str | None, folder: Artifacts, codec: str) -> JoinedRound:
    """Ask for a place in the open round, and bring its model here unless it is here already.

    phone: None is whose token it is, or `phone` for a server that asks for none. Raises UsageError for a codec that the
    server does not take, ServerRefusedError without a place, ServerUnreachableError, WeightsError for a model of
    another shape, StorageError.
    """
    from phonograd.android_harness.rounds.base_model import fetch_base
    from phonograd.device_runtime.client.server_client import current_round, participation

    if phone is None and connection.token is None:
        phone = "phone"
    opened = current_round(connection)
    if codec not in opened.codecs:
        raise UsageError(f"--codec {codec}: {connection} takes {', '.join(opened.codecs)}; choose one of them")
    refused = None if phone is None else participation(connection, phone)
    if refused is not None:
        raise ServerRefusedError(f"{connection}: no place for {phone} in round {opened.round}: {refused}")
    base = fetch_base(connection, folder, opened, cache_folder() / "models", phone)
    return JoinedRound(connection, phone, opened, base.path)
