"""Uploads by HTTP, what a server answers to them, and its report afterwards."""

import hashlib
import time
from pathlib import Path
from typing import Any

import httpx

from phonograd.bench.uploads.sending import upload_headers
from phonograd.server_agg.report.document import read_report
from tests.server_agg.workshop import RunningServer
from tests.support.waiting import until


def headers_of(data: bytes, phone: str = "phone1") -> dict[str, str]:
    """Headers of a whole upload in one request."""
    return upload_headers(phone, len(data), hashlib.sha256(data).hexdigest())


def post(http: httpx.Client, update: Path, phone: str) -> httpx.Response:
    data = update.read_bytes()
    return http.post("/v1/uploads", content=data, headers=headers_of(data, phone))


def head_of(data: bytes, phone: str = "phone1", **more: str) -> bytes:
    """The same request up to its body, for a socket."""
    headers = {"Host": "localhost", "Content-Length": str(len(data))} | headers_of(data, phone) | more
    lines = ("POST /v1/uploads HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", "")
    return "\r\n".join(lines).encode()


def receipt(http: httpx.Client, created: httpx.Response) -> dict[str, Any]:
    """The receipt of an upload that arrived whole."""
    found: dict[str, Any] = http.get(created.headers["Location"]).json()["receipt"]
    return found


def check_problem(response: httpx.Response, status: int, detail: str) -> None:
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["status"] == status
    assert detail in problem["detail"]
    assert problem["title"]
    assert "Traceback" not in response.text


def final_report(server: RunningServer) -> dict[str, Any]:
    """The report once no request is open and its figures no longer change."""
    report: dict[str, Any] = {}
    while True:
        until(lambda: not server.requests, "the end of all requests")
        server.coordinator.ledger.flush()
        before, report = report, read_report(server.state)
        if report == before:
            return report
        time.sleep(0.05)
