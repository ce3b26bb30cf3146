"""A round's update has the bytes that are written of the weights that it trained, whatever was trained and how."""

from pathlib import Path

import pytest

from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors
from phonograd.device_runtime.training.round import Round, RoundSettings
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update
from tests.native.small_round import TEXT, artifacts

HOWS: dict[str, dict[str, int]] = {
    "full": {},
    "sampled": {"output_sample": 30, "sample_seed": 1},
    "one step": {"steps": 1},
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("codec", CODECS)
def test_the_bytes_are_those_of_the_trained_weights(tmp_path: Path, codec: str, how: str) -> None:
    ours, expected, out = (tmp_path / name for name in ("ours", "expected", "out"))
    settings = RoundSettings(
        folder=artifacts().folder,
        user=TEXT,
        seed=9,
        round_number=7,
        out=out,
        update=ours,
        codec=codec,
        options=BackendOptions(1),
        **HOWS[how],  # type: ignore[arg-type]
    )
    with Round(settings) as round_:
        trained = round_.train()
    with TensorFile(artifacts().path(WEIGHTS)) as base:
        said = UpdateInfo(base.sha256(), 7, trained.report.tokens, codec, 9, settings.steps)
        assert write_update(expected, base, load_tensors(out), said) == trained.update
    assert ours.read_bytes() == expected.read_bytes()
