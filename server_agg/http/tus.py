"""The tus 1.0 protocol's headers: https://tus.io/protocols/resumable-upload, with the extensions creation,
creation-with-upload, checksum, expiration and termination.

Of our own, because tuspyserver, the library there is for starlette's family, brings FastAPI, knows no checksums, and
leaves no room to check an upload before its first byte or to count what broke off.
"""

import base64
import binascii
import email.utils
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta
from starlette.datastructures import Headers

from phonograd.device_runtime.client.protocol import PHONE_HEADER, TUS_BODY_TYPE, TUS_VERSION
from phonograd.server_agg.http.operations import Answer, Body, Header, Natural, Octets, Parameter
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.rounds.uploads import UploadMetadata, UploadRecord

EXTENSIONS = "creation,creation-with-upload,checksum,expiration,termination"
CHECKSUMS = ("sha256", "sha1")
# Not in HTTP's registry; the tus protocol's own.
CHECKSUM_MISMATCH = 460

COUNT = re.compile(r"[0-9]{1,18}\Z")
SHA256 = re.compile(r"[0-9a-f]{64}\Z")
MAX_METADATA = 4096

# What the operations of uploads take and answer, for their declarations.
ID = Parameter("path", "id", str, "The id from the Location header of the created upload.")
VERSION = Parameter("header", "Tus-Resumable", Literal["1.0.0"], required=True)
CHECKSUM = Parameter(
    "header",
    "Upload-Checksum",
    Annotated[str, Meta(pattern="^(sha256 [A-Za-z0-9+/]{43}=|sha1 [A-Za-z0-9+/]{27}=)$")],
    "Of this request's body, base64.",
)
ANNOUNCED = (
    VERSION,
    Parameter("header", "Upload-Length", Annotated[int, Meta(ge=1)], "Bytes of the whole update.", required=True),
    Parameter("header", "Upload-Metadata", str, "tus's key and base64 pairs: phone, sha256, base_sha256, round."),
    Parameter("header", PHONE_HEADER, str, "Instead of the metadata's phone."),
    CHECKSUM,
)
APPENDED = (ID, VERSION, Parameter("header", "Upload-Offset", Natural, "Bytes sent so far.", required=True), CHECKSUM)
OVERRIDING = (
    *(ID, VERSION, CHECKSUM),
    Parameter("header", "Upload-Offset", Natural),
    Parameter("header", "X-HTTP-Method-Override", Literal["PATCH", "DELETE", "HEAD"], required=True),
)
REFUSED_BYTES = (400, 404, 408, 409, 410, 412, 413, 415, 422, 460, 503)
VERSIONED = (Header("Tus-Resumable", Literal["1.0.0"]),)
STANDING = (
    *VERSIONED,
    Header("Upload-Offset", int, "Bytes that are here."),
    Header("Upload-Expires", str, "While it is unfinished.", required=False),
    Header("Cache-Control", Literal["no-store"]),
)
CAPABILITIES = Answer(
    "The server's tus capabilities.",
    headers=(*VERSIONED, *map(Header, ("Tus-Version", "Tus-Extension", "Tus-Max-Size", "Tus-Checksum-Algorithm"))),
)
PART = Body(Octets, TUS_BODY_TYPE)
MAYBE_PART = Body(Octets, TUS_BODY_TYPE, required=False)


@dataclass(frozen=True)
class Checksum:
    """The expected hash of a request's body: name of the hash, raw digest."""

    algorithm: str
    digest: bytes


def check_version(headers: Headers) -> None:
    """Raise RequestError (412) unless the request speaks our version."""
    found = headers.get("Tus-Resumable", "")
    if found != TUS_VERSION:
        message = f"Tus-Resumable: {TUS_VERSION} expected, found {found[:20]!r}"
        raise RequestError(412, message, {"Tus-Version": TUS_VERSION})


def count_in(headers: Headers, name: str) -> int:
    """A header's whole number. Raises RequestError (400)."""
    text = headers.get(name, "")
    if not COUNT.match(text):
        raise RequestError(400, f"{name}: a whole number expected, found {text[:80]!r}")
    return int(text)


def has_body_type(headers: Headers) -> bool:
    """Return whether the request says that its body is one of tus."""
    return headers.get("Content-Type", "").partition(";")[0].strip().lower() == TUS_BODY_TYPE


def check_body_type(headers: Headers) -> None:
    """Raise RequestError (415) unless the body is one of tus."""
    if not has_body_type(headers):
        raise RequestError(
            415, f"Content-Type: {TUS_BODY_TYPE} expected, found {headers.get('Content-Type', '')[:80]!r}"
        )


def checksum_in(headers: Headers) -> Checksum | None:
    """The Upload-Checksum, if there is one. Raises RequestError (400)."""
    text = headers.get("Upload-Checksum")
    if text is None:
        return None
    algorithm, _, encoded = text.partition(" ")
    digest = _decode_base64("Upload-Checksum", encoded)
    if algorithm not in CHECKSUMS or len(digest) != (32 if algorithm == "sha256" else 20):
        raise RequestError(
            400, f"Upload-Checksum: one of {', '.join(CHECKSUMS)} and a base64 digest expected, found {text[:80]!r}"
        )
    return Checksum(algorithm, digest)


def announcement(headers: Headers, phone: str | None, limit: int) -> UploadMetadata:
    """Read what a creation announces; `phone`: a name if known. Raises RequestError (400, 413 above `limit` bytes).

    Of Upload-Metadata `phone`, `sha256`, `base_sha256` and `round` are looked at, all optional but the phone.
    """
    length = count_in(headers, "Upload-Length")
    if length < 1:
        raise RequestError(400, "Upload-Length: at least 1 expected, found 0")
    if length > limit:
        raise RequestError(413, f"an update of at most {limit} bytes expected, found {length}; is it an update?")
    metadata = _metadata(headers.get("Upload-Metadata", ""))
    number = metadata.get("round")
    if number is not None and not COUNT.match(number):
        raise RequestError(400, f"Upload-Metadata: round: a whole number expected, found {number[:80]!r}")
    return UploadMetadata(
        phone=phone if phone is not None else metadata.get("phone", ""),
        length=length,
        sha256=_sha256(metadata, "sha256"),
        base_sha256=_sha256(metadata, "base_sha256"),
        round=None if number is None else int(number),
    )


def upload_headers(upload: UploadRecord) -> dict[str, str]:
    """The headers that say where an upload stands."""
    headers = {"Tus-Resumable": TUS_VERSION, "Upload-Offset": str(upload.offset), "Cache-Control": "no-store"}
    if upload.state == "receiving":
        headers["Upload-Expires"] = email.utils.formatdate(upload.expires_at, usegmt=True)
    return headers


def capabilities(limit: int) -> dict[str, str]:
    """The headers of an answer to OPTIONS."""
    return {
        "Tus-Resumable": TUS_VERSION,
        "Tus-Version": TUS_VERSION,
        "Tus-Extension": EXTENSIONS,
        "Tus-Max-Size": str(limit),
        "Tus-Checksum-Algorithm": ",".join(CHECKSUMS),
    }


def _metadata(text: str) -> dict[str, str]:
    if len(text) > MAX_METADATA:
        raise RequestError(400, f"Upload-Metadata: at most {MAX_METADATA} characters expected, found {len(text)}")
    metadata = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        key, _, encoded = pair.partition(" ")
        if key in metadata:
            raise RequestError(400, f"Upload-Metadata: {key[:40]}: once expected, found it again")
        try:
            metadata[key] = _decode_base64("Upload-Metadata", encoded).decode()
        except UnicodeDecodeError as error:
            raise RequestError(400, f"Upload-Metadata: {key[:40]}: UTF-8 expected, found other bytes") from error
    return metadata


def _sha256(metadata: Mapping[str, str], key: str) -> str | None:
    value = metadata.get(key)
    if value is not None and not SHA256.match(value):
        raise RequestError(400, f"Upload-Metadata: {key}: 64 hex digits expected, found {value[:80]!r}")
    return value


def _decode_base64(name: str, encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded.strip(), validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError(400, f"{name}: base64 expected, found {encoded[:80]!r}") from error
