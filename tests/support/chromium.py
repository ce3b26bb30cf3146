"""A headless Chromium, driven over the DevTools protocol."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

from tests.support.waiting import PATIENCE_SECONDS, until

LEVELS = ("error", "warning", "assert")


class Tab:
    """One page; `complaints` are what its console, its network and its scripts had to complain about."""

    def __init__(self, socket: ClientConnection):
        self._socket = socket
        self._asked = 0
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol and wait for its result."""
        self._asked += 1
        self._socket.send(json.dumps({"id": self._asked, "method": method, "params": parameters}))
        while (message := self._next()).get("id") != self._asked:
            pass
        assert "error" not in message, message
        return message["result"]

    def open(self, url: str, leads_to: str = "") -> None:
        """Go to a page and wait until it is loaded; `leads_to`: where it sends the browser on to."""
        self.ask("Page.navigate", url=url)
        self.until(f"document.readyState === 'complete' && location.href.startsWith('{leads_to or url}')")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression comes to in the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        until(lambda: self.value(expression), expression)

    def resize(self, width: int, height: int, dark: bool = False) -> None:
        """Make it as large as a screen, and dark if the person likes that."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def fits(self, width: int = 390) -> bool:
        """Whether the page, on a screen as wide as a phone's, is no wider, and none of its plots is."""
        self.resize(width, 844)
        plots = "[...document.querySelectorAll('svg')].every(one => one.getBoundingClientRect().right <= innerWidth)"
        return bool(self.value(f"document.documentElement.scrollWidth === {width} && {plots}"))

    def shoot(self, path: Path) -> None:
        """Write the whole page as a PNG."""
        shot = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(b64decode(shot["data"]))

    def _next(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(timeout=PATIENCE_SECONDS))
        about = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled" if about["type"] in LEVELS:
                self.complaints.append(str(about["args"]))
            case "Runtime.exceptionThrown":
                self.complaints.append(str(about["exceptionDetails"]))
            case "Log.entryAdded" if about["entry"]["level"] in LEVELS:
                self.complaints.append(str(about["entry"]))
            case "Network.responseReceived" if about["response"]["status"] >= 400:
                self.complaints.append(f"{about['response']['url']}: {about['response']['status']}")
            case "Network.loadingFailed" if not about.get("canceled"):
                self.complaints.append(str(about))
        return message


@contextlib.contextmanager
def chromium(folder: Path) -> Iterator[Tab]:
    """A browser with an empty profile in `folder`."""
    command = shutil.which("chromium") or shutil.which("google-chrome")
    assert command, "Chromium is missing; Debian: apt-get install chromium"
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--hide-scrollbars",
    ]
    options += [
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "--disable-background-networking",
        "about:blank",
    ]
    with (folder.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen([command, *options], stdout=log, stderr=log, start_new_session=True)
    try:
        with connect(_address(folder, process), max_size=None, compression=None) as socket:
            yield Tab(socket)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its own session: all of its processes, and no one else's
        process.wait()


def _address(folder: Path, process: subprocess.Popen[bytes]) -> str:
    """Address of the first tab, once the browser has written down its port."""
    port_file = folder / "DevToolsActivePort"

    def listens() -> bool:
        assert process.poll() is None, f"Chromium ended with {process.returncode}"
        return port_file.exists() and port_file.read_text("ascii").count("\n") > 0

    until(listens, "Chromium's port")
    port = port_file.read_text("ascii").splitlines()[0]
    tabs = httpx.get(f"http://127.0.0.1:{port}/json/list", trust_env=False).json()
    return str(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
