"""Tests without a marker for it start nothing that a machine with Python and make lacks."""

import shutil
import subprocess
from pathlib import Path

import pytest

# Every Debian has it, and it is in no essential package, like all that .ci/packages installs.
APT = "/usr/bin/apt-get"


@pytest.mark.skipif(not Path(APT).exists(), reason=".ci/packages installs by apt-get, which this machine lacks")
def test_programs_of_packages_are_neither_found_nor_started() -> None:
    assert shutil.which("apt-get") is None
    for name in ("sh", "make", "awk", "python3"):
        assert shutil.which(name), name
    for line in ([APT, "--version"], ["apt-get", "--version"]):
        with pytest.raises(OSError, match="apt-get"):
            subprocess.run(line, check=False)
    assert subprocess.run("apt-get --version", check=False, shell=True, stderr=subprocess.DEVNULL).returncode == 127
