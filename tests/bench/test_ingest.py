import dataclasses
import hashlib
import json
import socket
import struct
import tempfile
import threading
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest

from phonograd.bench.contestants import BenchError
from phonograd.bench.ingest import IngestBenchConfig, bench_ingest
from phonograd.bench.results import Document, render
from phonograd.bench.synthetic import random_weights, write_synthetic_artifacts, write_synthetic_updates
from phonograd.bench.uploads.bodies import Body, BodyMaker
from phonograd.bench.uploads.health_probe import probe_health
from phonograd.bench.uploads.receivers import bare_handler, phonograd_serve, plain_copy
from phonograd.bench.uploads.sending import post_damaged, post_update, put_file, raw, send_at_once
from phonograd.cli import phonograd
from phonograd.console import run
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.export.presets import preset_named
from tests.support.ports import reserved_port

pytestmark = pytest.mark.long

SHORT = IngestBenchConfig("tiny", rounds=2, at_once=2, phones=(2, 3), crowds=(3,), pause=0.05)


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ingest")
    tiny = preset_named("tiny").model
    write_synthetic_artifacts(folder / "artifacts", tiny, random_weights(tiny, 0))
    write_synthetic_updates(folder / "artifacts" / WEIGHTS, {"full-f32": folder / "update"}, 0, 100)
    return folder


@pytest.fixture(scope="module")
def maker(material: Path) -> BodyMaker:
    return BodyMaker(material / "update")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def result(place: Path) -> Document:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(tempfile, "tempdir", str(place))
        return bench_ingest(SHORT)


def test_all_that_is_promised_is_measured(result: Document, place: Path) -> None:
    ways = ("bare handler", "bare handler, synced", "file copy", "received", "accepted")
    assert [(one["way"], one["at_once"]) for one in result["throughput"]] == [
        *((way, at_once) for way in ways for at_once in (1, 2)),
        ("accepted, own client", 1),
    ]
    assert [one["ratio"] for one in result["throughput"][:2]] == [1, 1]
    assert all(len(one["each"]) == 2 and min(one["each"]) > 0 for one in result["throughput"])
    assert [one["phones"] for one in result["memory"]] == [2, 3]
    for one in result["memory"]:
        assert one["limit_bytes"] == round(2.2 * result["model_bytes"]) + 150_000_000
        assert 0 < one["idle_rss_bytes"] <= one["peak_rss_bytes"]
        assert 0 < one["closing_seconds"] < one["seconds"]
    assert [(one["pause"], len(one["each"])) for one in result["last_byte"]] == [(0.0, 2), (0.05, 2)]
    (crowd,) = result["crowds"]
    assert (crowd["phones"], round(crowd["update_bytes"] / 1e6, 2)) == (3, 0.64)
    assert crowd["asked"] >= 1
    assert 0 < crowd["median_health_seconds"] <= crowd["slowest_health_seconds"]
    assert min(result["pass_seconds"], result["copy_seconds"]) > 0
    assert result["update_bytes"] > result["model_bytes"]  # by its metadata
    assert list(place.iterdir()) == []
    page = render({"ingest.json": {**result, "command": "c"}})
    assert "## Uploads: tiny, 0.0 MB each" in page
    assert "| bare handler | 1 |" in page
    assert "slowest /healthz, s" in page


def test_a_body_is_the_update_in_another_phone_s_name(material: Path, maker: BodyMaker, tmp_path: Path) -> None:
    body = maker.body(77, 5, "a" * 64)
    sent = body.whole()
    assert (len(sent), hashlib.sha256(sent).hexdigest()) == (body.nbytes, body.sha256)
    (tmp_path / "sent").write_bytes(sent)
    with UpdateFile(material / "update") as one, UpdateFile(tmp_path / "sent") as other:
        assert other.info == msgspec.structs.replace(one.info, seed=77, round=5, base_sha256="a" * 64)
        with TensorFile(material / "artifacts" / WEIGHTS) as base:
            mine, theirs = one.weights(base), other.weights(base)
    assert all(np.array_equal(mine[name], theirs[name]) for name in mine)


def received_bodies(folder: Path) -> list[bytes]:
    return sorted(path.read_bytes() for path in folder.iterdir())


@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_every_receiver_gets_the_bytes(maker: BodyMaker, tmp_path: Path, pause: float) -> None:
    bodies = [maker.body(phone, 1, maker.info.base_sha256) for phone in (1, 2)]
    sent = sorted(body.whole() for body in bodies)
    with (
        plain_copy(tmp_path / "copied") as copy,
        bare_handler(tmp_path / "bare", sync=False) as bare,
        bare_handler(tmp_path / "synced", sync=True) as synced,
    ):
        send_at_once(copy.port, [dataclasses.replace(raw(body), pause=pause) for body in bodies])
        for receiver in (bare, synced):
            parcels = [dataclasses.replace(put_file(body, f"{n}"), pause=pause) for n, body in enumerate(bodies)]
            for one in send_at_once(receiver.port, parcels):
                assert one.began + pause <= one.last_byte <= one.answered
    assert (
        received_bodies(tmp_path / "copied")
        == received_bodies(tmp_path / "bare")
        == received_bodies(tmp_path / "synced")
        == sent
    )


def test_a_server_takes_an_update_and_refuses_a_damaged_one(material: Path, maker: BodyMaker, tmp_path: Path) -> None:
    with phonograd_serve(material / "artifacts", tmp_path / "state", 10) as server:
        body = maker.body(1, 1, maker.info.base_sha256)
        send_at_once(server.port, [post_update(body, "one"), post_damaged(body, "two")])
        stale = maker.body(3, 1, "b" * 64)
        with pytest.raises(BenchError, match="status 201 expected for an upload, found 409: .*Another round or base"):
            send_at_once(server.port, [post_update(stale, "three")])
        with pytest.raises(BenchError, match="status None expected for an upload, found 405"):
            send_at_once(server.port, [dataclasses.replace(put_file(body, "healthz"), expected=None)])


def test_who_refuses_and_is_gone_before_the_end_is_heard_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").write_bytes(b"")
    body, gone = Body(b"x", tmp_path / "empty", 0, 0, b"", 1, ""), threading.Event()

    def refuse(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1, socket.MSG_PEEK)
            connection.sendall(b"HTTP/1.1 404 Not Found\r\n\r\nnobody here")
            # Closed with a reset: the sender's connection is over before it says that it has sent all.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.set()

    monkeypatch.setattr(time, "sleep", lambda seconds: gone.wait())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=refuse, args=(listener,))
        thread.start()
        with pytest.raises(BenchError, match="status None expected for an upload, found 404: nobody here"):
            send_at_once(listener.getsockname()[1], [dataclasses.replace(raw(body), pause=1.0)])
        thread.join()


def test_a_probe_tells_seconds_and_an_answer_that_is_not_healthy(material: Path, tmp_path: Path) -> None:
    with phonograd_serve(material / "artifacts", tmp_path / "state", 10) as server:
        with probe_health(server.port) as probed:
            assert probed.seconds == []
        assert min(probed.seconds) > 0
    with (
        bare_handler(tmp_path / "bare", sync=False) as bare,
        pytest.raises(BenchError, match="/healthz during uploads: status 200 expected, found another"),
        probe_health(bare.port),
    ):
        pass


def test_what_cannot_start_or_answer_is_named(maker: BodyMaker, tmp_path: Path) -> None:
    with (
        pytest.raises(BenchError, match="phonograd serve exited with code .*no-artifacts"),
        phonograd_serve(tmp_path / "no-artifacts", tmp_path / "state", 10),
    ):
        pass
    with reserved_port() as free, pytest.raises(BenchError, match="refuses connections"):
        send_at_once(free, [raw(maker.body(1, 1, "c" * 64))])


def test_the_command(
    result: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[IngestBenchConfig] = []
    monkeypatch.setattr("phonograd.commands.bench.bench_ingest", lambda config, say: asked.append(config) or result)
    line = ["bench", "ingest", "--preset", "tiny", "--phones", "2", "--phones", "3", "--crowd", "3"]
    line += ["--at-once", "2", "--rounds", "2"]
    assert run(phonograd, [*line, "--save", str(tmp_path / "r.json"), "--quiet"]) == 0
    assert asked == [dataclasses.replace(SHORT, pause=1.0)]
    out, _ = capsys.readouterr()
    assert "Uploads of 0.0 MB" in out
    assert "at most 3 passes of" in out
    saved = json.loads((tmp_path / "r.json").read_text())
    assert set(saved) == {"command", "day", "commit", *result}
    assert saved["command"] == "phonograd " + " ".join(line)
