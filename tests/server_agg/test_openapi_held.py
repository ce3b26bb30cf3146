"""The server does what /openapi.json promises, whatever is asked: schemathesis makes the requests."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from phonograd.server_agg.app import OPERATIONS
from phonograd.server_agg.openapi.document import openapi_document
from tests.server_agg.tus_phone import BODY
from tests.server_agg.workshop import RunningServer, run_server, small_workshop


@schemathesis.serializer(BODY)
def bytes_as_they_are(context: schemathesis.SerializationContext, value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


schema = schemathesis.openapi.from_dict(openapi_document(OPERATIONS, ("admin",)))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("openapi")
    workshop = small_workshop(folder)
    with run_server(workshop, folder / "state", clients_per_round=1000) as running:
        yield running


@schema.parametrize()
@settings(max_examples=10, suppress_health_check=list(HealthCheck))
def test_answers_are_as_documented(case: schemathesis.Case, served: RunningServer) -> None:
    case.call_and_validate(
        base_url=served.url,
        headers={"Authorization": f"Bearer {served.owner.token}"},
        checks=[
            not_a_server_error,
            status_code_conformance,
            content_type_conformance,
            response_headers_conformance,
            response_schema_conformance,
        ],
    )
