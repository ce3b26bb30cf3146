import hashlib
import logging
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pytest

from phonograd.bench.uploads.sending import upload_headers
from phonograd.device_runtime.formats.tensor_file import save_tensors
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.server_agg.report.document import read_report
from tests.server_agg.hostile_updates import Parts
from tests.server_agg.http_uploads import check_problem, headers_of, post, receipt
from tests.server_agg.workshop import RunningServer, StartServer, Workshop, client_of


def test_what_a_round_and_a_receipt_say(workshop: Workshop, http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
    first = http.get("/v1/round").json()
    assert first == {
        "round": 1,
        "base_sha256": workshop.base_sha256,
        "model_bytes": workshop.base_path.stat().st_size,
        "model_url": f"/v1/models/{workshop.base_sha256}",
        "clients_per_round": 2,
        "strategy": "fedavg",
        "weighting": "tokens",
        "accepted": 0,
        "closes_at": None,
        "closing": None,
        "halted": None,
        "codecs": list(CODECS),
        "masked": None,
        "run": None,
    }
    model = http.get(first["model_url"])
    assert model.content == workshop.base_path.read_bytes()
    assert model.headers["etag"] == f'"{workshop.base_sha256}"'

    update = workshop.update(1)
    one = post(http, update, "phone1")
    assert one.status_code == 201
    assert receipt(http, one) == {
        "round": 1,
        "phone": "phone1",
        "accepted": 1,
        "clients_per_round": 2,
        "round_closed": False,
        "model_sha256": None,
        "bytes": update.stat().st_size,
    }


def test_a_model_that_is_known_is_not_sent_again(server: RunningServer, http: httpx.Client) -> None:
    etag = http.get("/v1/model").headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        for url in ("/v1/model", f"/v1/models/{server.workshop.base_sha256}"):
            answer = http.get(url, headers={"If-None-Match": known})
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert http.get("/v1/model", headers={"If-None-Match": '"other"'}).status_code == 200


def test_refusals_are_problems_in_words(
    server: RunningServer, workshop: Workshop, make_workshop: Callable[..., Workshop], http: httpx.Client
) -> None:
    other = make_workshop(seed=4, name="other")
    parts = Parts.of(workshop.update(1).read_bytes())
    for data, status, detail in (
        (b"\0" * 100, 400, "the update: "),
        (workshop.base_path.read_bytes(), 400, "the update: "),
        (other.update(1).read_bytes(), 409, "fetch the current model"),
        (parts.overwritten("decoder.bias", np.float32(np.nan).tobytes()), 422, "nan, expected a finite number"),
        (workshop.update(1, tokens=10**9).read_bytes(), 422, "claims 1000000000 tokens"),
    ):
        answer = http.post("/v1/uploads", content=data, headers=headers_of(data))
        check_problem(answer, status, detail)
        assert str(server.state) not in answer.text
    assert [post(http, workshop.update(1), "a").status_code for _ in range(2)] == [201, 201]
    check_problem(post(http, workshop.update(2), "a"), 409, "round 1 already has an update of this phone")
    assert http.get("/v1/round").json()["accepted"] == 1


def test_refusals_are_logged_in_one_line(
    workshop: Workshop, http: httpx.Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hostile = tmp_path / "hostile"
    metadata = {"format": "phonograd-update", "version": "4\n\x1b[31mforged line \u202e" + 5000 * "x"}
    save_tensors(hostile, {"bias": np.zeros(3, np.float32)}, metadata)
    with caplog.at_level(logging.WARNING, logger="phonograd.server_agg"):
        check_problem(post(http, workshop.update(1, round=2), "phone1"), 409, "round 2")
        shown = r"update version 3 expected, found '4\n\x1b[31mforged line ?xxx"
        check_problem(post(http, hostile, "phone1"), 400, shown)
        check_problem(http.get("/v1/models/no%0amodel"), 404, "model no?model is not here")
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("phonograd.server_agg")]
    assert len(messages) == 3
    assert messages[0].startswith("POST '/v1/uploads': 409: ")
    assert "404" in messages[2]
    assert all(message.isprintable() and len(message) < 1200 for message in messages)


def test_a_body_is_never_held_in_memory(start_server: StartServer) -> None:
    size, piece = 48 << 20, b"\0" * (1 << 16)
    body = hashlib.sha256()
    for _ in range(size // len(piece)):
        body.update(piece)
    headers = upload_headers("large", size, body.hexdigest()) | {"Content-Length": str(size)}
    with start_server(max_upload_bytes=size) as server, client_of(server.url) as http:
        tracemalloc.start()
        pieces = (piece for _ in range(size // len(piece)))
        answer = http.post("/v1/uploads", content=pieces, headers=headers)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        check_problem(answer, 400, "not valid JSON")
        assert read_report(server.state)["totals"]["rejected_bytes"] == size
    assert peak < 8 << 20
