"""A phone's part in a masked round, done on the phone: its key, its secrets and its grid update never leave it."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import msgspec

from phonograd.android_harness.errors import PhoneRunError
from phonograd.android_harness.rounds.settings import MaskingSettings
from phonograd.android_harness.session import PhoneSession
from phonograd.android_harness.session.program import Event
from phonograd.device_runtime.base.documents import FieldError, Sha256, read
from phonograd.device_runtime.base.files import write_bytes
from phonograd.device_runtime.client.server_client import Server
from phonograd.device_runtime.masked.phone import Request

ANSWER = "answer.json"  # on the phone, until its session ends
Told = TypeVar("Told", bound=msgspec.Struct)


class _Identity(msgspec.Struct):
    public_key: Sha256


class PhoneMember:
    """A phone as its server's masked rounds know it. Its key is made when it is missing, and stays on the phone.

    identity: the public key, hex. Raises what PhoneSession.run raises.
    """

    def __init__(self, session: PhoneSession, server: Server, name: str, stop: threading.Event):
        self._session, self._stop = session, stop
        # As `phonograd train` has it in its cache: for each server and phone its own.
        folder = f"masked/{quote(str(server), safe='')}/phone-{name}"
        key = f"{folder}/identity.key"
        self.identity = self._last(["identity", key], _Identity).public_key
        self._name, self._options = name, ["--phone", name, "--state", f"{folder}/state", "--identity", key]

    def admit(self, settings: MaskingSettings) -> None:
        """Go by these settings. Raises UsageError for a phone without the certificate that they ask for."""
        self._options += settings.command_line(self._name, self.identity)

    def ask(self, grid: str, number: int, answer: str | None = None) -> Request:
        """What to send next in round `number`. grid, answer: files on the phone. Of an upload, the file there."""
        line = ["mask", grid, "--round", str(number), *self._options]
        if answer is not None:
            line += ["--answer", answer]
        return self._last(line, Request)

    def _last(self, arguments: Sequence[str], kind: type[Told]) -> Told:
        events = list[Event]()
        self._session.run(arguments, lambda _at, event: events.append(event), self._stop)
        try:
            return read(kind, events[-1] if events else {})
        except FieldError as error:
            raise PhoneRunError(
                f"phonograd-phone {arguments[0]}: a field is missing or wrong ({error}); is it of this version?"
            ) from error


class OverAdb:
    """What MaskedPhone is to masked_round.take_part, for a phone over adb; the masked update alone is pulled.

    grid: the grid update on the phone; pulled: where the masked update goes here, beside which answers wait for the
    phone. One thread at a time. Its methods raise what PhoneSession's do, with the exit code of UpdateError if the
    phone may not go on with an answer.
    """

    def __init__(self, session: PhoneSession, member: PhoneMember, grid: str, number: int, pulled: Path):
        self._session, self._member, self._round = session, member, (grid, number)
        self._pulled, self._answer = pulled, pulled.with_suffix(".answer")
        self._request = self._here(member.ask(*self._round))

    def request(self) -> Request:
        """What to do now; the same until `take`."""
        return self._request

    def take(self, answer: str | None) -> None:
        """The body of the answer; None after an upload."""
        there = self._session.transient(ANSWER)
        write_bytes(self._answer, (answer or "").encode())
        try:
            self._session.sync({there: self._answer})
        finally:
            self._answer.unlink(missing_ok=True)
        self._request = self._here(self._member.ask(*self._round, there))

    def _here(self, request: Request) -> Request:
        """An upload's file is pulled: upload_update checks its checksum."""
        if request.action != "upload":
            return request
        self._session.pull(request.path, self._pulled, sha256=None)
        return msgspec.structs.replace(request, path=str(self._pulled))
