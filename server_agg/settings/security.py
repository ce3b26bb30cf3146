"""The server's security settings, with their defaults."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from phonograd.device_runtime.client.protocol import is_loopback

Auth = Literal["auto", "tokens", "none"]

# uvicorn buffers at most this much of a request's head; a larger limit could not answer with a problem document.
HEAD_CAP_BYTES = 65536


@dataclass(frozen=True)
class SecuritySettings:
    """Authentication, rate limits and TLS.

    auth: `tokens` requires a token for every request, `none` for no request, `auto` for every request, but on loopback
        only for admin requests.
    requests_per_second, burst: the rate limit of each phone, and of each address without a valid token.
    concurrent_per_phone: concurrent requests of one phone.
    max_header_bytes, max_target_bytes: the largest request headers, and the longest URL without the host.
    tls_cert, tls_key: PEM files; without tls_key, tls_cert must contain the key. None: plain HTTP.

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
            (self.auth in get_args(Auth), f"`auth` is {self.auth!r}, expected one of {', '.join(get_args(Auth))}"),
            (rate > 0 and math.isfinite(rate), f"`requests_per_second` is {rate}, expected more than 0"),
            *((number >= 1, f"`{name}` is {number}, expected at least 1") for name, number in numbers),
            *(
                (0 < size <= HEAD_CAP_BYTES, f"`{name}` is {size}, expected 1 to {HEAD_CAP_BYTES}")
                for name, size in sizes
            ),
            (self.tls_key is None or self.tls_cert is not None, "`tls_key` is set, expected `tls_cert` as well"),
        )
        for good, message in checks:
            if not good:
                raise ValueError(message)

    def asks_for_tokens(self, host: str) -> bool:
        """Whether a server on `host` requires tokens of phones. Admin requests need one unless auth is none."""
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
