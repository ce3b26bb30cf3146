"""Models and links that nginx sends, by the lines in docs/deployment.md, and that an S3 sends, by its own signature."""

import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.connection import Connection
from phonograd.device_runtime.client.pull import pull_model
from phonograd.device_runtime.client.resumable_download import download_model
from phonograd.server_agg.settings.security import SecuritySettings
from tests.server_agg.http_uploads import final_report
from tests.server_agg.link_rounds import LOSSY, run_round
from tests.server_agg.workshop import Workshop, client_of, run_server
from tests.support.nginx import nginx

pytestmark = pytest.mark.cluster


def locations(server: int, state: Path) -> str:
    """nginx's locations before a server, with those of docs/deployment.md."""
    page = (Path(__file__).parents[2] / "docs/deployment.md").read_text("utf-8")
    documented = "\n".join(re.findall(r"^location /phonograd/.*$", page, re.MULTILINE))
    assert documented.count("/srv/server/") == 2
    passed = f"location / {{ proxy_pass http://127.0.0.1:{server}; proxy_set_header X-Forwarded-For $remote_addr; }}"
    return passed + documented.replace("/srv/server", str(state))


def test_nginx_sends_what_the_server_names(workshop: Workshop, tmp_path: Path) -> None:
    tokens, state = SecuritySettings(auth="tokens"), tmp_path / "state"
    with run_server(workshop, state, downloads="accel", security=tokens, **LOSSY) as server:
        made = run_round(server.coordinator, workshop)
        whole = server.coordinator.folder.model(made.sha256).read_bytes()
        with nginx(tmp_path / "nginx", locations(server.port, state)) as url:
            phone, model = Connection(url, server.owner.token), tmp_path / "model"
            with client_of(url, {"Authorization": f"Bearer {server.owner.token}"}) as http:
                answer = http.get("/v1/model")
                assert (answer.content, answer.headers["ETag"]) == (whole, f'"{made.sha256}"')
                assert answer.headers["Content-Type"] == "application/octet-stream"
                goes_on = {"Range": "bytes=9-", "If-Range": answer.headers["ETag"]}
                part = http.get("/v1/model", headers=goes_on)
                assert (part.status_code, part.content) == (206, whole[9:])
                other = http.get("/v1/model", headers=goes_on | {"If-Range": '"other"'})
                assert (other.status_code, other.content) == (200, whole)
                assert http.get("/v1/model", headers={"If-None-Match": answer.headers["ETag"]}).status_code == 304
                for hidden in (f"models/{made.sha256}.safetensors", "ledger.sqlite", "models/../ledger.sqlite"):
                    assert http.get(f"/phonograd/{hidden}").status_code == 404
            assert httpx.get(f"{url}/v1/model", trust_env=False).status_code == 401
            assert download_model(phone, model).received == sha_size(model, made.sha256)
            assert pull_model(phone, model, workshop.base_path).links == 1
        totals = final_report(server)["totals"]
    assert totals["redirected_bytes"] == 4 * len(whole) - 9 + int(made.link_bytes or 0)
    assert (totals["redirected_bytes"], 0) == (
        totals["model_bytes"] + totals["sent_link_bytes"],
        totals["retried_bytes"],
    )


def test_an_s3_sends_what_the_server_signed(
    workshop: Workshop, tmp_path: Path, bucket: str, s3_server: dict[str, str]
) -> None:
    with run_server(workshop, tmp_path / "state", store=bucket, downloads="redirect") as server:
        model = tmp_path / "model"
        (part := tmp_path / f".model.{workshop.base_sha256}.part").write_bytes(workshop.base_path.read_bytes()[:9])
        size = sha_size(workshop.base_path, workshop.base_sha256)
        phone = replace(server.owner, models_from=(s3_server["AWS_ENDPOINT_URL"],))
        assert download_model(phone, model, sha256=workshop.base_sha256).received == size - 9
        assert (model.read_bytes(), part.exists()) == (workshop.base_path.read_bytes(), False)
        assert final_report(server)["totals"]["redirected_bytes"] == size - 9


def sha_size(path: Path, sha256: str) -> int:
    """The size of a file whose hash is this."""
    assert sha256_of_file(path) == sha256
    return path.stat().st_size
