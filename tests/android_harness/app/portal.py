"""Who answers an app in a server's place, and how a server proves what it is."""

import contextlib
import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import trustme

from phonograd.android_harness.app import Tools
from phonograd.android_harness.app.toolchain import run_tool
from phonograd.server_agg.settings.security import SecuritySettings

HTML = (200, {"Content-Type": "text/html"}, b"<html>Log in</html>")
PROBLEM = {"Content-Type": "application/problem+json"}
JSON = {"Content-Type": "application/json"}
Answer = tuple[int, dict[str, str], bytes]


@contextlib.contextmanager
def answering(answer: Callable[[str], Answer]) -> Iterator[str]:
    """Something that answers any request for a path so; its URL."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            part = self.headers.get("Range")
            status, headers, body = answer(self.path if part is None else f"{self.path} {part}")
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def tls_settings(folder: Path, tools: Tools) -> tuple[SecuritySettings, Path, Mapping[str, object]]:
    """Settings of a server with a certificate, its authority's file, and the properties of a JVM that trusts it."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    chain, key, ca, trusted = (folder / name for name in ("chain.pem", "key.pem", "ca.pem", "ca.p12"))
    chain.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    key.chmod(0o600)
    authority.cert_pem.write_to_path(str(ca))
    run_tool(tools.keytool, "-importcert", "-noprompt", "-file", ca, "-keystore", trusted, "-storepass", "secret")
    security = SecuritySettings(auth="tokens", tls_cert=chain, tls_key=key)
    return security, ca, {"javax.net.ssl.trustStore": trusted, "javax.net.ssl.trustStorePassword": "secret"}
