"""What `export --overwrite` replaces: an artifacts folder, whole, and nothing that someone else keeps there."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.export.placement import in_place
from tests.support.artifacts import exported
from tests.support.command_line import Run

MODEL = LanguageModelConfig("lstm", 11, 4, 4, 1)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported(MODEL).folder, tmp_path / "artifacts"))


@pytest.mark.parametrize("out", ["precious", "model", "vocab.txt", "artifacts", "noted", "linked"])
def test_what_is_no_artifacts_folder_is_kept(phono: Run, tmp_path: Path, artifacts: Path, out: str) -> None:
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_bytes((artifacts / "vocab.txt").read_bytes())
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/thesis.txt").write_text("years of work")
    (tmp_path / "model").mkdir()
    weights = tmp_path / "model/my.safetensors"
    weights.write_bytes((artifacts / "weights.safetensors").read_bytes())
    shutil.copytree(artifacts, tmp_path / "noted")
    (tmp_path / "noted/notes.md").write_text("which run this is")
    shutil.copytree(artifacts, tmp_path / "linked")
    (tmp_path / "linked/vocab.txt").unlink()
    (tmp_path / "linked/vocab.txt").symlink_to(tmp_path / "precious/thesis.txt")
    given = artifacts / "vocab.txt" if out == "artifacts" else vocabulary
    before = everything(tmp_path)
    outcome = phono("export", "--model", weights, "--vocab", given, "--overwrite", "--out", tmp_path / out)
    said = "a folder expected, found a file" if out == "vocab.txt" else "nothing was replaced; choose another --out"
    assert (outcome.code, outcome.err.count("\n")) == (11 if out == "vocab.txt" else 5, 1), outcome.err
    assert f"phonograd: {tmp_path / out}: " in outcome.err and said in outcome.err
    assert everything(tmp_path) == before


def test_a_folder_that_gains_a_file_during_the_work_is_kept(tmp_path: Path, artifacts: Path) -> None:
    with pytest.raises(ArtifactsError, match="holds late.txt"), in_place(artifacts, overwrite=True) as partial:
        (partial / "new").touch()
        (artifacts / "late.txt").write_text("written meanwhile")
    assert (artifacts / "late.txt").read_text() == "written meanwhile"
    assert list(tmp_path.iterdir()) == [artifacts]


def test_a_link_to_an_artifacts_folder_stays_one(tmp_path: Path, artifacts: Path) -> None:
    (tmp_path / "current").symlink_to(artifacts.name)
    with in_place(tmp_path / "current", overwrite=True) as partial:
        (partial / "new").touch()
    assert [path.name for path in artifacts.iterdir()] == ["new"]
    assert {path.name for path in tmp_path.iterdir()} == {"artifacts", "current"}
    assert (tmp_path / "current").is_symlink()


EXPORT = """
import os, signal, sys
from pathlib import Path
from phonograd.export.placement import in_place
rename, left = Path.rename, int(sys.argv[2])
def killed_before(path, target):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return rename(path, target)
Path.rename = killed_before
with in_place(Path(sys.argv[1]), overwrite=True) as partial:
    (partial / "killed").touch()
"""


@pytest.mark.parametrize("renames", [0, 1], ids=["before-the-swap", "within-the-swap"])
def test_what_a_kill_left_is_put_right_by_the_next_export(tmp_path: Path, artifacts: Path, renames: int) -> None:
    before = everything(artifacts)
    killed = subprocess.run([sys.executable, "-c", EXPORT, artifacts, str(renames)], check=False)
    assert killed.returncode == -signal.SIGKILL
    with in_place(artifacts, overwrite=True) as partial, in_place(artifacts, overwrite=True) as other:
        assert everything(artifacts) == before
        assert {path.name for path in tmp_path.iterdir()} == {"artifacts", partial.name, other.name}  # both still run
        for place in (partial, other):
            shutil.copytree(artifacts, place, dirs_exist_ok=True)
    assert list(tmp_path.iterdir()) == [artifacts]
