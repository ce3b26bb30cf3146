"""A server as a phone meets it: who asks, a place in the open round, and the update there."""

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import httpx

from phonograd.android_harness.rounds.base_model import fetch_base_model
from phonograd.android_harness.rounds.settings import RoundSettings
from phonograd.api.inputs import StrPath, artifacts_of, path_of, require_output
from phonograd.device_runtime.base.errors import PhonogradError, ServerRefusedError, StorageError, UsageError
from phonograd.device_runtime.base.files import storage_errors
from phonograd.device_runtime.client import masked_round, server_client
from phonograd.device_runtime.client.masked_round import MaskedWaiting
from phonograd.device_runtime.client.owner_file import user_state_folder, with_owner_token
from phonograd.device_runtime.client.pull import pull_model
from phonograd.device_runtime.client.resumable_upload import update_metadata
from phonograd.device_runtime.client.server_client import (
    Connection,
    CurrentRound,
    DownloadedModel,
    Server,
    UploadReceipt,
    Waiting,
)
from phonograd.device_runtime.formats.manifest import Artifacts
from phonograd.device_runtime.masked.phone import Company, MaskedPhone, PhoneMasking, new_identity
from phonograd.device_runtime.native_build.compiler import cache_folder
from phonograd.device_runtime.update.codecs import DEFAULT_CODEC

UPDATES = RoundSettings().updates
BEFORE_UPLOAD = ("/keys", "/draws", "/shares", "/members")  # what phones of a masked round send before their update
CONFLICT = 409  # the status of a second update in the name of one phone
ROUND_OVER = 410  # the status of what is sent for a masked round that failed or has ended, or for an upload that has
UNNAMED = "unnamed"  # who sends to a server that asks for no token, where nobody is named
SHARED = f"; phones without `phone` share the name {UNNAMED}: send it with a name of its own"


def connect(
    server: str,
    token: str | None = None,
    *,
    ca_cert: StrPath | None = None,
    token_over_http: bool = False,
    piece_size: int | None = None,
    models_from: tuple[str, ...] = (),
    owner: bool = False,
) -> Connection:
    """How to reach a server and who is asking; nothing is sent yet. See Connection.

    owner: without a token, act for the user who started the server on this machine, if that is the same user.
    """
    connection = Connection(server, token, path_of(ca_cert), token_over_http, piece_size, models_from)
    return with_owner_token(connection) if owner else connection


def upload(
    server: Server, update: StrPath, phone: str | None = None, progress: Callable[[int, int], None] | None = None
) -> UploadReceipt:
    """Send an update in the name of `phone`; sending it again is safe. progress hears (bytes done, bytes in all).

    phone: None is whose token it is, or `phone` for a server that asks for none. Raises WeightsError, UpdateError,
    ServerRefusedError, ServerUnreachableError.
    """
    update_metadata(Path(update))  # an invalid file is refused before the server is asked anything
    return _upload(server, Path(update), _name(server, phone), progress)


def download(server: Server, out: StrPath, sha256: str | None = None, phone: str | None = None) -> DownloadedModel:
    """Fetch the open round's model, or the one with this hash, to `out`; a download that broke off goes on.

    phone: who fetches it, for the server's ledger. Raises WeightsError for damaged bytes, StorageError,
    ServerRefusedError, ServerUnreachableError.
    """
    require_output(out)
    return server_client.download_model(server, Path(out), sha256=sha256, phone=phone)


def pull(
    server: Server, model: StrPath, base: StrPath | None = None, sha256: str | None = None, phone: str | None = None
) -> DownloadedModel:
    """Bring the file `model` up to date, to the open round's model or the one with this hash.

    base: a model that is here; None is `model` itself. Where the server has links from it that are smaller than the
    model, they are fetched and applied; else the whole model is. A download that broke off goes on. Raises as
    `download`; then `model` is as before.
    """
    require_output(model)
    return pull_model(server, Path(model), path_of(base), sha256=sha256, phone=phone)


@dataclass(frozen=True)
class JoinedRound:
    """An open round in which this phone has a place; `weights` is its model on this machine's disk."""

    server: Server
    phone: str | None
    opened: CurrentRound
    weights: Path

    def update_path(self) -> Path:
        """Path of the update until the server has it, in a folder only its owner can read. Raises StorageError."""
        folder = UPDATES / f"round-{self.opened.round}"
        try:
            for made in (UPDATES, folder):
                made.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{folder}: cannot write: {error.strerror}; name a file with `update`") from error
        name = self.phone or UNNAMED
        # Several may train at once without a name: none writes another's file.
        return folder / f"{name if name != UNNAMED else f'{name}-{os.getpid()}'}.update"

    def run_history_path(self) -> Path | None:
        """File of the dp-ftrl rounds that this phone took part in; None for another strategy."""
        if self.opened.run is None:
            return None
        return _server_folder("runs", self.server) / f"phone-{self.phone or UNNAMED}.json"

    def send(self, update: StrPath, progress: Callable[[int, int], None] | None = None) -> UploadReceipt:
        """Upload it. Raises what `upload` raises, with the command that sends it later; the update stays."""
        try:
            return _upload(self.server, Path(update), self.phone, progress)
        except PhonogradError as error:
            error.args = (f"{error}; the update is kept, send it with: {self._later(update)}",)
            raise

    def take_part(
        self,
        grid: StrPath,
        masking: PhoneMasking,
        progress: Callable[[int, int], None] | None = None,
        waiting: MaskedWaiting | None = None,
    ) -> UploadReceipt | None:
        """Do a phone's part in a masked round, with the grid update that training wrote: keys, masked update, answer.

        As device_runtime.client.masked_round.take_part; repeat a call that broke off with the same arguments. If the
        round fails before the update is sent, and the next one has the same model and settings, the phone takes part in
        that: the update is of any such round.
        """
        name, opened = self.phone or UNNAMED, self.opened

        def upload(masked: Path) -> UploadReceipt:
            return server_client.upload_update(self.server, masked, name, progress)

        while True:
            with MaskedPhone(masking, name, Path(grid), opened.round) as phone:
                try:
                    return masked_round.take_part(self.server, phone, upload, waiting)
                except ServerRefusedError as error:
                    # Once it was sent, a hostile server may know a sum with it: another sum, of the same updates but
                    # this one, would give it away. Then the phone trains again.
                    if error.status != ROUND_OVER or not phone.request().path.endswith(BEFORE_UPLOAD):
                        raise
                    before, opened = opened, server_client.open_round(self.server)
                    suits = (opened.base_sha256, opened.masked) == (before.base_sha256, before.masked)
                    if opened.round <= before.round or not suits:
                        raise

    def _later(self, update: StrPath) -> str:
        line = ["phonograd", "upload", str(update), "--server", str(self.server)]
        if self.phone is not None:
            line += ["--phone", "NAME" if self.phone == UNNAMED else self.phone]
        return shlex.join(line)


def phone_masking(
    server: Server,
    phone: str | None = None,
    identity: StrPath | None = None,
    certificate: str | None = None,
    vendor: str | None = None,
    min_cohort: int = Company().min_cohort,
) -> PhoneMasking:
    """What a phone takes part with in a server's masked rounds.

    Its state is in the user's state folder, for each server and phone its own. identity: None is a key in that folder,
    made if it is missing. Raises StorageError.
    """
    folder = _server_folder("masked", server) / f"phone-{phone or UNNAMED}"
    key = path_of(identity) or folder / "identity.key"
    if identity is None:
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not key.exists():
            new_identity(key)
    return PhoneMasking(
        state=folder / "state", identity=key, certificate=certificate, vendor=vendor, min_cohort=min_cohort
    )


def join_round(
    server: Server,
    artifacts: Artifacts | StrPath,
    phone: str | None = None,
    codec: str = DEFAULT_CODEC,
    steps: int | None = None,
    waiting: Waiting | None = None,
    cache: StrPath | None = None,
    masked_only: bool = False,
) -> JoinedRound:
    """Ask for a place in the open round, and bring its model here unless it is here already.

    If a round is closing, it waits for the next one, as the server says; waiting hears the closing round's number and
    the seconds before each wait. phone: as in `upload`; steps: as in `train`. cache: where models are kept, for each
    server and phone its own; None is `models` in phonograd's cache folder. masked_only: refuse a round in which the
    server would see the update. Raises UsageError for a codec that the server does not take, and for steps that the
    round's strategy does not average, ServerRefusedError without a place or for a round that is not masked,
    ServerUnreachableError, WeightsError for a model of another shape, StorageError.
    """
    folder = artifacts_of(artifacts)
    phone = _name(server, phone)
    opened = server_client.open_round(server, waiting=waiting)
    if masked_only:
        opened.require_masked()
    if opened.masked is None and codec not in opened.codecs:
        raise UsageError(f"`codec` {codec}: {server} takes {', '.join(opened.codecs)}; choose one of them")
    opened.require_steps(steps)
    refused = None if phone is None else server_client.exclusion_reason(server, phone)
    if refused is not None:
        shared = SHARED if phone == UNNAMED else ""
        raise ServerRefusedError(f"{server}: no place in round {opened.round}: {refused}{shared}")
    base = fetch_base_model(server, folder, opened, path_of(cache) or cache_folder() / "models", phone)
    return JoinedRound(server, phone, opened, base.path)


def _server_folder(kind: str, server: Server) -> Path:
    """The folder of what phones keep of a server. A server's address has many forms, and one folder."""
    return user_state_folder() / kind / quote(str(httpx.URL(str(server))).rstrip("/"), safe="")


def _upload(
    server: Server, update: Path, phone: str | None, progress: Callable[[int, int], None] | None
) -> UploadReceipt:
    try:
        return server_client.upload_update(server, update, phone, progress)
    except ServerRefusedError as error:
        if error.status in (CONFLICT, ROUND_OVER) and phone == UNNAMED:
            error.args = (f"{error}{SHARED}",)
        raise


def _name(server: Server, phone: str | None) -> str | None:
    anonymous = isinstance(server, str) or server.token is None
    return UNNAMED if phone is None and anonymous else phone
