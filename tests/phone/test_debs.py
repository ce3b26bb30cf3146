"""Where the stand-in phone's programs come from, and what is said when they cannot be had."""

from pathlib import Path

import pytest

from tests.phone.stand_in import StandInError
from tests.phone.stand_in.debs import emulator, programs

pytestmark = pytest.mark.standin


def test_an_apt_without_arm64_gets_the_command_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = tmp_path / "bin/apt-get"
    apt.parent.mkdir()
    apt.write_text("#!/bin/sh\necho 'E: Unable to locate package mksh:arm64' >&2\nexit 100\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{apt.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PHONOGRAD_CACHE", str(tmp_path / "cache"))
    with pytest.raises(StandInError) as caught:
        programs()
    assert str(caught.value) == (
        "mksh:arm64 cannot be fetched (E: Unable to locate package mksh:arm64); "
        "if apt does not know arm64, run as root: dpkg --add-architecture arm64 && apt-get update"
    )
    assert not list((tmp_path / "cache/phone-root").iterdir())


def test_cached_files_are_not_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = programs()
    monkeypatch.setenv("PATH", "")
    assert programs() == before
    with pytest.raises(StandInError, match="apt install qemu-user-static"):
        emulator()
