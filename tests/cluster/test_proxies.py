"""Whole rounds of tuspy, curl and our client behind an nginx: with its defaults, and compressing under a prefix."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tusclient.client import TusClient

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.connection import Connection
from phonograd.device_runtime.client.resumable_download import download_model
from phonograd.device_runtime.client.resumable_upload import upload_update
from phonograd.device_runtime.client.server_client import current_round
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.settings.security import SecuritySettings
from tests.server_agg.faults import states
from tests.server_agg.workshop import Workshop, random_weights, run_server, write_artifacts
from tests.support.nginx import nginx

pytestmark = pytest.mark.cluster

LARGE = LanguageModelConfig("lstm", vocabulary=5000, embedding=56, hidden=8, layers=1)  # its update: more than 1 MB
PIECE = 1 << 20  # as nginx's default allows
LOCATIONS = """
location / {{ proxy_pass http://127.0.0.1:{port}; }}
location /fleet/ {{
    proxy_pass http://127.0.0.1:{port}/; proxy_redirect / /fleet/;
    gzip on; gzip_types *; gzip_proxied any; gzip_min_length 1;
}}
"""


def by_our_client(url: str, token: str, update: Path) -> None:
    upload_update(Connection(url, token), update, None)


def by_tuspy(url: str, token: str, update: Path) -> None:
    client = TusClient(f"{url}/v1/uploads", headers={"Authorization": f"Bearer {token}"})
    with update.open("rb") as file:
        client.uploader(file_stream=file, chunk_size=PIECE).upload()


def by_curl(url: str, token: str, update: Path) -> None:
    """Send like a shell script: the pieces are files."""

    def curl(method: str, where: str, *headers: str, body: str = "") -> str:
        words = [*("curl", "-sS", "-f", "-i", "-X", method, where, "--noproxy", "*", "--data-binary", body)]
        for header in (f"Authorization: Bearer {token}", "Tus-Resumable: 1.0.0", *headers):
            words += ["-H", header]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    data, piece = update.read_bytes(), update.with_suffix(".piece")
    created = curl("POST", f"{url}/v1/uploads", f"Upload-Length: {len(data)}", "Content-Type:")
    (location,) = re.findall(r"(?mi)^location: (\S+)", created)
    upload = location if "://" in location else "/".join(url.split("/")[:3]) + location
    for offset in range(0, len(data), PIECE):
        piece.write_bytes(data[offset : offset + PIECE])
        kind = "Content-Type: application/offset+octet-stream"
        curl("PATCH", upload, f"Upload-Offset: {offset}", kind, body=f"@{piece}")


@pytest.mark.parametrize("prefix", ["", "/fleet"])
def test_a_round_behind_a_proxy(prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    workshop = Workshop(tmp_path, LARGE, write_artifacts(tmp_path / "artifacts", LARGE, random_weights(LARGE, 0)))
    clients: tuple[Callable[[str, str, Path], None], ...] = (by_our_client, by_tuspy, by_curl)
    tokens = SecuritySettings(auth="tokens")
    with run_server(workshop, tmp_path / "state", security=tokens, clients_per_round=3) as server:
        registry = PhoneRegistry(server.coordinator.ledger)
        with nginx(tmp_path / "nginx", LOCATIONS.format(port=server.port)) as url:
            for number, send in enumerate(clients):
                token = registry.add(send.__name__, "phone", "90d", "test").token
                update = workshop.update(number)
                assert update.stat().st_size > PIECE
                send(url + prefix, token, update)
            phone = Connection(url + prefix, token)
            assert states(server) == sorted((send.__name__, "accepted") for send in clients)
            model = download_model(phone, tmp_path / "model")
            assert (current_round(phone).round, model.sha256) == (2, server.coordinator.current.base_sha256)
            assert sha256_of_file(tmp_path / "model") == model.sha256
