"""The tus 1.0 protocol, header by header and status by status, and a client that is not ours."""

import email.utils
import gzip
import hashlib
import io
import re
import secrets
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tusclient.client import TusClient
from tusclient.exceptions import TusCommunicationError
from tusclient.uploader import Uploader

from phonograd.server_agg.report.document import read_phones
from tests.server_agg.checked_answers import Checked
from tests.server_agg.faults import arriving
from tests.server_agg.http_uploads import check_problem, final_report
from tests.server_agg.relay import relay_to
from tests.server_agg.tus_phone import BODY, TUS, TusPhone, announced, checksum, encoded, incoming, metadata, phone_with
from tests.server_agg.workshop import RunningServer, StartServer, Workshop, client_of, run_server, small_workshop
from tests.support.waiting import until

# One server for all that leave it as it was but for an update of a phone of their own.


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    folder = tmp_path_factory.mktemp("tus")
    return small_workshop(folder)


@pytest.fixture(scope="module")
def server(workshop: Workshop) -> Iterator[RunningServer]:
    with run_server(workshop, workshop.folder / "state", clients_per_round=1000) as running:
        yield running


@pytest.fixture(scope="module")
def http(server: RunningServer) -> Iterator[httpx.Client]:
    """A client that holds each answer about uploads to the OpenAPI document."""
    with client_of(server.url) as plain, client_of(server.url) as client:
        checked = Checked(plain)

        def ask(method: str, url: str, **options: Any) -> httpx.Response:
            if url.rstrip("/") == "/v1/uploads":
                return checked.ask(method, url, "/v1/uploads", **options)
            if re.fullmatch("/v1/uploads/[0-9a-f]+/?", url):
                return checked.ask(method, url, "/v1/uploads/{id}", **options)
            return plain.request(method, url, **options)

        client.request = ask  # type: ignore[method-assign, assignment]
        yield client


@pytest.fixture
def phone(http: httpx.Client, workshop: Workshop) -> TusPhone:
    return phone_with(http, secrets.token_hex(8), workshop.update(1))


def identifier(phone: TusPhone) -> str:
    return phone.path.rpartition("/")[2]


def test_says_what_it_can(http: httpx.Client, phone: TusPhone) -> None:
    phone.create_upload()
    for path in ("/v1/uploads", phone.path):
        answer = http.options(path)
        assert answer.status_code == 204
        assert answer.headers["Tus-Resumable"] == answer.headers["Tus-Version"] == "1.0.0"
        assert answer.headers["Tus-Extension"] == "creation,creation-with-upload,checksum,expiration,termination"
        assert answer.headers["Tus-Checksum-Algorithm"] == "sha256,sha1"
        assert int(answer.headers["Tus-Max-Size"]) > len(phone.data)


def test_an_upload_from_its_announcement_to_its_receipt(server: RunningServer, phone: TusPhone) -> None:
    answer = phone.create_upload()
    assert (answer.status_code, answer.headers["Upload-Offset"], answer.json()) == (201, "0", {"receipt": None})
    assert answer.headers["Location"].startswith("/v1/uploads/")
    third = len(phone.data) // 3
    for offset in (0, third):
        answer = phone.patch(offset, phone.data[offset : offset + third])
        assert (answer.status_code, answer.headers["Upload-Offset"]) == (204, str(offset + third))
        assert email.utils.parsedate_to_datetime(answer.headers["Upload-Expires"]).tzname() == "UTC"
        found = phone.head()
        assert (found.status_code, found.headers["Upload-Offset"]) == (200, str(offset + third))
        assert found.headers["Upload-Length"] == str(len(phone.data))
        assert found.headers["Cache-Control"] == "no-store"
        assert "Upload-Expires" in found.headers
        assert phone.outcome().json()["state"] == "receiving"
    answer = phone.patch(2 * third, phone.data[2 * third :])
    assert (answer.status_code, answer.headers["Upload-Offset"]) == (204, str(len(phone.data)))
    outcome = phone.outcome().json()
    assert (outcome["state"], outcome["status"], outcome["receipt"]["phone"]) == ("accepted", 201, phone.name)
    assert (outcome["offset"], outcome["length"]) == (len(phone.data),) * 2
    # The upload stays where it is found, whatever its answer's fate.
    after = phone.head()
    assert (after.status_code, after.headers["Upload-Offset"]) == (200, str(len(phone.data)))
    assert "Upload-Expires" not in after.headers
    assert phone.patch(len(phone.data), b"").status_code == 204
    assert identifier(phone) not in incoming(server)
    assert server.coordinator.folder.update(hashlib.sha256(phone.data).hexdigest()).read_bytes() == phone.data
    final_report(server)
    (entry,) = [entry for entry in read_phones(server.state, 1) if entry["phone"] == phone.name]
    assert (entry["useful_bytes"], entry["retried_bytes"], entry["upload_starts"]) == (len(phone.data), 0, 3)


def test_another_version_is_refused_everywhere(http: httpx.Client, phone: TusPhone) -> None:
    phone.create_upload()
    for version in ({}, {"Tus-Resumable": "0.2.2"}, {"Tus-Resumable": "x" * 1000}):
        for method, path in (("POST", "/v1/uploads"), *((m, phone.path) for m in ("HEAD", "PATCH", "DELETE"))):
            answer = http.request(method, path, headers={"Phonograd-Phone": phone.name, **version})
            assert (answer.status_code, answer.headers["Tus-Version"]) == (412, "1.0.0")
            assert answer.headers["Tus-Resumable"] == "1.0.0"
    assert phone.offset() == 0


def test_malformed_announcements(server: RunningServer, phone: TusPhone) -> None:
    for changes, status, detail in (
        ({"Upload-Length": "-1"}, 400, "Upload-Length: a whole number expected, found '-1'"),
        ({"Upload-Length": ""}, 400, "Upload-Length"),
        ({"Upload-Length": "1" * 19}, 400, "Upload-Length"),
        ({"Upload-Length": "0"}, 400, "at least 1 expected"),
        ({"Upload-Length": "9" * 18}, 413, "is it an update?"),
        ({"Upload-Metadata": "sha256 ="}, 400, "base64"),
        ({"Upload-Metadata": "phone /w=="}, 400, "phone: UTF-8 expected"),
        ({"Upload-Metadata": metadata(sha256="A" * 64)}, 400, "sha256: 64 hex digits expected"),
        ({"Upload-Metadata": metadata(base_sha256="0")}, 400, "base_sha256: 64 hex digits expected"),
        ({"Upload-Metadata": metadata(round="-1")}, 400, "round: a whole number expected"),
        ({"Upload-Metadata": "x " + "A" * 4096}, 400, "at most 4096 characters"),
        ({"Upload-Metadata": f"{metadata(round='1')},{metadata(round='2')}"}, 400, "round: once expected"),
        (
            {"Phonograd-Phone": "no/name"},
            400,
            "1 to 64 of A-Z a-z 0-9 . _ - but neither . nor .. expected, found 'no/name'",
        ),
        ({"Phonograd-Phone": ""}, 400, "1 to 64"),
        ({"Phonograd-Phone": "x" * 65}, 400, "1 to 64"),
    ):
        check_problem(phone.create_upload(**changes), status, detail)
    assert phone.path == ""
    assert phone.name not in {upload.phone for upload in server.coordinator.uploads.unfinished_uploads()}


def test_metadata_of_others_is_left_alone(phone: TusPhone) -> None:
    assert phone.create_upload(Upload_Metadata=f"filename {encoded('update')} , is_secret").status_code == 201


def test_a_name_may_come_in_the_metadata(http: httpx.Client, phone: TusPhone) -> None:
    answer = http.post("/v1/uploads", headers={**TUS, "Upload-Length": "9", "Upload-Metadata": metadata(phone="abc")})
    assert answer.status_code == 201
    assert http.head(answer.headers["Location"], headers={**TUS, "Phonograd-Phone": "abc"}).status_code == 200
    assert http.head(answer.headers["Location"], headers={**TUS, "Phonograd-Phone": "def"}).status_code == 404


def test_a_stale_announcement_costs_no_body(phone: TusPhone) -> None:
    check_problem(phone.create_upload(Upload_Metadata=metadata(base_sha256="0" * 64)), 409, "fetch the current model")
    assert phone.path == ""


def test_wrong_patches_change_nothing(server: RunningServer, phone: TusPhone) -> None:
    phone.create_upload()
    phone.patch(0, phone.data[:100])
    for more, status, detail in (
        ({"Upload-Offset": "99"}, 409, "Upload-Offset: 100 expected, found 99; go on from there"),
        ({"Upload-Offset": "101"}, 409, "Upload-Offset: 100 expected"),
        ({"Upload-Offset": "-1"}, 400, "Upload-Offset: a whole number expected"),
        ({"Upload-Offset": ""}, 400, "Upload-Offset"),
        ({"Content-Type": "application/octet-stream"}, 415, f"Content-Type: {BODY} expected"),
        ({"Upload-Checksum": "crc32 AAAA"}, 400, "one of sha256, sha1"),
        ({"Upload-Checksum": "sha1 AAAA"}, 400, "base64 digest expected"),
        ({"Upload-Checksum": "sha256 ?"}, 400, "base64"),
        ({"Upload-Checksum": ""}, 400, "one of sha256, sha1"),
    ):
        answer = phone.patch(100, b"x" * 50, more)
        check_problem(answer, status, detail)
        assert answer.headers["Tus-Resumable"] == "1.0.0"
        assert phone.offset() == 100
    check_problem(phone.patch(100, phone.data[100:] + b"x"), 413, "more are coming")
    assert phone.patch(phone.offset(), phone.data[phone.offset() :]).status_code == 204
    assert phone.outcome().json()["state"] == "accepted"


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
@pytest.mark.parametrize("facts", ["sha256 announced", "nothing announced"])
def test_a_checksum_that_is_wrong_takes_its_bytes_back(algorithm: str, facts: str, phone: TusPhone) -> None:
    if facts == "nothing announced":
        phone.create_upload(Upload_Metadata="")
    else:
        phone.create_upload()
    assert phone.patch(0, phone.data[:100], checksum(phone.data[:100], algorithm)).status_code == 204
    answer = phone.patch(100, b"\0" * 300, checksum(phone.data[100:400], algorithm))
    check_problem(answer, 460, f"have another {algorithm}; they changed on their way, send them again from offset 100")
    assert answer.headers["Upload-Offset"] == str(phone.offset()) == "100"
    assert phone.patch(100, phone.data[100:400], checksum(phone.data[100:400], algorithm)).status_code == 204
    assert phone.patch(400, phone.data[400:], checksum(phone.data[400:], algorithm)).status_code == 204
    assert phone.outcome().json()["state"] == "accepted"


def test_bytes_without_checksum_that_changed_are_found_by_the_whole_s_hash(phone: TusPhone) -> None:
    phone.create_upload()
    changed = phone.data[:-1] + bytes([phone.data[-1] ^ 1])
    answer = phone.patch(0, changed)
    check_problem(answer, 460, "they changed on their way, send them again from offset 0")
    assert (answer.headers["Upload-Offset"], phone.offset()) == ("0", 0)
    assert phone.patch(0, phone.data).status_code == 204


def test_a_body_may_come_with_the_announcement(phone: TusPhone) -> None:
    answer = phone.create_upload(phone.data[:500], Content_Type=BODY, **checksum(phone.data[:500]))
    assert (answer.status_code, answer.headers["Upload-Offset"]) == (201, "500")
    # Its answer got lost; the phone announces once more, again with the beginning.
    again = phone.create_upload(phone.data[:500], Content_Type=BODY)
    assert (again.status_code, again.headers["Upload-Offset"]) == (201, "500")
    assert again.headers["Location"] == answer.headers["Location"]
    assert phone.patch(500, phone.data[500:]).status_code == 204
    other = TusPhone(phone.http, "other", phone.data)
    whole = other.create_upload(other.data, Content_Type=BODY)
    assert (whole.status_code, whole.headers["Upload-Offset"]) == (201, str(len(other.data)))
    assert other.outcome().json()["state"] == "accepted"


def test_a_body_that_spoils_the_announcement_says_where_to_go_on(phone: TusPhone) -> None:
    answer = phone.create_upload(phone.data[:500], Content_Type=BODY, **checksum(b"other"))
    check_problem(answer, 460, "send them again from offset 0")
    assert answer.headers["Upload-Offset"] == "0"
    phone.path = answer.headers["Location"]
    assert phone.patch(0, phone.data).status_code == 204


def test_the_method_may_be_named_in_a_header(http: httpx.Client, phone: TusPhone) -> None:
    phone.create_upload()

    def post(method: str, content: bytes = b"", **more: str) -> httpx.Response:
        headers = {"X-HTTP-Method-Override": method, **{name.replace("_", "-"): value for name, value in more.items()}}
        return http.post(phone.path, headers=phone.headers(headers), content=content)

    assert post("PATCH", phone.data[:10], Upload_Offset="0", Content_Type=BODY).status_code == 204
    assert post("HEAD").headers["Upload-Offset"] == "10"
    assert post("DELETE").status_code == 204
    assert phone.head().status_code == 410
    for method in ("GET", "", "patch it"):
        check_problem(post(method), 405, "X-HTTP-Method-Override: PATCH, DELETE, HEAD expected")


def test_a_slash_after_the_endpoint_is_taken(http: httpx.Client, phone: TusPhone) -> None:
    """tus clients are told of endpoints with one."""
    created = http.post("/v1/uploads/", headers=phone.headers({"Upload-Length": str(len(phone.data))}))
    assert created.status_code == 201
    phone.path = f"{created.headers['Location']}/"
    assert phone.patch(0, phone.data).status_code == 204
    check_problem(http.post("/v1/upload", headers=TUS), 404, "POST /v1/upload: see /openapi.json")


def test_a_compressed_body_is_refused(server: RunningServer, phone: TusPhone) -> None:
    """The server would store it as it is."""
    packed, how = gzip.compress(phone.data), {"Content-Encoding": "gzip"}
    said = "Content-Encoding: identity expected, found 'gzip'"
    check_problem(phone.create_upload(packed, Content_Type=BODY, **how), 415, said)
    phone.create_upload()
    check_problem(phone.patch(0, packed, how), 415, said)
    assert phone.patch(0, phone.data, {"Content-Encoding": "identity"}).status_code == 204


def test_termination(server: RunningServer, phone: TusPhone) -> None:
    phone.create_upload()
    phone.patch(0, phone.data[:100])
    answer = phone.delete()
    assert (answer.status_code, answer.headers["Tus-Resumable"]) == (204, "1.0.0")
    assert identifier(phone) not in incoming(server)
    assert phone.head().status_code == 410
    check_problem(phone.patch(100, phone.data[100:]), 410, "the upload is terminated")
    check_problem(phone.delete(), 410, "the upload is terminated")
    first = phone.path
    assert phone.send().status_code == 204
    assert phone.path != first
    check_problem(phone.delete(), 403, "the upload is accepted; only an unfinished one can be given up")


def test_an_upload_is_its_phone_s_alone(http: httpx.Client, phone: TusPhone) -> None:
    phone.create_upload()
    other = TusPhone(http, "other", phone.data, phone.path)
    answers = [other.head(), other.patch(0, phone.data), other.delete(), other.outcome()]
    assert [answer.status_code for answer in answers] == [404] * 4
    for path in ("/v1/uploads/" + "0" * 32, "/v1/uploads/..", "/v1/uploads/%00", "/v1/uploads/" + "x" * 500):
        assert http.head(path, headers=phone.headers()).status_code in (404, 405)
    assert phone.offset() == 0


def test_a_refused_update_is_gone(server: RunningServer, http: httpx.Client, workshop: Workshop) -> None:
    stale = announced(http, "stale", workshop.update(1, round=7))
    check_problem(stale.patch(0, stale.data), 409, "is of round 7")
    assert stale.head().status_code == 410
    check_problem(stale.patch(len(stale.data), b""), 410, "the upload is rejected: the update is of round 7")
    garbage = TusPhone(http, "stale", b"\0" * 100)
    garbage.create_upload()
    check_problem(garbage.patch(0, garbage.data), 400, "not valid JSON")
    # The ledger has the status that the phone was answered with.
    assert [phone.outcome().json()["status"] for phone in (stale, garbage)] == [409, 400]
    assert {identifier(stale), identifier(garbage)}.isdisjoint(incoming(server))


def test_an_upload_that_is_left_alone_expires(
    start_server: StartServer, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("phonograd.server_agg.server.TICK_SECONDS", 0.05)
    with start_server(expire_seconds=0.2) as server, client_of(server.url) as http:
        phone = announced(http, "phone1", workshop.update(1))
        phone.patch(0, phone.data[:100])
        until(lambda: phone.head().status_code == 410)
        check_problem(phone.patch(100, b"x"), 410, f"expired: 100 of {len(phone.data)} bytes received in time")
        assert incoming(server) == []
        assert phone.send().status_code == 204
        (entry,) = final_report(server)["rounds"]
    assert (entry["unfinished"], entry["unfinished_bytes"], entry["accepted"]) == (1, 100, 1)


@pytest.mark.parametrize("announced_hash", ["", "0" * 64])
def test_a_last_request_that_breaks_off_before_its_end(
    announced_hash: str, server: RunningServer, phone: TusPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All bytes came, in chunks, but no word that they are all. tuspy asks for the offset, and is content with it."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    phone.create_upload(Upload_Metadata=metadata(sha256=announced_hash) if announced_hash else "")
    head = f"PATCH {phone.path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    for name, value in phone.headers({"Upload-Offset": "0", "Content-Type": BODY}).items():
        head += f"{name}: {value}\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(f"{head}\r\n{len(phone.data):x}\r\n".encode() + phone.data + b"\r\n")
        until(lambda: arriving(server, phone).exists() and arriving(server, phone).stat().st_size == len(phone.data))
        assert phone.outcome().json()["state"] == "receiving"
    client = TusClient(server.url, headers={"Phonograd-Phone": phone.name})
    uploader = client.uploader(file_stream=io.BytesIO(phone.data), url=f"{server.url}{phone.path}")
    if announced_hash:
        assert uploader.offset == 0  # they are not what was announced
        return
    uploader.upload()
    outcome = phone.outcome().json()
    assert (outcome["state"], outcome["receipt"]["phone"]) == ("accepted", phone.name)
    assert incoming(server) == []


@pytest.mark.parametrize("with_checksums", [False, True])
def test_a_client_that_is_not_ours(
    with_checksums: bool, server: RunningServer, http: httpx.Client, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tuspy, tus.io's own client for Python: in pieces, cut off in the middle of one, resumed by another process."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    data, name = workshop.update(1).read_bytes(), f"tuspy-{with_checksums}"

    def uploader(server_url: str, **more: Any) -> Uploader:
        client = TusClient(f"{server_url}/v1/uploads", headers={"Phonograd-Phone": name})
        return client.uploader(
            file_stream=io.BytesIO(data), chunk_size=1000, upload_checksum=with_checksums, retry_delay=0, **more
        )

    with relay_to(server.port, [None, None, 700]) as (_, url):
        cut = uploader(url, metadata={"filename": "update"})
        with pytest.raises(TusCommunicationError):
            cut.upload()
    path = str(cut.url).removeprefix(url)
    with relay_to(server.port, [None, 700]) as (_, url):
        resumed = uploader(url, url=url + path, retries=3)
        # A piece with a checksum counts whole or not at all, one without as far as it came.
        assert resumed.offset == 1000 if with_checksums else 1000 <= resumed.offset < 1700
        resumed.upload()
    answer = http.get(path, headers={"Phonograd-Phone": name})
    assert answer.json()["receipt"]["bytes"] == len(data)
