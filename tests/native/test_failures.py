"""Out of memory, a full or broken disk: each is a status with a message, wherever it strikes, and never a death.

The command and a program that uses the C ABI are linked with `failing_calls.cpp`, which makes one call fail, or all
from one on. Each call is tried wherever it is made; of memory, whose calls are thousands, a sample.
"""

import errno
import itertools
import json
import os
import resource
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.formats.tensor_file import save_tensors
from phonograd.device_runtime.native_build import build_program
from phonograd.device_runtime.native_build.targets import command_sources, engine_sources
from tests.reference.codecs import rotated_parts, write_link
from tests.support.phone_command import Outcome, Place, outcome_of, outputs, text_of

pytestmark = pytest.mark.long

FAILING = Path(__file__).with_name("failing_calls.cpp")
NEVER = 1 << 40
PLACES = 16  # that are tried, at most

MEMORY, DISK = 26, 11
# Exit codes of a file that can't be opened or read, by what it is.
INPUTS = {3, 4, 5, 6, 11, 17}
LINK = 7
# The call, reasons (which take turns), and the exit codes that follow; 0 where the program can do without.
FAULTS = (
    ("malloc", [errno.ENOMEM], {MEMORY, 0}),
    ("mmap", [errno.ENOMEM], {MEMORY}),
    ("pthread_create", [errno.EAGAIN], {MEMORY}),
    ("write", [errno.ENOSPC, errno.EDQUOT, errno.EIO], {DISK}),
    ("fsync", [errno.EIO, errno.ENOSPC], {DISK}),
    ("rename", [errno.ENOSPC, errno.EIO], {DISK}),
    ("close", [errno.EIO], {DISK, 0}),
    ("mkdir", [errno.EROFS], {DISK}),
    ("unlink", [errno.EROFS], {DISK}),
    ("flock", [errno.ENOLCK], {DISK, 0}),
    ("open", [errno.EMFILE], {MEMORY, 0}),
    ("read", [errno.EIO], INPUTS),
    ("pread", [errno.EIO], INPUTS),
)
faults = pytest.mark.parametrize(("call", "reasons", "codes"), FAULTS)
# A pull starts no thread, makes no folder, and removes nothing if all goes well.
NOT_PULLED = {"pthread_create", "mkdir", "unlink", "read"}
PULL_FAULTS = [
    ("pwrite", [errno.ENOSPC, errno.EIO], {DISK}),
    *(fault for fault in FAULTS if fault[0] not in NOT_PULLED),
]


@dataclass(frozen=True)
class Failing:
    """A command line whose program's calls fail on request; `folder` is where it writes."""

    line: list[str]
    folder: Path

    def run(self, wish: str, **settings: object) -> Outcome:
        """Run it with PHONOGRAD_FAIL."""
        return outcome_of(self.line, env={**os.environ, "PHONOGRAD_FAIL": wish}, **settings)

    def calls(self, call: str) -> int:
        """How often it makes a call when all goes well."""
        count = self.folder.parent / "count"
        env = {**os.environ, "PHONOGRAD_FAIL": f"{call}:{NEVER}:0", "PHONOGRAD_CALLS": str(count)}
        assert subprocess.run(self.line, env=env, capture_output=True, check=True).stderr == b""
        return int(count.read_text())

    def wishes(self, call: str, reasons: list[int]) -> Iterator[str]:
        """Places where the call can fail: by turns only there, and from there on."""
        total = self.calls(call)
        assert total > 0
        step = max(1, total / PLACES)
        for place, reason in zip(range(int(total / step)), itertools.cycle(reasons), strict=False):
            yield f"{call}:{1 + int(place * step)}{'+' if place % 2 else ''}:{reason}"


def empty_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()


@pytest.fixture(scope="module")
def command() -> Path:
    return build_program("failing_command", [FAILING, *command_sources()])


@pytest.fixture
def train(place: Place, command: Path, tmp_path: Path) -> Failing:
    """A short epoch that reads and writes all that there is, with a state saved after every second step."""
    folder, short = tmp_path / "out", tmp_path / "short"
    folder.mkdir()
    short.write_bytes(text_of(3, 120))
    line = ["train", place.artifacts.folder, "--user", short, "--seed", 0]
    line += ["--threads", 2, "--state", folder / "state", "--save-every", 2, *outputs(folder)]
    return Failing([str(command), *map(str, line)], folder)


def contents(folder: Path) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@faults
def test_the_command_ends_with_a_code_and_a_line(
    train: Failing, call: str, reasons: list[int], codes: set[int]
) -> None:
    """Whatever was written before is whole, and the state resumes to the bits of an undisturbed epoch."""
    assert outcome_of(train.line).code == 0
    expected = contents(train.folder)
    empty_folder(train.folder)
    for wish in train.wishes(call, reasons):
        found = train.run(wish)
        assert found.code in codes, (wish, found.err)
        if found.code != 0:
            assert found.err.startswith("phonograd-phone: "), (wish, found.err)
            assert (found.err.count("\n"), "a bug" in found.err) == (1, False), (wish, found.err)
        left = contents(train.folder)
        if call not in ("unlink", "close"):  # by these the partial files are removed
            assert not [name for name in left if name.endswith(".partial")], wish
        assert all(left[name] == expected[name] for name in expected if name in left), wish
        assert outcome_of(train.line).code == 0
        assert contents(train.folder) == expected, wish
        empty_folder(train.folder)


# Of these, unlink is only called by pg_state_discard.
@pytest.mark.parametrize(("call", "reasons", "codes"), [fault for fault in FAULTS if fault[0] != "unlink"])
def test_the_c_abi_returns_a_status_and_a_message(
    place: Place, tmp_path: Path, call: str, reasons: list[int], codes: set[int]
) -> None:
    """The same process goes on after one failure, to the same bits."""
    source = Path(__file__).with_name("session_tool.cpp")
    program = build_program("session_tool", [source, FAILING, *engine_sources()])
    folder = tmp_path / "out"
    session = Failing([str(program), str(place.artifacts.folder), str(folder)], folder)
    undisturbed = subprocess.run(session.line, capture_output=True, text=True, check=True).stdout.split()
    assert undisturbed[0] == "0"
    shutil.rmtree(folder)
    for wish in session.wishes(call, reasons):
        shutil.rmtree(folder, ignore_errors=True)
        env = {**os.environ, "PHONOGRAD_FAIL": wish}
        done = subprocess.run(session.line, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), (wish, done)
        lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
        assert int(lines[0][0]) in codes, (wish, done.stdout)
        if lines[0][0] != "0":
            assert int(lines[1][0]) in (codes | {0} if "+" in wish else {0}), (wish, done.stdout)
        assert all(said for _, said in lines), (wish, done.stdout)
        assert {said for code, said in lines if code == "0"} <= {undisturbed[1]}, (wish, done.stdout)


@pytest.fixture
def pull(command: Path, tmp_path: Path) -> Failing:
    """A pull over two links, the first lossless and the second lossy, in place of a model that is there."""
    folder = tmp_path / "out"
    folder.mkdir()
    fetched, sha256 = chain_of(tmp_path)
    (folder / "model").write_bytes(b"as it was")
    line = ["pull", fetched, "--base", tmp_path / "base", "--sha256", sha256, "--out", folder / "model"]
    return Failing([str(command), *map(str, line)], folder)


def chain_of(folder: Path) -> tuple[Path, str]:
    """A file of two links from a model at `base`, and the hash of what they lead to."""
    values, fetched = np.zeros((40, 30), np.float32), folder / "fetched"
    save_tensors(folder / "base", {"table": values})
    lossless, lossy = folder / "link-0", folder / "link-1"
    write_link(lossless, folder / "model-0", folder / "base", {"table": values + 1}, "rows-f32", 0, {})
    parts = rotated_parts("table", values.reshape(-1) + 1, 2, 3)
    sha256 = write_link(lossy, folder / "model-1", folder / "model-0", parts, "top-rows", 1, {}).sha256
    fetched.write_bytes(lossless.read_bytes() + lossy.read_bytes())
    return fetched, sha256


@pytest.mark.parametrize(("call", "reasons", "codes"), PULL_FAULTS)
def test_a_pull_ends_with_a_code_and_the_old_or_the_new_model(
    pull: Failing, call: str, reasons: list[int], codes: set[int]
) -> None:
    new = (pull.folder.parent / "model-1").read_bytes()
    for wish in pull.wishes(call, reasons):
        (pull.folder / "model").write_bytes(b"as it was")
        found = pull.run(wish)
        assert found.code in (codes | {DISK, LINK} if call in ("open", "pread") else codes), (wish, found.err)
        assert found.err.count("\n") == (found.code != 0), (wish, found.err)
        assert found.code == 0 or found.err.startswith("phonograd-phone: "), (wish, found.err)
        left = contents(pull.folder)
        assert list(left) == ["model"], (wish, left.keys())
        assert left["model"] in (b"as it was", new), wish
        assert found.code != 0 or left["model"] == new, wish


@pytest.fixture
def file_limit() -> Callable[[], None]:
    """Limit a child's files to 64 KiB; its SIGXFSZ is the default."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))


def test_a_file_size_limit_does_not_kill_an_app(place: Place, tmp_path: Path, file_limit: Callable[[], None]) -> None:
    source = Path(__file__).with_name("session_tool.cpp")
    program = build_program("session_tool", [source, FAILING, *engine_sources()])
    line = [program, place.artifacts.folder, tmp_path / "state"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, preexec_fn=file_limit)
    said = f"11 {tmp_path}/state/state.safetensors: cannot write: File too large; free space or choose another place\n"
    assert (done.returncode, done.stdout) == (0, 2 * said)


@pytest.mark.parametrize("megabytes", range(6, 22, 2))
def test_any_limit_of_memory_is_a_code(place: Place, megabytes: int) -> None:
    """The loader needs some 5 MB, and training 19, most of them the threads' stacks."""
    limit = (megabytes << 20, megabytes << 20)
    found = place.train("--threads", 2, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    assert found.code in (0, MEMORY), found
    assert found.err.count("\n") == (found.code != 0)


def test_a_thread_that_cannot_be_started_is_named(train: Failing) -> None:
    found = train.run(f"pthread_create:1:{errno.EAGAIN}")
    said = (
        "thread 1 of 2: cannot be started: Resource temporarily unavailable; use fewer --threads, or close other apps"
    )
    assert (found.code, found.err) == (MEMORY, f"phonograd-phone: {said}\n")


@pytest.mark.parametrize("known", [2, 8190])  # 8,191 words with a message's end: the second new one halves all counts
@pytest.mark.parametrize(("call", "code"), [("malloc", MEMORY), ("write", DISK), ("fsync", DISK), ("rename", DISK)])
def test_personal_words_stay_whole(place: Place, tmp_path: Path, known: int, call: str, code: int) -> None:
    """Words that are listed after a failure are suggested, the file opens, and the same calls go on."""
    source, file = Path(__file__).with_name("personal_tool.cpp"), tmp_path / "own.words"
    program = build_program("personal_tool", [source, FAILING, *engine_sources()])
    words = [["servus", 2], *([f"known{number}", 2] for number in range(1, known))]
    document = {"forgotten": 0, "weights": [[1, 2]] * 3, "words": words, "after": [[1, -2, 2, 2]]}
    document |= {"waiting": [], "vetoed": []}
    text = json.dumps(document).encode()

    def run(number: int) -> list[str]:
        file.write_bytes(b"phonograd-personal-1 %08x\n" % zlib.crc32(text) + text)
        env = {**os.environ, "PHONOGRAD_FAIL": f"{call}:{number}:{errno.ENOMEM if code == MEMORY else errno.ENOSPC}"}
        line = [program, place.artifacts.folder, file]
        return subprocess.run(line, env=env, capture_output=True, text=True, check=True).stdout.splitlines()

    first, last = map(int, run(NEVER)[-1].split())
    assert first < last
    for number in range(first + 1, last + 1, max(1, (last - first) // 30)):
        failed, listed, suggested, saved, *more, _ = run(number)
        assert failed.split(" ", 1)[0] in (str(code), "0"), (number, failed)
        assert all(line.startswith("0 ") for line in (listed, suggested, saved, *more)), (number, listed, saved, more)
        counts = {entry["word"]: entry["count"] for entry in json.loads(listed[2:])["words"]}
        shares = dict(json.loads(suggested[2:]))
        assert counts.keys() - {","} <= shares.keys(), (number, counts.keys() - shares.keys())
        assert min(counts.values()) > 0, number
        assert all(0 <= share <= 1 for share in shares.values()), number
        assert "servus" in {entry["word"] for entry in json.loads(saved[2:])["words"]}, number


def test_a_file_and_its_folder_are_synced_with_each_rename(train: Failing) -> None:
    assert train.calls("fsync") >= 2 * train.calls("rename") > 2
