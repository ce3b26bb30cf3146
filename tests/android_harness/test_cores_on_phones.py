"""Which cores the phone's program keeps to, as Linux sees it, and that it says so itself."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from phonograd.android_harness.adb.client import Adb
from phonograd.android_harness.adb.tool import find_adb
from phonograd.android_harness.phone_artifacts import ARTIFACTS_FOLDER, phone_artifacts
from phonograd.android_harness.session import PROGRAM, PhoneSession
from phonograd.android_harness.session.program import Event
from phonograd.device_runtime.formats.manifest import open_artifacts
from phonograd.device_runtime.native_build import build_phone_binary
from tests.phone.stand_in import AdbServer, StandInPhone
from tests.support.command_line import Workplace, workplace
from tests.support.waiting import until

__all__ = ["workplace"]

pytestmark = pytest.mark.standin


def allowed_cores(phone: StandInPhone) -> Iterator[str]:
    """The core lists of phonograd-phone's processes."""
    for status in phone.root.glob("proc/[0-9]*/status"):
        if f"{PROGRAM}\0bench" in (status.parent / "cmdline").read_text("utf-8", "replace"):
            yield status.read_text("ascii").partition("Cpus_allowed_list:\t")[2].partition("\n")[0]


@pytest.mark.parametrize("capacities", [(1024, 300), (1024, 1024)])
def test_big_cores_are_the_same_here_and_there(
    adb_server: AdbServer, phone: StandInPhone, workplace: Workplace, tmp_path: Path, capacities: tuple[int, int]
) -> None:
    little, big = phone.cores()[0], phone.cores()[-1]
    for core, capacity in zip((little, big), capacities, strict=True):
        (phone.root / f"sys/devices/system/cpu/cpu{core}/cpu_capacity").write_text(f"{capacity}\n")
    adb = Adb(find_adb())
    # Where capacities don't tell, clocks do, and the last core's is higher.
    chosen = little if capacities[0] > capacities[1] else big
    told: list[Event] = []
    with PhoneSession(adb, phone.serial) as session:
        session.sync(
            {PROGRAM: build_phone_binary().path, **phone_artifacts(open_artifacts(workplace.artifacts), tmp_path)}
        )
        session.run(["info"], lambda _, event: told.append(event), threading.Event())
        line = f"{session.path(PROGRAM)} bench {session.path(ARTIFACTS_FOLDER)} --steps 100000 --cores big"
        with adb.start(phone.serial, line):
            until(lambda: str(chosen) in allowed_cores(phone), f"phonograd-phone on core {chosen}")
    assert told[0]["choices"]["big"] == [chosen]
