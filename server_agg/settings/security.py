"""Settings of the server's security: the one place that declares their defaults."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from phonograd.device_runtime.client.protocol import is_loopback

Auth = Literal["auto", "tokens", "none"]

# uvicorn holds this much of a request's head before it gives up; what is to be refused with words must fit.
HEAD_CAP_BYTES = 65536


@dataclass(frozen=True)
class SecuritySettings:
    """Who may talk to the server, how often, and over what.

    auth: tokens asks everyone for a token, none asks nobody; auto asks everyone too, but on loopback only for what
        administrators do.
    requests_per_second, burst: of each phone, and of each address that shows no valid token.
    concurrent_per_phone: requests a phone may have open at once.
    max_header_bytes, max_target_bytes: of a request's headers and of its URL without the host.
    tls_cert, tls_key: PEM files; without a key the certificate's file holds it. None: plain HTTP.

    Raises ValueError for a setting out of range.
    """

    auth: Auth = "auto"
    requests_per_second: float = 50.0
    burst: int = 200
    concurrent_per_phone: int = 8
    max_header_bytes: int = 16384
    max_target_bytes: int = 2048
    tls_cert: Path | None = None
    tls_key: Path | None = None

    def __post_init__(self) -> None:
        sizes = (("max_header_bytes", self.max_header_bytes), ("max_target_bytes", self.max_target_bytes))
        numbers = (("burst", self.burst), ("concurrent_per_phone", self.concurrent_per_phone))
        rate = self.requests_per_second
        checks = (
            (self.auth in get_args(Auth), f"auth is {self.auth!r}, expected one of {', '.join(get_args(Auth))}"),
            (rate > 0 and math.isfinite(rate), f"requests_per_second is {rate}, expected more than 0"),
            *((number >= 1, f"{name} is {number}, expected at least 1") for name, number in numbers),
            *(
                (0 < size <= HEAD_CAP_BYTES, f"{name} is {size}, expected 1 to {HEAD_CAP_BYTES}")
                for name, size in sizes
            ),
            (self.tls_key is None or self.tls_cert is not None, "tls_key is set, expected tls_cert beside it"),
        )
        for good, message in checks:
            if not good:
                raise ValueError(message)

    def asks_for_tokens(self, host: str) -> bool:
        """Whether a server that listens on `host` asks phones for tokens; administrators, unless auth is none."""
        return self.auth == "tokens" or (self.auth == "auto" and not is_loopback(host))

    def warnings(self, host: str) -> tuple[str, ...]:
        """What someone who makes a server listen on `host` should know, a line each."""
        if is_loopback(host):
            if self.auth != "none":
                return ()
            return (
                "`auth` none lets every user and program of this machine, and whoever a proxy or a tunnel lets in, "
                "read reports and roll rounds back; leave it out: phones on loopback need no token",
            )
        found = []
        if self.tls_cert is None:
            found.append(
                f"{host} is not this machine alone, and there is no TLS: anyone on the way can read models, updates "
                "and tokens; give `tls_cert` and `tls_key`, or put a TLS proxy before a server on 127.0.0.1"
            )
        if not self.asks_for_tokens(host):
            found.append(
                f"{host} is not this machine alone, and `auth` none lets ANYONE who reaches it fetch models, send "
                "updates in any phone's name and roll rounds back; leave `auth` out unless a proxy asks for tokens"
            )
        return tuple(found)
