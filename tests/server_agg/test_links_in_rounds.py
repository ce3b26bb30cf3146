"""A server's rounds are links of one chain: published, kept, rolled back and recovered with their models."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import StorageError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, load_tensors
from phonograd.device_runtime.update.links import pull_links
from phonograd.server_agg.report.document import read_report
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.live_round import LiveRound
from phonograd.server_agg.storage.tables import Model
from tests.server_agg.coordinators import file_names, open_coordinator, send
from tests.server_agg.faults import raising
from tests.server_agg.link_rounds import LOSSLESS, LOSSY, few_rows, run_round
from tests.server_agg.workshop import Workshop, settings_with


def unpublished_weights(coordinator: Coordinator, model: Model) -> Mapping[str, Array]:
    """The weights of a model and what its links left out: those of the chain without losses."""
    left_out = load_tensors(coordinator.folder.residual(str(model.residual_sha256)))
    whole = load_tensors(coordinator.folder.model(model.sha256))
    return {name: values.astype(np.float64) + left_out[name] for name, values in whole.items()}


@pytest.mark.parametrize("changes", [LOSSLESS, LOSSY], ids=["lossless", "lossy"])
def test_each_round_publishes_a_link(changes: dict[str, object], workshop: Workshop, tmp_path: Path) -> None:
    state, joined = tmp_path / "state", tmp_path / "links"
    with open_coordinator(workshop, state, settings_with(**changes)) as coordinator:
        made = [run_round(coordinator, workshop) for _ in range(3)]
        links = [coordinator.folder.link(str(model.link_sha256)) for model in made]
        assert [link.stat().st_size for link in links] == [model.link_bytes for model in made]
        joined.write_bytes(b"".join(link.read_bytes() for link in links))
        pull_links(joined, workshop.base_path, tmp_path / "out", made[-1].sha256)
        assert sha256_of_file(tmp_path / "out") == coordinator.current.base_sha256
        assert (len(file_names(coordinator.folder.residuals)) == 3) == (changes == LOSSY)
    ended = read_report(state)["rounds"]
    assert [entry["link_bytes"] for entry in ended] == [*(model.link_bytes for model in made), None]
    assert [entry["publish"] for entry in ended] == 4 * ["top-rows" if changes == LOSSY else "rows-f32"]
    if changes == LOSSY:
        assert all(0.05 < entry["distance"] < 1 for entry in ended[:3]) and ended[3]["distance"] is None
    else:
        assert [entry["distance"] for entry in ended] == [0.0, 0.0, 0.0, None]


def test_lossless_links_leave_models_as_they_are_without_links(workshop: Workshop, tmp_path: Path) -> None:
    """The weights are the only update's; the metadata are the round and the parent."""
    with open_coordinator(workshop, tmp_path / "state", settings_with(**LOSSLESS)) as coordinator:
        model = run_round(coordinator, workshop)
        with TensorFile(coordinator.folder.model(model.sha256)) as file:
            assert file.metadata == {"round": "1", "parent_sha256": workshop.base_sha256}
            expected = few_rows(workshop, workshop.base_path, 1)
            for name in file.specs:
                assert np.array_equal(file.read(name), expected[name])


def test_what_links_left_out_is_rolled_back_with_the_model(workshop: Workshop, tmp_path: Path) -> None:
    with open_coordinator(workshop, tmp_path / "state", settings_with(**LOSSY)) as coordinator:
        first = run_round(coordinator, workshop)
        before = unpublished_weights(coordinator, first)
        later = [run_round(coordinator, workshop) for _ in range(2)]
        coordinator.rollback(1)
        assert coordinator.current.base_sha256 == first.sha256
        kept = file_names(coordinator.folder.links)
        assert kept == {f"{first.link_sha256}.safetensors"}  # those of the rounds rolled back are gone
        base = coordinator.folder.model(first.sha256)
        again = run_round(coordinator, workshop, seed=2)
        assert again.sha256 not in {model.sha256 for model in later}
        moved = {name: values - load_tensors(base)[name] for name, values in few_rows(workshop, base, 2).items()}
        for name, values in unpublished_weights(coordinator, again).items():
            assert np.allclose(values, before[name] + moved[name], rtol=0, atol=1e-6)


def test_a_link_without_its_row_in_the_ledger_is_made_again(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_coordinator(workshop, tmp_path / "calm", settings_with(**LOSSY)) as coordinator:
        calm = [run_round(coordinator, workshop).sha256 for _ in range(2)]
    with open_coordinator(workshop, tmp_path / "state", settings_with(**LOSSY)) as coordinator:
        assert run_round(coordinator, workshop).sha256 == calm[0]

        with monkeypatch.context() as patched:
            patched.setattr(LiveRound, "record_model", raising(StorageError("the disk is full")))
            assert run_round(coordinator, workshop).sha256 == calm[0]  # the update is accepted, its round open
        assert len(file_names(coordinator.folder.links)) == 2
    with open_coordinator(workshop, tmp_path / "state", settings_with(**LOSSY)) as coordinator:
        assert coordinator.current.base_sha256 == calm[1]
        assert (len(file_names(coordinator.folder.links)), len(file_names(coordinator.folder.residuals))) == (2, 2)
        assert file_names(tmp_path / "state" / "drafts") == set()


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_start_checks_what_links_left_out(damage: str, workshop: Workshop, tmp_path: Path) -> None:
    with open_coordinator(workshop, tmp_path / "state", settings_with(**LOSSY)) as coordinator:
        path = coordinator.folder.residual(str(run_round(coordinator, workshop).residual_sha256))
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"\1")
    with (
        pytest.raises(StorageError, match=f"{path.name}: (changed|cannot be read).*; restore the state folder"),
        open_coordinator(workshop, tmp_path / "state", settings_with(**LOSSY)),
    ):
        pass


def test_a_close_uses_no_damaged_residual(workshop: Workshop, tmp_path: Path) -> None:
    with open_coordinator(workshop, tmp_path / "state", settings_with(**LOSSY)) as coordinator:
        made = run_round(coordinator, workshop)
        path = coordinator.folder.residual(str(made.residual_sha256))
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        base = coordinator.folder.model(made.sha256)
        receipt = send(coordinator, workshop.update(9, coordinator.current.round, base=base), "phone9")
        assert (receipt.round_closed, coordinator.current.base_sha256) == (False, made.sha256)
        path.write_bytes(data)
        coordinator.tick()
        assert coordinator.current.base_sha256 != made.sha256


def test_links_are_kept_as_long_as_together_they_are_smaller_than_the_model(workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state, settings_with(**LOSSY)) as coordinator:
        made = [run_round(coordinator, workshop) for _ in range(8)]
        sizes = [int(model.link_bytes or 0) for model in made]
        fit = max(count for count in range(9) if sum(sizes[8 - count :]) < made[-1].bytes)
        assert 1 < fit < 8
        assert file_names(coordinator.folder.links) == {f"{model.link_sha256}.safetensors" for model in made[-fit:]}
    with open_coordinator(workshop, state, settings_with(**LOSSY, links_kept=1)) as coordinator:
        assert file_names(coordinator.folder.links) == {f"{made[-1].link_sha256}.safetensors"}
