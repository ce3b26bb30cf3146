"""Time epochs on all phones in parallel."""

import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import datetime, timezone
from pathlib import Path

from msgspec.structs import replace

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.phone_artifacts import phone_artifacts
from phonograd.android_harness.phones.facts import Phone
from phonograd.android_harness.result import PhoneBenchReport, PhoneResult
from phonograd.android_harness.session import PROGRAM, PhoneSession, SessionSettings
from phonograd.android_harness.session.program import SIGNAL_EXIT_BASE
from phonograd.android_harness.timing.phone_task import STOPPED_EXIT_CODE, BenchJob, BenchTask, PhoneProgress
from phonograd.android_harness.timing.settings import PhoneBenchSettings, settings_document
from phonograd.android_harness.timing.workload import describe_workload, prepare_text
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import Artifacts

OpenSession = Callable[[Adb, str, SessionSettings], PhoneSession]
POLL_SECONDS = 0.1


def run_phone_bench(
    adb: Adb,
    phones: Sequence[Phone],
    artifacts: Artifacts,
    settings: PhoneBenchSettings,
    binary: Path,
    version: str,
    on_progress: Callable[[PhoneProgress], None] = lambda _: None,
    stop: Callable[[], int] = lambda: 0,
    open_session: OpenSession = PhoneSession,
) -> PhoneBenchReport:
    """Time epochs on ready phones, each in its own thread; an error on one phone is the failure in its result.

    `binary` is the phone's, `version` phonograd's. `on_progress` is called from the phones' threads. `stop` is polled
    from the calling thread and returns the number of a signal that asks to stop, or 0: then each phone's program and
    session are ended, and the measurements so far are kept. Raises TextError and VocabularyError for a text that can't
    be trained on, StorageError.
    """
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory(prefix="phonograd-") as name:
        scratch = Path(name)
        text = prepare_text(settings.text, artifacts, scratch)
        files = {PROGRAM: binary, **phone_artifacts(artifacts, scratch), **text.files}
        job = BenchJob(files, text.options, settings)
        session_settings = SessionSettings(keep_files=settings.keep, timeout_seconds=settings.heartbeat_timeout)
        ended = threading.Event()
        tasks = [
            BenchTask(open_session(adb, phone.serial, session_settings), phone.facts, job, on_progress, ended)
            for phone in phones
            if phone.facts is not None
        ]
        results = _run_all(tasks, stop, ended)
        return PhoneBenchReport(
            created=created,
            phonograd_version=version,
            adb_version=adb.tool.version,
            binary_sha256=sha256_of_file(binary),
            workload=describe_workload(artifacts, text),
            settings=settings_document(settings),
            phones=tuple(results),
        )


def _run_all(tasks: Sequence[BenchTask], stop: Callable[[], int], ended: threading.Event) -> list[PhoneResult]:
    """Run all tasks to their end; a signal's number becomes the exit code of the tasks that it stopped."""
    number = 0
    with ThreadPoolExecutor(len(tasks), "phone") as pool:
        running = [pool.submit(task.run) for task in tasks]
        while wait(running, POLL_SECONDS).not_done:
            number = number or stop()
            if number:
                ended.set()
    results = [future.result() for future in running]
    return [_with_signal(result, number) for result in results] if number else results


def _with_signal(result: PhoneResult, number: int) -> PhoneResult:
    if result.failure is None or result.failure.exit_code != STOPPED_EXIT_CODE:
        return result
    return replace(result, failure=replace(result.failure, exit_code=SIGNAL_EXIT_BASE + number))
