"""Parts of a round that need no server: names, seeds, texts, tokens, settings, what an upload is tried again for."""

import re
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from phonograd.android_harness.errors import PhoneRunError
from phonograd.android_harness.rounds import upload
from phonograd.android_harness.rounds.naming import find_text, name_from_serial, phone_names
from phonograd.android_harness.rounds.result import DropOut, PhoneRound, read_training
from phonograd.android_harness.rounds.round_end import RoundEnd, wait_for_end
from phonograd.android_harness.rounds.settings import PhoneTraining, RoundSettings
from phonograd.android_harness.rounds.tokens import ServerAccess, read_certificates, read_tokens
from phonograd.android_harness.rounds.upload import send_update
from phonograd.commands.connecting import model_cache_from
from phonograd.commands.phone_round import _choices, _with_options, phone_round
from phonograd.config.phone_round import PHONE_ROUND
from phonograd.config.values import Config
from phonograd.console import NAMES
from phonograd.device_runtime.base.errors import (
    ServerRefusedError,
    ServerUnreachableError,
    StoppedError,
    TextError,
    UsageError,
)
from phonograd.device_runtime.client.protocol import PHONE_NAME
from phonograd.device_runtime.client.server_client import Connection, UploadReceipt

ROOT = Path(__file__).parents[2]
TOKEN = f"pgd_{'0' * 16}_{'1' * 64}"
SERIAL = "127.0.0.1:5555"


@pytest.mark.parametrize("serial", ["-", ".a", "\0", "漢字 📱", "adb-1A (2)._adb-tls-connect._tcp", "x" * 500])
def test_any_serial_gives_a_name_that_the_server_accepts(serial: str) -> None:
    assert PHONE_NAME.match(name_from_serial(serial))


def test_apps_know_the_same_names() -> None:
    source = (ROOT / "device_runtime/java/org/phonograd/ServerConnection.java").read_text("utf-8")
    (rule,) = re.findall(r'Pattern NAME = Pattern.compile\("(.*)"\);', source)
    assert rule.replace("\\\\", "\\").replace("$", r"\Z") == PHONE_NAME.pattern.removesuffix(r"\Z")


def test_names() -> None:
    assert phone_names([SERIAL, "R58M"], {}) == {SERIAL: "127.0.0.1_5555", "R58M": "R58M"}
    assert phone_names([SERIAL, "R58M"], {SERIAL: "left"}) == {SERIAL: "left", "R58M": "R58M"}
    for serials, chosen, message in (
        (["a", "b"], {"c": "x"}, "name c=x: no phone of this round has that serial"),
        (["a", "b"], {"a": "x y"}, "name a=x y: not a valid name: 1 to 64 of A-Z"),
        (["a", "b"], {"a": "b"}, "phones a and b: both would have the name b; choose others with `names`, SERIAL=NAME"),
        (["a:b", "a_b"], {}, "both would have the name a_b"),
    ):
        with pytest.raises(UsageError) as raised:
            phone_names(serials, chosen)
        assert message in str(raised.value)


def test_choices_on_the_command_line() -> None:
    assert _choices(("a=b=c", f"{SERIAL}=left")) == {"a=b": "c", SERIAL: "left"}
    for wrong in (("left",), ("=left",), ("a=x", "a=y")):
        with pytest.raises(Exception, match="SERIAL=NAME expected, once for a phone"):
            _choices(wrong)


def test_models_are_kept_where_the_file_or_else_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with click.Context(phone_round).scope():
        monkeypatch.setenv("PHONOGRAD_MODEL_CACHE", "theirs")
        assert model_cache_from(Config(PHONE_ROUND, sets=("server=http://h", "connection.model_cache=mine"))) == Path(
            "mine"
        )
        assert model_cache_from(Config(PHONE_ROUND)) == Path("theirs")
        monkeypatch.delenv("PHONOGRAD_MODEL_CACHE")
        assert model_cache_from(Config(PHONE_ROUND)) is None


def test_the_text_of_a_phone(tmp_path: Path) -> None:
    for stem in (SERIAL, "127.0.0.1_5555", "left"):
        path = tmp_path / f"{stem}.txt"
        path.write_text("hello\n")
        assert find_text(tmp_path, SERIAL, "left") == path
        path.unlink()
    with pytest.raises(TextError, match=r"127.0.0.1:5555.txt or 127.0.0.1_5555.txt or left.txt expected"):
        find_text(tmp_path, SERIAL, "left")
    (tmp_path.parent / "outside.txt").write_text("not yours\n")
    with pytest.raises(TextError):
        find_text(tmp_path, "../outside", "left")


def test_tokens_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# phones on the desk\n\np1 {TOKEN}\n")
    path.chmod(0o600)
    tokens = read_tokens(path)
    assert tokens == {"p1": TOKEN}
    given = Connection("http://127.0.0.1:1", token_over_http=True)
    assert ServerAccess(given).connection_of("p1") is given
    access = ServerAccess(given, tokens)
    assert access.connection_of("p1") == Connection("http://127.0.0.1:1", TOKEN, token_over_http=True)
    with pytest.raises(UsageError, match="phone p2: it has no token"):
        access.connection_of("p2")
    path.chmod(0o640)
    with pytest.raises(UsageError, match="expected mode 600, found 640: others could read the tokens; chmod 600"):
        read_tokens(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"p1 secret\n", "line 1: expected NAME TOKEN"),
        (f"p1 {TOKEN} more\n".encode(), "line 1: expected NAME TOKEN"),
        (f"p/1 {TOKEN}\n".encode(), "line 1: expected NAME TOKEN"),
        (f"p1 {TOKEN}\np1 {TOKEN}\n".encode(), "line 2: phone p1 is listed twice"),
        (b"\xff\xfe", "not text"),
    ],
)
def test_an_invalid_token_file(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(UsageError, match=message) as raised:
        read_tokens(path)
    assert "secret" not in str(raised.value)
    assert TOKEN not in str(raised.value)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_tokens(tmp_path / "none")


def test_certificates_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "certificates"
    path.write_text(f"# they are no secrets\np1 {'ab' * 64}\n")
    path.chmod(0o644)
    assert read_certificates(path) == {"p1": "ab" * 64}
    path.write_text(f"p1 {'ab' * 32}\n")
    with pytest.raises(UsageError, match="line 1: expected NAME CERTIFICATE, the certificate 128 digits of hex"):
        read_certificates(path)


@pytest.mark.parametrize("wrong", [{"codec": "zip"}, {"user_share": 0.5}, {"cores": "fast"}])
def test_impossible_training_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected|needs"):
        PhoneTraining(**wrong)


def test_a_text_on_the_phone_has_an_absolute_path() -> None:
    with pytest.raises(ValueError, match="`text_on_phone` is 'user.txt', expected an absolute path"):
        RoundSettings(text_on_phone="user.txt")


def test_threads_and_cores_are_those_that_the_phone_reports(tmp_path: Path) -> None:
    line = PhoneTraining(rehearsal=tmp_path, user_share=0.25, learning_rate=0.5).command_line()
    assert line[:4] == ["--cores", "big", "--precision", "fp32"]
    assert line[4:] == ["--codec", "rows-f32", "--user-share", "0.25", "--lr", "0.5", "--pin-threads"]
    assert PhoneTraining(threads=3).command_line()[:4] == ["--threads", "3", "--cores", "big"]
    masked = PhoneTraining(codec="rot-q4").command_line("{}")
    assert (masked[4:6], "--codec" in masked) == (["--masked", "{}"], False)
    sampled = PhoneTraining(output_sample=2000, duty=0.5, nice=10).command_line()
    assert sampled[4:10] == ["--output-sample", "2000", "--duty", "0.5", "--nice", "10"]


def test_a_report_with_a_missing_field() -> None:
    with pytest.raises(PhoneRunError, match="has a missing or wrong field .tokens: missing"):
        read_training({"steps": 3})


RECEIPT = UploadReceipt(1, "p1", 1, 10, False, None, 100)


class Server:
    """Answers of upload_update, one after the other."""

    def __init__(self, *answers: UploadReceipt | Exception):
        self.answers, self.asked = list(answers), 0

    def __call__(self, *_: object) -> UploadReceipt:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def refusal(status: int) -> ServerRefusedError:
    error = ServerRefusedError(f"refused ({status})")
    error.status = status
    return error


def send(server: Server, patience: float, monkeypatch: pytest.MonkeyPatch, stop: threading.Event | None = None) -> Any:
    monkeypatch.setattr(upload, "upload_update", server)
    monkeypatch.setattr(upload, "FIRST_WAIT_SECONDS", 0.001)
    return send_update("url", Path("u"), "p1", patience, stop or threading.Event(), lambda *_: None)


def test_answers_after_which_an_upload_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(ServerUnreachableError("gone"), refusal(429), refusal(503), refusal(507), RECEIPT)
    assert send(server, 60, monkeypatch) == RECEIPT
    assert server.asked == 5
    for final in (refusal(409), refusal(403), ServerRefusedError("refused")):
        server = Server(final)
        with pytest.raises(ServerRefusedError):
            send(server, 60, monkeypatch)
        assert server.asked == 1
    server = Server(ServerUnreachableError("gone"))
    with pytest.raises(ServerUnreachableError):
        send(server, 0.05, monkeypatch)
    assert server.asked > 2


def test_a_receipt_of_a_closed_round_needs_no_server() -> None:
    nowhere = "http://127.0.0.1:1"
    last = UploadReceipt(1, "p2", 10, 10, True, "a" * 64, 100)
    assert wait_for_end(nowhere, 1, [RECEIPT, last], 60, lambda: 0) == RoundEnd(True, "a" * 64)
    assert wait_for_end(nowhere, 1, [RECEIPT], 0, lambda: 0) == RoundEnd(None, None)


def test_an_upload_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()
    with pytest.raises(StoppedError, match="interrupted before the server had u"):
        send(Server(ServerUnreachableError("gone")), 600, monkeypatch, stop)


def test_a_drop_out_names_the_commands_options() -> None:
    drop_out = DropOut("train", "user.txt: not found; name another by `text_on_phone`, or give `texts`", 3)
    finished = PhoneRound("S", "p1", None, 0)
    with click.Context(phone_round).scope() as context:
        context.meta[NAMES] = Config(PHONE_ROUND).names()
        named = _with_options(PhoneRound("S", "p1", None, 0, drop_out=drop_out))
        assert _with_options(finished) == finished
    assert named.drop_out is not None
    assert named.drop_out.message == "user.txt: not found; name another by text.on_phone, or give --texts"


class SlowServer(Server):
    """Takes a byte in 40 seconds."""

    seconds = 0.0

    def __call__(self, *asked: Any) -> UploadReceipt:
        self.seconds += 40
        asked[3](1, 2)
        return super().__call__()


def test_patience_begins_anew_with_each_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    server = SlowServer(*[ServerUnreachableError("gone")] * 3, RECEIPT)
    monkeypatch.setattr(upload, "time", SimpleNamespace(monotonic=lambda: server.seconds))
    assert send(server, 60, monkeypatch) == RECEIPT
