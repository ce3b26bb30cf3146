"""Makes phone-bench.png: `python -m docs.pictures.phone_bench`, from the checkout's root.

Needs what `make harness-test` needs, see CONTRIBUTING.md.
"""

import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from docs.pictures.screenshot import screenshot
from phonograd.export.presets import PRESETS
from tests.phone.fixtures import adb_path
from tests.phone.stand_in import A53, A76, MAX, AdbServer, StandInPhone
from tests.support.artifacts import exported


def main() -> None:
    """Bench three stand-in phones with a small model, and photograph the page."""
    artifacts = exported(PRESETS["tiny"].model).folder
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        adb = stack.enter_context(AdbServer(adb_path("adb36")))
        for spec in (A53, A76, MAX):
            adb.connect(stack.enter_context(StandInPhone(spec)))
        tools, page = Path(folder), Path(folder) / "page.html"
        (tools / "adb").symlink_to(adb.adb)
        # adb's HOME has its keys; the compiler's cache stays where it is.
        cache = os.environ.get("PHONOGRAD_CACHE", str(Path.home() / ".cache" / "phonograd"))
        environment = {**adb.environment, "PATH": f"{tools}:{os.environ['PATH']}", "PHONOGRAD_CACHE": cache}
        command = [sys.executable, "-m", "phonograd", "phone-bench", str(artifacts), "--html", str(page), "--quiet"]
        subprocess.run(command, env={**os.environ, **environment}, check=True)
        screenshot(Path(__file__).with_name("phone-bench.png"), 480, 915, page.as_uri())


if __name__ == "__main__":
    main()
