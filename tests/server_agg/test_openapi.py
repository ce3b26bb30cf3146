"""/openapi.json: valid, of exactly the routes there are, and what the server does, whatever is asked."""

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from starlette.routing import Route

from phonograd.server_agg.app import OPERATIONS, create_app
from phonograd.server_agg.http.operations import Operation
from phonograd.server_agg.openapi.document import openapi_document
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.security.owner import Owner
from tests.server_agg.checked_answers import Checked
from tests.server_agg.http_uploads import headers_of
from tests.server_agg.tus_phone import BODY
from tests.server_agg.workshop import RunningServer, Workshop, client_of, run_server, settings_with, small_workshop


@pytest.mark.parametrize("tokens", [False, True])
def test_the_document_is_valid(tokens: bool) -> None:
    from openapi_spec_validator import validate

    document = openapi_document(OPERATIONS, ("phone", "admin") if tokens else ())
    validate(document)
    assert document["openapi"].startswith("3.1")
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
    used = json.dumps(document)
    for schema in document["components"]["schemas"]:
        assert f'"#/components/schemas/{schema}"' in used, f"{schema} is used nowhere"


def test_it_lists_exactly_the_routes(workshop: Workshop, tmp_path: Path) -> None:
    settings = settings_with()
    coordinator = Coordinator(workshop.artifacts, tmp_path / "state", settings)
    try:
        app = create_app(coordinator, settings, Owner())
    finally:
        coordinator.close()
    served: dict[str, set[str]] = defaultdict(set)
    for route in app.routes:
        assert isinstance(route, Route)
        served[route.path.replace(":int", "")] |= {method.lower() for method in route.methods or ()}
    listed = {path: set(item) for path, item in openapi_document(OPERATIONS, ())["paths"].items()}
    assert listed == served
    assert len({(one.method, one.path) for one in OPERATIONS}) == len(OPERATIONS)


def test_every_operation_says_who_may_and_how_it_refuses() -> None:
    for path, item in openapi_document(OPERATIONS, ("phone", "admin"))["paths"].items():
        for method, operation in item.items():
            open_ = operation["security"] == []
            assert open_ == (path in ("/healthz", "/livez", "/openapi.json", "/static/{name}", "/admin"))
            assert ("401" in operation["responses"]) != open_
            for status, answer in operation["responses"].items():
                if int(status) >= 400 and method != "head":
                    assert set(answer["content"]) == {"application/problem+json"}
                assert method != "head" or "content" not in answer
    for item in openapi_document(OPERATIONS, ())["paths"].values():
        assert all(operation["security"] == [] for operation in item.values())


QUALITY = "/v1/models/{sha256}/quality"


@pytest.fixture
def client(server: RunningServer) -> Iterator[Checked]:
    with client_of(server.url) as http:
        yield Checked(http)


def test_answers_are_as_the_document_says(client: Checked, workshop: Workshop) -> None:
    sha256 = workshop.base_sha256
    for _ in range(2):  # with nothing done, and with a round and a half
        for path in (
            "/healthz", "/livez", "/metrics", "/openapi.json", "/v1/round", "/v1/report", "/v1/report.csv",
            "/v1/models", "/", "/dashboard/live", "/dashboard/rounds", "/dashboard/models", "/v1/model",
        ):  # fmt: skip
            client.ask("GET", path)
            client.ask("HEAD", path)
        client.ask("GET", "/v1/round", headers={"Phonograd-Phone": "phone1"})
        client.ask("GET", "/v1/report/rounds/1", "/v1/report/rounds/{number}")
        client.ask("GET", "/dashboard/rounds/1", "/dashboard/rounds/{number}")
        for number in (1, 2):
            data = workshop.update(number).read_bytes()
            client.ask("POST", "/v1/uploads", content=data, headers=headers_of(data, f"phone{number}"))
        client.ask("POST", QUALITY.format(sha256=sha256), QUALITY, json={"metric": "x", "value": 1})
    client.ask("GET", "/v1/report/rounds/99", "/v1/report/rounds/{number}")
    client.ask("GET", "/dashboard/rounds/99", "/dashboard/rounds/{number}")
    client.ask("GET", "/dashboard/rounds?page=x")
    for name in ("dashboard.css", "live.js", "icon.svg", "none"):
        answer = client.ask("GET", f"/static/{name}", "/static/{name}")
    answer = client.ask("GET", "/static/live.js", "/static/{name}")
    client.ask("GET", "/static/live.js", "/static/{name}", headers={"If-None-Match": answer.headers["etag"]})
    model, path = f"/v1/models/{sha256}", "/v1/models/{sha256}"
    for headers, status in (
        ({}, 200), ({"Range": "bytes=5-9"}, 206), ({"Range": "bytes=-9"}, 206), ({"Range": "bytes=999999-"}, 416),
        ({"Range": "bytes=-0"}, 416), ({"Range": "bytes=9-5"}, 200), ({"Range": "lines=1-2"}, 200),
        ({"Range": "bytes=0-1,5-6"}, 200), ({"Range": "bytes"}, 200),
        ({"Range": "bytes=999999-", "If-Range": '"other"'}, 200), ({"If-None-Match": f'"{sha256}"'}, 304),
    ):  # fmt: skip
        assert client.ask("GET", model, path, headers=headers).status_code == status, headers
        assert client.ask("HEAD", model, path, headers=headers).status_code == status, headers
    client.ask("GET", f"/v1/models/{'0' * 64}", path)
    client.ask("POST", f"/v1/models/{'0' * 64}/quality", QUALITY, json={"metric": "x", "value": 1})
    client.ask("POST", QUALITY.format(sha256=sha256), QUALITY, content=b"x")
    client.ask("POST", QUALITY.format(sha256=sha256), QUALITY, content=b" " * 5000)
    for number in ("x", "77", "0"):
        client.ask("POST", f"/v1/rollback?round={number}", "/v1/rollback")
    for path in ("/v1/phones", "/v1/audit"):
        client.ask("GET", path)
    client.ask("POST", "/v1/phones", json={"name": "x"})
    client.ask("GET", "/v1/round", headers={"Host": "evil.example"})
    client.ask("GET", "/v1/round", headers={"X-Long": "x" * 20000})
    client.ask("GET", "/v1/round?" + "x" * 3000)
    for headers in ({}, headers_of(b"other"), {"Phonograd-Phone": "../x"}):  # test_tus asks the others
        client.ask("POST", "/v1/uploads", content=data, headers=headers)
    client.ask("POST", "/v1/uploads", content=iter([data]), headers=headers_of(data))
    assert len(client.seen) >= 55


def test_a_wrong_method_names_the_right_ones(server: RunningServer) -> None:
    with client_of(server.url) as http:
        for method, url, allowed in (
            ("PUT", "/v1/uploads", "OPTIONS, POST"), ("DELETE", "/", "GET, HEAD"), ("POST", "/v1/round", "GET, HEAD"),
            ("PUT", "/v1/uploads/x", "DELETE, GET, HEAD, OPTIONS, PATCH, POST"),
            ("PATCH", "/v1/phones", "GET, HEAD, POST"),
        ):  # fmt: skip
            answer = http.request(method, url)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("openapi")
    workshop = small_workshop(folder)
    with run_server(workshop, folder / "state", clients_per_round=1000) as running:
        yield running


@pytest.fixture(scope="module")
def schema() -> Any:
    """The document's operations; made here, not on import: that takes seconds."""
    import schemathesis

    @schemathesis.serializer(BODY)
    def bytes_as_they_are(context: schemathesis.SerializationContext, value: object) -> bytes:
        return value if isinstance(value, bytes) else str(value).encode()

    return schemathesis.openapi.from_dict(openapi_document(OPERATIONS, ("admin",)))


@pytest.mark.long
@pytest.mark.parametrize("one", OPERATIONS, ids=lambda one: f"{one.method} {one.path}")
def test_whatever_is_asked_is_answered_as_documented(one: Operation, schema: Any, served: RunningServer) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    documented = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
    ]
    headers = {"Authorization": f"Bearer {served.owner.token}"}

    @given(schema[one.path.replace(":int", "")][one.method].as_strategy())
    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    def ask(case: Any) -> None:
        case.call_and_validate(base_url=served.url, headers=headers, checks=documented)

    ask()
