"""A client that holds every answer of a server to its own OpenAPI document."""

import json
from typing import Any

import httpx


class Checked:
    """A client that holds every answer to the document: status, headers, type and shape of the body."""

    def __init__(self, http: httpx.Client):
        self.http = http
        self.document = self.http.get("/openapi.json").json()
        from referencing import Registry, Resource  # slow to import, as the validator is
        from referencing.jsonschema import DRAFT202012

        resource: Resource[Any] = Resource(contents=self.document, specification=DRAFT202012)
        self._registry: Registry[Any] = Registry().with_resource("urn:document", resource)
        self.seen: set[tuple[str, str, str]] = set()

    def ask(self, method: str, url: str, path: str = "", **options: Any) -> httpx.Response:
        answer = self.http.request(method, url, **options)
        path = path or url.partition("?")[0]
        responses = self.document["paths"][path][method.lower()]["responses"]
        assert str(answer.status_code) in responses, (method, url, answer.status_code, answer.text)
        said = responses[str(answer.status_code)]
        self.seen.add((method, path, str(answer.status_code)))
        for name, header in said.get("headers", {}).items():
            assert name in answer.headers or not header.get("required"), (method, url, name)
        if method == "HEAD" or "content" not in said:
            assert answer.content == b"", (method, url)
            return answer
        media = said["content"][answer.headers["content-type"]]
        if answer.headers["content-type"].endswith("json"):
            from openapi_schema_validator import OAS31Validator

            schema = self._rebase(media["schema"])
            OAS31Validator(schema, registry=self._registry).validate(answer.json())
        return answer

    def _rebase(self, schema: Any) -> Any:
        return json.loads(json.dumps(schema).replace('"#/components', '"urn:document#/components'))
