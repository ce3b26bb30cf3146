"""RoundClient behind an nginx: with a limit, under a prefix, with and without PATCH."""

from pathlib import Path

import pytest

from tests.android_harness.app.round_phones import Phones, Said
from tests.support.nginx import nginx

pytestmark = pytest.mark.apk

PASS = "proxy_pass http://127.0.0.1:PORT; client_max_body_size 100k;"  # of an update's 300 KB
STRIPS = 'proxy_set_header X-HTTP-Method-Override "";'
NO_PATCH = "if ($request_method = PATCH) { return 405; }"
PREFIX = "proxy_pass http://127.0.0.1:PORT/;"


def round_behind(
    phones: Phones, folder: Path, monkeypatch: pytest.MonkeyPatch, settings: str, path: str = "", patch: bool = False
) -> tuple[Said, set[str]]:
    """A phone's round through nginx: what it says at the end, what nginx saw (method, status, method in a header)."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "--add-opens java.base/java.net=ALL-UNNAMED")
    with phones.serving() as server:
        location = f"location {path}/ {{ {settings.replace('PORT', str(server.port))} }}"
        with nginx(folder, location) as url, phones.app(url + path, patch=str(patch).lower()) as app:
            assert app.network().action == "TRAIN"
            app.train()
            said = app.network()
        taken = [line.split(" ") for line in (folder / "seen").read_text("utf-8").splitlines()]
    return said, {" ".join((method, *rest)) for method, path, *rest in taken if "/v1/uploads" in path}


@pytest.mark.parametrize(
    ("settings", "patch", "seen"),
    [
        (PASS, False, {"POST 413 PATCH", "POST 204 PATCH"}),
        (PASS + STRIPS, True, {"PATCH 413 -", "PATCH 204 -"}),
        (PASS + NO_PATCH, True, {"PATCH 413 -", "PATCH 405 -", "POST 204 PATCH"}),
    ],
)
def test_a_limit_and_methods(
    settings: str, patch: bool, seen: set[str], phones: Phones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, found = round_behind(phones, tmp_path / "nginx", monkeypatch, settings, patch=patch)
    assert (said.receipt, found) == ("1", {"POST 413 -", "POST 201 -", "GET 200 -"} | seen)


@pytest.mark.parametrize("location", ["", "/ http://127.0.0.1:9/fleet/", "/v1/ ./"])
def test_a_prefix(location: str, phones: Phones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the proxy leaves it out of the upload's URL, names a host that nobody reaches, or a relative URL."""
    redirect = f"proxy_redirect {location};" if location else ""
    settings = f"{PREFIX} {redirect} client_max_body_size 100k;"
    assert round_behind(phones, tmp_path / "nginx", monkeypatch, settings, "/fleet")[0].receipt == "1"


@pytest.mark.parametrize(
    ("settings", "trouble"),
    [
        (PASS + STRIPS, "removes X-HTTP-Method-Override"),
        (PASS + "client_max_body_size 60k;", "a proxy before the server (nginx/"),
    ],
)
def test_a_proxy_that_spoils_an_upload_is_named(
    settings: str, trouble: str, phones: Phones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings.replace("client_max_body_size 100k;", "", settings.count("max_body") - 1)
    said, _ = round_behind(phones, tmp_path / "nginx", monkeypatch, settings)
    assert (said.action, said.after, said.receipt, trouble in said.trouble) == ("NETWORK", 300, "-", True), said
    assert (phones.workspace() / "update.safetensors").exists()
