"""TLS: the certificate and key are checked before the server listens, so that errors name the file."""

import logging
import ssl
from pathlib import Path
from typing import TypedDict

from phonograd.device_runtime.base.errors import PhonogradError
from phonograd.server_agg.settings.security import SecuritySettings

log = logging.getLogger(__name__)


class TlsError(PhonogradError):
    """The certificate or the key is invalid, or they do not belong together."""

    exit_code = 18


class TlsFiles(TypedDict, total=False):
    """uvicorn's options for TLS."""

    ssl_certfile: Path
    ssl_keyfile: Path


def tls_files(settings: SecuritySettings) -> TlsFiles:
    """Return uvicorn's arguments for these settings; empty without TLS. Raises TlsError."""
    certificate = settings.tls_cert
    if certificate is None:
        return {}
    key = settings.tls_key or certificate
    _expect(
        certificate, b"-----BEGIN CERTIFICATE-----", "`tls_cert`", "a PEM certificate (-----BEGIN CERTIFICATE-----)"
    )
    _expect(key, b"PRIVATE KEY-----", "`tls_key`", "a PEM private key (-----BEGIN PRIVATE KEY-----)")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(
                f"{key}: the key of {certificate} expected, found another's; give the two as a pair"
            ) from error
        reason = error.reason or error
        raise TlsError(f"{certificate}, {key}: damaged ({reason}); expected a certificate and its key") from error
    except OSError as error:
        raise TlsError(f"{certificate}, {key}: cannot be read: {error.strerror or error}") from error
    if key.stat().st_mode & 0o077:
        log.warning("%s: other users of this machine can read the private key; chmod 600", key)
    return {"ssl_certfile": certificate, "ssl_keyfile": key}


def _expect(path: Path, mark: bytes, setting: str, what: str) -> None:
    try:
        marked = mark in path.read_bytes()
    except OSError as error:
        raise TlsError(f"{setting} {path}: cannot be read: {error.strerror}; expected {what}") from error
    if not marked:
        raise TlsError(f"{setting} {path}: {what} expected, found none; is it in DER form?")


def _refuse_password() -> str:
    # Else OpenSSL would ask at the terminal, where a server has none.
    raise TlsError("`tls_key`: a key without a passphrase expected, found an encrypted one; decrypt it: openssl pkey")
