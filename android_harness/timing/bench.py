"""Epochs timed on all phones at once."""

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
from phonograd.android_harness.session.programs import SIGNALLED
from phonograd.android_harness.timing.phone_work import STOPPED, Job, PhoneProgress, PhoneWork
from phonograd.android_harness.timing.settings import PhoneBenchSettings, settings_in_words
from phonograd.android_harness.timing.workload import phone_text, workload_of
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
    """Time epochs on ready phones, each in a thread of its own; what fails on one is its result's failure.

    `binary` is the phone's, `version` phonograd's. `on_progress` is called from the phones' threads. `stop` is asked
    from the calling thread for the number of a signal that asks to end, 0 for none: then each phone's program is ended
    and its session left, and what was measured stands. Raises TextError and VocabularyError for a text that can't be
    trained on, StorageError.
    """
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    with tempfile.TemporaryDirectory(prefix="phonograd-") as name:
        scratch = Path(name)
        text = phone_text(settings.text, artifacts, scratch)
        files = {PROGRAM: binary, **phone_artifacts(artifacts, scratch), **text.files}
        job = Job(files, text.options, settings)
        session_settings = SessionSettings(keep=settings.keep, silence=settings.silence_seconds)
        ended = threading.Event()
        work = [
            PhoneWork(open_session(adb, phone.serial, session_settings), phone.facts, job, on_progress, ended)
            for phone in phones
            if phone.facts is not None
        ]
        results = _on_all(work, stop, ended)
        return PhoneBenchReport(
            created=created,
            phonograd_version=version,
            adb_version=adb.tool.version,
            binary_sha256=sha256_of_file(binary),
            workload=workload_of(artifacts, text),
            settings=settings_in_words(settings),
            phones=tuple(results),
        )


def _on_all(work: Sequence[PhoneWork], stop: Callable[[], int], ended: threading.Event) -> list[PhoneResult]:
    """Run all phones' work to its end; the number of a signal that came makes the exit code of what it cut short."""
    number = 0
    with ThreadPoolExecutor(len(work), "phone") as pool:
        running = [pool.submit(one.run) for one in work]
        while wait(running, POLL_SECONDS).not_done:
            number = number or stop()
            if number:
                ended.set()
    results = [future.result() for future in running]
    return [_signalled(result, number) for result in results] if number else results


def _signalled(result: PhoneResult, number: int) -> PhoneResult:
    if result.failure is None or result.failure.exit_code != STOPPED:
        return result
    return replace(result, failure=replace(result.failure, exit_code=SIGNALLED + number))
