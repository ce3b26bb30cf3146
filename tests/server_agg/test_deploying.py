"""Several rounds from one model: phones get the mean of what they made of it."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors
from phonograd.device_runtime.update.links import pull_links
from phonograd.server_agg.dashboard.views import lineage_rows
from phonograd.server_agg.refusals import LateUpdateError
from phonograd.server_agg.report.document import read_report
from phonograd.server_agg.report.text import next_model_text, report_rows
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.storage.tables import Model
from tests.server_agg.coordinators import file_names, open_coordinator, send
from tests.server_agg.dashboard_pages import rows_of
from tests.server_agg.ftrl_runs import FTRL
from tests.server_agg.link_rounds import LOSSY, few_rows, run_round
from tests.server_agg.slow_models import free_work, model_after
from tests.server_agg.workshop import Workshop, client_of, settings_with

TWO: dict[str, object] = {"clients_per_round": 1, "deploy_every": 2}
MASKED = {"masked": MaskedSettings(cohort=3, min_cohort=3), "clients_per_round": 3, "weighting": "equal"}


def server_model(coordinator: Coordinator) -> Path:
    return coordinator.folder.model(coordinator.round.model_sha256)


def row_of(coordinator: Coordinator, sha256: str) -> Model:
    with coordinator.ledger.reading() as session:
        return session.get_one(Model, sha256)


def mean_of(workshop: Workshop, seeds: tuple[int, ...], start: Path | None = None) -> Mapping[str, Array]:
    """The mean of the updates of these seeds, all made from one model."""
    updates = [few_rows(workshop, start or workshop.base_path, seed) for seed in seeds]
    return {name: np.mean([update[name] for update in updates], axis=0) for name in updates[0]}


def assert_close(found: Path, expected: Mapping[str, Array]) -> None:
    for name, values in load_tensors(found).items():
        assert np.allclose(values, expected[name], rtol=0, atol=1e-6), name


def test_phones_of_three_rounds_start_from_one_model_and_those_of_the_fourth_from_the_mean(
    workshop: Workshop, tmp_path: Path
) -> None:
    with open_coordinator(workshop, tmp_path / "state", settings_with(**TWO | {"deploy_every": 3})) as coordinator:
        for number, seeds in ((2, (1,)), (3, (1, 7))):
            run_round(coordinator, workshop, seeds[-1])
            between = coordinator.current
            assert (between.round, between.base_sha256) == (number, workshop.base_sha256)  # nothing to download
            assert_close(server_model(coordinator), mean_of(workshop, seeds))
            assert file_names(coordinator.folder.links) == set()
        made = run_round(coordinator, workshop, 9)
        assert coordinator.current.base_sha256 == coordinator.round.model_sha256 == made.sha256
        assert made.parent_sha256 == workshop.base_sha256
        assert_close(server_model(coordinator), mean_of(workshop, (1, 7, 9)))
        link = coordinator.folder.link(str(made.link_sha256))
        pull_links(link, workshop.base_path, tmp_path / "out", made.sha256)  # one link for all three
        base = coordinator.folder.model(made.sha256)
        receipt = send(coordinator, workshop.update(3, 4, base=base), "b")
        assert coordinator.current.base_sha256 == receipt.model_sha256 == made.sha256
    ended = read_report(tmp_path / "state")["rounds"]
    assert [entry["link_bytes"] is None for entry in ended] == [True, True, False, True, True]


def test_an_update_is_late_once_phones_have_another_model(workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state, settings_with(**TWO)) as coordinator:
        run_round(coordinator, workshop, 1)
        receipt = send(coordinator, workshop.update(2, round=1), "slow")  # of round 1, in round 2, on the same model
        assert (receipt.round, receipt.round_closed, receipt.model_sha256) == (2, True, coordinator.current.base_sha256)
        with pytest.raises(LateUpdateError, match="the update is of round 2, which is closed; round 3 is open"):
            send(coordinator, workshop.update(3, round=2), "slower")
    assert [entry["late_folded"] for entry in read_report(state)["rounds"]] == [0, 0, 0]


def test_a_late_update_finds_the_model_that_it_was_made_from(workshop: Workshop, state: Path) -> None:
    """However many models the server has made since, as long as those of so many rounds are kept."""
    settings = settings_with(clients_per_round=1, deploy_every=3, late="next", models_kept=2)
    with open_coordinator(workshop, state, settings) as coordinator:
        for seed in range(3):
            run_round(coordinator, workshop, seed + 1)
        old = coordinator.folder.model(coordinator.current.base_sha256)
        late = workshop.update(9, round=6, base=old, trained=few_rows(workshop, old, 9))
        for seed in range(3):
            run_round(coordinator, workshop, seed + 1)
        before = load_tensors(server_model(coordinator))
        added = {name: values - load_tensors(old)[name] for name, values in few_rows(workshop, old, 9).items()}
        assert send(coordinator, late, "slow").round == 7
        assert_close(server_model(coordinator), {name: values + added[name] for name, values in before.items()})
    assert read_report(state)["rounds"][6]["late_folded"] == 1


def test_a_restart_goes_on_where_the_server_was(workshop: Workshop, tmp_path: Path) -> None:
    settings, sent = settings_with(clients_per_round=2, deploy_every=2), ((1, 1), (2, 1), (3, 2), (4, 2))
    with open_coordinator(workshop, tmp_path / "calm", settings) as coordinator:
        for seed, number in sent:
            send(coordinator, workshop.update(seed, number), f"phone{seed}")
        calm = coordinator.current
    for seed, number in sent:
        with open_coordinator(workshop, tmp_path / "restarted", settings) as coordinator:
            send(coordinator, workshop.update(seed, number), f"phone{seed}")
            restarted = coordinator.current
    assert (restarted.round, restarted.base_sha256) == (calm.round, calm.base_sha256)
    assert calm.base_sha256 != workshop.base_sha256


@pytest.mark.parametrize(("every", "deployed"), [(1, 2), (3, 3), (2, 2)])
def test_a_restart_with_another_number_counts_the_rounds_so_far(
    every: int, deployed: int, workshop: Workshop, state: Path
) -> None:
    with open_coordinator(workshop, state, settings_with(clients_per_round=1, deploy_every=5)) as coordinator:
        run_round(coordinator, workshop, 1)
    with open_coordinator(workshop, state, settings_with(clients_per_round=1, deploy_every=every)) as coordinator:
        assert coordinator.current.base_sha256 == workshop.base_sha256  # phones have it still
        while coordinator.current.base_sha256 == workshop.base_sha256:
            run_round(coordinator, workshop)
        assert coordinator.current.round == deployed + 1


def test_what_a_link_leaves_out_waits_for_the_next_deployment(workshop: Workshop, tmp_path: Path) -> None:
    """No round in between adds or drops it."""
    with open_coordinator(workshop, tmp_path / "state", settings_with(**LOSSY, deploy_every=2)) as coordinator:
        for seeds in ((1, 2), (3, 4)):
            start = coordinator.folder.model(coordinator.current.base_sha256)
            residual = row_of(coordinator, coordinator.current.base_sha256).residual_sha256
            left_out = {} if residual is None else load_tensors(coordinator.folder.residual(residual))
            expected = {
                name: values + left_out.get(name, 0) for name, values in mean_of(workshop, seeds, start).items()
            }
            made = [run_round(coordinator, workshop, seed) for seed in seeds][-1]
        whole = load_tensors(server_model(coordinator))
        last = load_tensors(coordinator.folder.residual(str(made.residual_sha256)))
        for name, values in whole.items():
            assert np.allclose(values + last[name], expected[name], rtol=0, atol=1e-6), name
        assert len(file_names(coordinator.folder.links)) == 2


def test_a_rollback_deploys_and_a_failed_round_does_not(workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state, settings_with(**TWO)) as coordinator:
        run_round(coordinator, workshop, 1)
        first = coordinator.round.model_sha256
        coordinator.round.fail("a test")
        assert (coordinator.current.base_sha256, coordinator.round.model_sha256) == (workshop.base_sha256, first)
        assert coordinator.rollback(1).base_sha256 == coordinator.round.model_sha256 == first
        run_round(coordinator, workshop, 2)
        assert coordinator.current.base_sha256 == first  # the rounds are counted anew
        assert coordinator.rollback(0).base_sha256 == coordinator.round.model_sha256 == workshop.base_sha256
        run_round(coordinator, workshop, 3)
        assert coordinator.current.base_sha256 == workshop.base_sha256  # without those that were rolled back


def test_students_of_several_rounds_are_averaged_too(workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state, settings_with(**TWO, strategy="transfer"), None, free_work()) as coordinator:
        for number, seed in ((1, 1), (2, 7)):
            send(coordinator, workshop.update(seed, number), "a")
            model_after(coordinator, number)
        students = workshop.trained(1), workshop.trained(7)
        assert_close(
            server_model(coordinator), {name: (students[0][name] + students[1][name]) / 2 for name in students[0]}
        )
        assert coordinator.current.base_sha256 == coordinator.round.model_sha256


def test_an_operator_sees_which_rounds_phones_got_and_when_the_next_comes(
    workshop: Workshop, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with open_coordinator(workshop, state, settings_with(**TWO)) as coordinator:
        for seed in (1, 2, 3):
            run_round(coordinator, workshop, seed)
        coordinator.round.fail("a test")
        report = read_report(state)
        assert [entry["deployed"] for entry in report["rounds"]] == [False, True, False, None, None]
        assert [row["deployed"] for row in report_rows(report)] == ["no", "yes", "no", "", ""]
        assert next_model_text(report) == "round 2 of 2 from this model; phones get the next one after round 5"
        coordinator.rollback(3)
        report = read_report(state)
        assert report["rounds"][2]["deployed"]  # now they got it
        assert next_model_text(report) == "round 1 of 2 from this model; phones get the next one after round 7"
        coordinator.rollback(0)
        run_round(coordinator, workshop, 4)
    with open_coordinator(workshop, state, settings_with(clients_per_round=1)):  # with the next that closes
        assert next_model_text(read_report(state)).startswith("round 2 of 2 from this model")
    closed = [one.getMessage().split("; ")[1] for one in caplog.records if getattr(one, "event", "") == "round_closed"]
    after = "phones get a model after round"
    assert closed == [f"{after} 2", "phones get it", f"{after} 4", f"{after} 8"]


def test_the_dashboard_shows_it(start_server: Callable[..., Any], workshop: Workshop) -> None:
    with start_server(**TWO) as server, client_of(server.url) as http:
        for number in (1, 2, 3):
            run_round(server.coordinator, workshop, number)
        assert "Round 2 of 2 from this model; phones get the next one after round 4" in http.get("/").text
        assert "once per phone and 2 rounds" in http.get("/").text
        states = [row[1] for row in rows_of(http.get("/dashboard/rounds").text)]
        assert states == ["State", "open", "full not deployed", "full deployed", "full not deployed"]
        assert [row[0][0] for row in rows_of(http.get("/dashboard/models").text)] == ["R", "◐", "●", "◐", "●"]


def test_the_dashboard_takes_no_model_that_waits_for_one_rolled_back() -> None:
    parents = {"first": None, "waits": "first", "undone": "first"}
    models = [{"sha256": name, "round": at, "parent_sha256": parents[name]} for at, name in enumerate(parents)]
    rows = lineage_rows(models, "first", {2}, {"first", "undone"})
    assert {row["sha256"]: row["in_line"] for row in rows} == {"first": True, "waits": True, "undone": False}


@pytest.mark.parametrize(("name", "changes"), [("masked", MASKED), ("dp-ftrl", FTRL)])
def test_rounds_that_need_a_model_each_are_refused(name: str, changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"`deploy_every` is 2, expected 1 .*{name}"):
        settings_with(**changes, deploy_every=2)


def test_no_run_of_dp_ftrl_begins_between_two_models(workshop: Workshop, state: Path) -> None:
    with open_coordinator(workshop, state, settings_with(**TWO)) as coordinator:
        run_round(coordinator, workshop, 1)
    with pytest.raises(UsageError, match="'dp-ftrl', but round 2 is between two models .* but `deploy_every` 1"):
        Coordinator(workshop.artifacts, state, settings_with(**FTRL))
