"""Partial files of outputs: those of a dead process go, a living one keeps its own."""

import fcntl
from pathlib import Path

from tests.support.phone_command import Place


def test_what_a_dead_process_left_goes_and_what_a_living_one_writes_stays(place: Place, tmp_path: Path) -> None:
    stale, living = tmp_path / ".update.0123abcd.partial", tmp_path / ".update.89abcdef.partial"
    others = [tmp_path / name for name in (".other.0123abcd.partial", ".update.partial", ".update.0123abcdx.partial")]
    for path in (stale, living, *others):
        path.write_bytes(b"half")
    with living.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert place.train("--update", tmp_path / "update").code == 0
    assert {path for path in tmp_path.iterdir() if path.name != "update"} == {living, *others}
