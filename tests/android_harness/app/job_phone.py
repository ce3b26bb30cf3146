"""An app whose job a test schedules."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.android_harness.app.jvm import Jvm
from tests.support.phone_command import Place
from tests.support.waiting import PATIENCE_SECONDS, until


class Phone:
    """The app's folders, and a scheduler that speaks to the job."""

    def __init__(self, folder: Path, jvm: Jvm, place: Place):
        self.files = folder / "no_backup" / "phonograd"
        self.update, self.state = self.files / "update.safetensors", self.files / "state"
        self.command = jvm.java("JobDrive", f"-Dphone={folder}")
        self.files.mkdir(parents=True)
        (folder / "lib").mkdir()
        (folder / "lib" / "libphonograd_phone.so").symlink_to(place.command)
        (self.files / "artifacts").symlink_to(place.artifacts.folder)
        (self.files / "user.txt").symlink_to(place.user)

    @contextmanager
    def app(self) -> Iterator[Callable[[str], None]]:
        """The running app: a function that sends the scheduler a command. At the end it must leave by itself."""
        self.said: list[str] = []
        pipe = subprocess.PIPE
        with subprocess.Popen(self.command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            self.pid = process.pid

            def tell(command: str) -> None:
                process.stdin.write(command + "\n")
                process.stdin.flush()

            yield tell
            process.stdin.close()
            self.said = process.stdout.read().splitlines()
            assert process.wait(PATIENCE_SECONDS) == 0

    def train(self) -> list[str]:
        """Start a job and let it end: what was said."""
        with self.app() as tell:
            tell("create")
            tell("start")
        return self.said

    def train_and_stop(self) -> None:
        """Start a job, and stop it once a step's state is on disk."""
        with self.app() as tell:
            tell("create")
            tell("start")
            self.await_state()
            tell("stop")

    def trainer(self) -> int:
        """The process that trains."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*/children")
        (child,) = [int(child) for task in tasks for child in task.read_text().split()]
        return child

    def await_state(self) -> None:
        """Wait until a step's state is on disk."""
        until(lambda: any(self.state.glob("*")), "a state")
