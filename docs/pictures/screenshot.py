"""A page of this machine in Chromium, as a picture."""

import tempfile
from base64 import b64decode
from pathlib import Path

from tests.support.chromium import chromium


def screenshot(picture: Path, width: int, height: int, *addresses: str) -> None:
    """Write the top of a page, `width` by `height` pixels, as a PNG.

    addresses: the one to open, and the one that it leads to, if another.
    """
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder) / "profile") as tab:
        tab.resize(width, height)
        tab.open(*addresses)
        picture.write_bytes(b64decode(tab.ask("Page.captureScreenshot", format="png")["data"]))
