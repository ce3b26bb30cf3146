"""A run that was stopped before it was ever validated: its state alone says whose it is."""

import dataclasses
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.export.pretrain_state import STATE
from tests.export.test_pretrain import CONFIG, Recorder, run


def test_a_state_without_best_weights_is_refused_to_another_run(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "out", state=state, recorder=Recorder(interrupt_after=2))
    assert not (tmp_path / "out").exists()
    saved = (state / STATE).read_bytes()
    with pytest.raises(ArtifactsError, match="made by a run with seed 3, this one has 4"):
        run(tmp_path / "out", dataclasses.replace(CONFIG, seed=4), state)
    assert (state / STATE).read_bytes() == saved
