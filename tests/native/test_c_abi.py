"""What phonograd.h promises to a caller in any language, asked of the engine itself: NULL, and errors by thread."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import ArtifactsError, UsageError
from phonograd.device_runtime.engine.backend import MAX_THREADS
from phonograd.device_runtime.engine.c_abi import callback, load_library
from phonograd.device_runtime.engine.graph import NativeGraph
from phonograd.device_runtime.engine.header import functions, new
from phonograd.device_runtime.masked.cohort import MaskedSum

ROOT = Path(__file__).parents[2]
STATUSES = sorted(name for name, (_, arguments, _) in functions().items() if arguments)
# A process of its own: a NULL that is followed ends it, after the function's name.
NULLS = """
import ctypes, sys
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.header import functions
library = load_library()
numbers = (ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t, ctypes.c_float, ctypes.c_double)
for name in sys.argv[1:]:
    print(name, end=" ", flush=True)
    given = [1 if kind in numbers else None for kind in functions()[name][1]]
    found = library.function(name)(*given)
    print(found, library.function("pg_last_error")().decode())
"""


def test_null_is_refused_not_followed() -> None:
    line = [sys.executable, "-c", NULLS, *STATUSES]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stdout[-200:], done.stderr)
    answers = [answer.split(" ", 2) for answer in done.stdout.splitlines()]
    assert [name for name, *_ in answers] == STATUSES
    for name, found, message in answers:
        if name.endswith("_close"):
            assert found == "None"
        elif name == "pg_engine_parameters":
            assert found == "0"
        else:
            assert (found, "NULL" in message) == (str(UsageError.exit_code), True), (name, message)


def test_the_last_error_is_the_calling_threads_own(tmp_path: Path) -> None:
    said = load_library().function("pg_last_error")

    def fail(name: str) -> str:
        with pytest.raises(ArtifactsError):
            NativeGraph(tmp_path / name)
        return str(said().decode())

    assert "here.onnx" in fail("here.onnx")
    with ThreadPoolExecutor(1) as other:
        assert other.submit(said).result() == b""
        assert "there.onnx" in other.submit(fail, "there.onnx").result()
    assert "here.onnx" in said().decode()


@pytest.mark.parametrize(
    ("threads", "said"),
    [
        (2**32 + 2, "`threads` 4294967298: expected a whole number that fits 32 bits"),
        (2**31, "`threads` 2147483648: expected a whole number that fits 32 bits"),
        (MAX_THREADS + 1, "threads: 257; expected 1 to 256, or 0 for the default"),
    ],
)
def test_a_number_is_refused_as_it_was_given(threads: int, said: str) -> None:
    """Struct fields and arguments alike; ctypes would pass the last 32 bits."""
    with pytest.raises(UsageError, match=said):
        MaskedSum(9, 5, threads)
    texts = dict.fromkeys(("state", "identity", "phone", "grid"), "none")
    with pytest.raises(UsageError, match=said):
        load_library().call("pg_masked_open", new("pg_masked_options", **texts, round=1, threads=threads))


def test_an_interrupt_between_a_callbacks_calls_stops_the_library() -> None:
    """Raised in the next call, before its first line, it would be dropped."""
    stops = list[int]()
    heard = callback("pg_evaluation_options", "progress", lambda *_: None)
    with pytest.raises(KeyboardInterrupt), heard as called:
        signal.raise_signal(signal.SIGINT)
        stops.append(called(None, 0, 1))
    assert stops == [1]
