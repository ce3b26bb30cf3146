"""`phonograd fold`: updates that are on disk, without a server."""

from pathlib import Path

from phonograd.device_runtime.base.files import sha256_of_file
from tests.support.command_line import Run, Workplace, text_of


def test_files_and_folders_of_updates(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    folder, out = tmp_path / "updates", tmp_path / "model"
    folder.mkdir()
    for phone in range(3):
        (tmp_path / "text").write_bytes(text_of(phone, 40))
        train = ("train", workplace.artifacts, "--user", tmp_path / "text", "--phone", f"p{phone}")
        assert phono(*train, "--update", folder / f"{phone}.update", "--json").code == 0
    single = tmp_path / "single.update"
    (folder / "2.update").rename(single)
    base = workplace.artifacts / "weights.safetensors"
    found = phono("fold", base, single, folder, "--out", out, "--json").document
    assert found == {"model": str(out), "updates": 3, "nbytes": out.stat().st_size, "sha256": sha256_of_file(out)}
    again = phono("fold", workplace.artifacts, folder, single, "--out", tmp_path / "again", "--json").document
    assert again["sha256"] == found["sha256"]
    equal = phono("fold", base, folder, single, "--weighting", "equal", "--out", out, "--json").document
    assert equal["sha256"] != found["sha256"]
    (tmp_path / "copy.update").write_bytes(single.read_bytes())
    for twice in ((single, single), (folder, folder / "0.update"), (single, tmp_path / "copy.update")):
        refused = phono("fold", base, *twice, "--out", tmp_path / "twice")
        assert (refused.code, "has the same bytes as" in refused.err) == (2, True), refused.err


def test_what_cannot_be_folded(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for arguments, code, message in (
        ([tmp_path / "empty"], 7, "empty: no updates found"),
        ([workplace.user, "--workers", "2"], 2, "--workers needs --engine ray"),
        ([tmp_path / "absent"], 7, "absent: cannot be opened"),
        ([workplace.artifacts / "weights.safetensors"], 7, "not an update"),
        ([workplace.user, "--engine", "steam"], 2, "steam"),
    ):
        found = phono("fold", workplace.artifacts, *arguments, "--out", tmp_path / "out")
        assert (found.code, message in found.err) == (code, True), found.err
    assert not (tmp_path / "out").exists()
