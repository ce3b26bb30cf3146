"""The server's security settings, with their defaults."""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.settings import Count, Positive, Settings
from phonograd.device_runtime.client.protocol import is_loopback

Auth = Literal["auto", "tokens", "none"]

# uvicorn buffers at most this much of a request's head; a larger limit could not answer with a problem document.
HEAD_CAP_BYTES = 65536
HeadBytes = Annotated[int, Meta(ge=1, le=HEAD_CAP_BYTES)]


class SecuritySettings(Settings, frozen=True):
    """Authentication, rate limits and TLS. Raises ValueError for a setting out of range."""

    auth: Annotated[
        Auth,
        about(
            "Who needs a token; auto: everyone, unless the server listens on loopback and the strategy is not private."
        ),
    ] = "auto"
    requests_per_second: Annotated[
        Positive, about("Rate limit for each phone, and for each address without a valid token.")
    ] = 50.0
    burst: Annotated[Count, about("Requests that a phone may send at once.")] = 200
    concurrent_per_phone: Annotated[Count, about("Requests that a phone may have open at once.")] = 8
    max_header_bytes: Annotated[HeadBytes, about("Largest headers of a request.")] = 16384
    max_target_bytes: Annotated[HeadBytes, about("Longest URL, without the host.")] = 2048
    tls_cert: Annotated[Path | None, about("PEM certificate: serve https.")] = None
    tls_key: Annotated[Path | None, about("Its PEM key, if it is a separate file.")] = None

    def check_together(self) -> None:
        """Raise ValueError for a key without a certificate."""
        self.require("tls_key", self.tls_key is None or self.tls_cert is not None, "`tls_cert` beside it")

    def asks_for_tokens(self, host: str) -> bool:
        """Whether a server on `host` requires tokens of phones. Admin requests need one unless `auth` says none."""
        return self.auth == "tokens" or (self.auth == "auto" and not is_loopback(host))

    def warnings(self, host: str) -> tuple[str, ...]:
        """Warnings about a server that listens on `host`, one line each."""
        if is_loopback(host):
            if self.auth != "none":
                return ()
            return (
                "`auth` none lets every user and program on this machine, and all clients of a proxy or tunnel, read "
                "reports and roll back rounds; leave it out: phones on loopback need no token",
            )
        warnings = []
        if self.tls_cert is None:
            warnings.append(
                f"{host} is reachable from other machines without TLS: anyone on the network can read models, updates "
                "and tokens; set `tls_cert` and `tls_key`, or run a TLS proxy in front of a server on 127.0.0.1"
            )
        if not self.asks_for_tokens(host):
            warnings.append(
                f"{host} is reachable from other machines, and `auth` none lets ANYONE fetch models, send updates "
                "under any phone's name and roll back rounds; leave `auth` out unless a proxy authenticates requests"
            )
        return tuple(warnings)
