"""Names and claims that the settings of a row belie."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.papers.arms import Arm, arm_of, require_true
from phonograd.papers.experiment import Claim, load
from phonograd.papers.page import conditions, page
from phonograd.papers.result import Result, read_result, results_folder, write_result
from phonograd.papers.run import kind_of
from phonograd.server_agg.aggregation.settings import StrategySettings

FOLDER = results_folder() or Path()


def private(**changed: Any) -> StrategySettings:
    given: dict[str, Any] = {"clip_norm": 10, "noise_multiplier": 0.03, "sampling": 0.005, **changed}
    return StrategySettings(strategy="dp-fedavg", **given)


def test_sigma_is_the_noise_that_the_server_adds_to_the_mean() -> None:
    """z S / (q N), paper M; of paper J's eq. 5, whose noise is of the sum over the q N phones of a round, q N times."""
    found = arm_of(private(), phones=10_000, quantities={"E": 1})
    assert found.quantities["σ"] == pytest.approx(0.03 * 10 / 50)
    assert found.quantities["β"] == pytest.approx(0.3)
    assert (found.clip_norm, found.private) == (10, True)
    assert arm_of(private(clip_norm=1000.0), 10_000, {}).clip_norm is None  # no delta is as long


ARMS = {
    "S 10": Arm({"S": 10}, clip_norm=10),
    "S 10, σ 0.006": Arm({"S": 10, "σ": 0.006}, clip_norm=10, private=True),
    "rehearsal 1/4, 60 KB": Arm({"λ =": 0.25, "KB": 60}),
    "all, 1,000 rounds": Arm({"round": 1000}),
}


def test_names_that_settings_give_are_true() -> None:
    require_true(ARMS, [Claim("noise of σ 0.006 costs accuracy", "top-1, %", ("S 10, σ 0.006", "S 10"))])


@pytest.mark.parametrize(
    ("row", "quantities"),
    [
        ("S 10, σ 0.003", {"S": 10, "σ": 0.006}),
        ("β 0.05", {}),
        ("rehearsal 1/4", {"λ =": 0.5}),
        ("LwF 1/2, 60 KB", {"λ =": 0.5, "KB": 20}),
        ("z 1, 10,000 rounds", {"z": 1, "round": 1000}),
        ("FedAvg with a server step of 1.2", {"step of": 1.0}),
    ],
)
def test_a_label_that_the_settings_dont_give_is_an_error(row: str, quantities: dict[str, float]) -> None:
    with pytest.raises(ArtifactsError, match="its settings give"):
        require_true({row: Arm(quantities)}, [])


def test_a_row_with_noise_stands_beside_one_that_is_clipped_alike() -> None:
    unclipped = {**ARMS, "no clipping": Arm({})}
    with pytest.raises(ArtifactsError, match=r"one clipping bound .* 10 for S 10, σ 0.006, none for no clipping"):
        require_true(unclipped, [Claim("noise costs accuracy", "top-1, %", ("S 10, σ 0.006", "no clipping"))])
    with pytest.raises(ArtifactsError, match="a row with σ 0.003 in its name"):
        require_true(ARMS, [Claim("noise of σ 0.003 costs accuracy", "top-1, %", ("S 10, σ 0.006", "S 10"))])


def test_an_experiment_is_held_to_its_settings() -> None:
    experiment = load("m-rounds")
    runs = experiment.settings["runs"]
    (row,) = [name for name in runs if name.endswith("σ 0.006")]
    wrong = {**runs, row: runs["S 10"]}
    with pytest.raises(ArtifactsError, match=f"row '{row}'"):
        kind_of("m-rounds", msgspec.structs.replace(experiment, settings=experiment.settings | {"runs": wrong}), False)


def test_a_result_is_held_to_the_settings_it_ran_with(tmp_path: Path) -> None:
    found = read_result(FOLDER / "m-rounds.json")
    (row,) = [name for name in found.settings["runs"] if name.endswith("σ 0.006")]
    runs = found.settings["runs"] | {row: found.settings["runs"]["S 10"]}
    write_result(tmp_path / "m-rounds.json", msgspec.structs.replace(found, settings=found.settings | {"runs": runs}))
    with pytest.raises(ArtifactsError, match=f"row '{row}'"):
        page(tmp_path)


def test_the_first_line_of_a_section_has_the_settings_of_training() -> None:
    settings = {"simulation": {"output_sample": 1000, "precision": "bf16"}, "training": {"clip_norm": 2.0}}
    found = Result("j", False, (1,), "", settings, {}, {}, "0", model={"vocabulary": 30_000, "bptt": 35})
    assert next(conditions(found)) == (
        "Trained with: 30,000 words; sampled softmax over 1,000 words; bf16; gradients clipped at norm 2; "
        "minibatch 10, BPTT 35."
    )
