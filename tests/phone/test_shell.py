"""Commands on the stand-in phone, by both adb clients."""

import pytest

from tests.phone.stand_in import AdbServer, StandInPhone

pytestmark = pytest.mark.standin


def test_a_command_gives_its_output_apart_from_its_errors_and_its_exit_code(
    adb_server: AdbServer, phone: StandInPhone
) -> None:
    done = adb_server.run("-s", phone.serial, "shell", "echo out; echo err >&2; exit 7")
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 7)
