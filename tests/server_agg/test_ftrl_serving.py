"""A server's run of dp-ftrl: how long phones rest, what a run fixes, and what nobody can undo."""

import html
import json
import math
import shutil
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors, save_tensors
from phonograd.server_agg.aggregation import next_model
from phonograd.server_agg.aggregation.correlation import optimise
from phonograd.server_agg.aggregation.privacy.accountant import PrivateRounds, privacy_spent
from phonograd.server_agg.dashboard import formats
from phonograd.server_agg.refusals import LateUpdateError, NotSelectedError, RestingPhoneError, RewoundNoiseError
from phonograd.server_agg.report.document import read_report
from phonograd.server_agg.rounds import offline
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.security.registry import PhoneRegistry
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.storage.sums import epsilon_spent
from phonograd.server_agg.storage.tables import Round
from tests.server_agg.coordinators import file_names, open_coordinator, send
from tests.server_agg.ftrl_runs import FTRL, end_round, give, serve_ftrl, update_of
from tests.server_agg.workshop import Clock, Workshop, client_of, run_server, settings_with, write_artifacts
from tests.support.command_line import Run, phono

__all__ = ["phono"]
pytestmark = pytest.mark.usefixtures("known_noise")


def refusal(workshop: Workshop, coordinator: Coordinator, phone: str) -> RestingPhoneError:
    """What the phone is told before it trains, and when it sends all the same."""
    told = coordinator.participation(phone)
    with pytest.raises(RestingPhoneError) as found:
        give(workshop, coordinator, phone)
    assert str(told) == str(found.value)
    return found.value


def test_a_phone_rests_between_its_rounds_and_takes_part_so_often(
    workshop: Workshop, state: Path, clock: Clock
) -> None:
    with serve_ftrl(workshop, state, clock) as coordinator:
        give(workshop, coordinator, "phone1")
        end_round(coordinator, clock)
        clock.now += 40
        error = refusal(workshop, coordinator, "phone1")
        assert (error.status, error.title) == (409, "The phone rests")
        assert "round 2 of a run of dp-ftrl: phone phone1 took part 1 rounds ago, and rests for 2 more" in str(error)
        assert error.retry_seconds == pytest.approx(160)  # the rest of this round, and the next one
        give(workshop, coordinator, "phone2")
        end_round(coordinator, clock)
        refusal(workshop, coordinator, "phone1")
    with serve_ftrl(workshop, state, clock) as coordinator:  # a restart does not forget
        refusal(workshop, coordinator, "phone1")
        end_round(coordinator, clock)
        assert coordinator.participation("phone1") is None
        give(workshop, coordinator, "phone1")
        refusal(workshop, coordinator, "phone2")
        end_round(coordinator, clock)
        give(workshop, coordinator, "phone2")
        end_round(coordinator, clock)
        assert "took part 2 times, as often as it may (`max_participations`)" in str(
            coordinator.participation("phone1")
        )
        assert refusal(workshop, coordinator, "phone1").retry_seconds == pytest.approx(100, abs=2)  # it is the last one


def test_an_upload_that_is_there_already_is_held_to_it_too(workshop: Workshop, state: Path, clock: Clock) -> None:
    with serve_ftrl(workshop, state, clock) as coordinator:
        give(workshop, coordinator, "phone1")
        end_round(coordinator, clock)
        update = update_of(workshop, coordinator, 1)
        sha256, nbytes = sha256_of_file(update), update.stat().st_size
        with coordinator.ledger.writing() as session:
            row = coordinator.uploads.add(session, UploadMetadata("phone1", nbytes), 2)
        shutil.copy(update, coordinator.folder.upload(row.id))
        with pytest.raises(RestingPhoneError):
            coordinator.ingest(row.id, sha256, nbytes)
        assert coordinator.current.accepted == 0


def test_a_round_needs_space_for_its_buffers(workshop: Workshop, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, asked = Clock(), list[int]()
    with serve_ftrl(workshop, state, clock) as coordinator:
        monkeypatch.setattr(coordinator.folder, "check_space", asked.append)
        give(workshop, coordinator, "phone1")
        end_round(coordinator, clock)
        (buffers,) = coordinator.folder.buffers.iterdir()
        model = coordinator.folder.model(coordinator.current.base_sha256)
        assert asked[0] > buffers.stat().st_size + model.stat().st_size
    assert buffers.stat().st_size > 3 * model.stat().st_size


def test_a_failed_round_releases_nothing_and_counts_for_nobody(
    workshop: Workshop, state: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_ftrl(workshop, state, clock) as coordinator:
        give(workshop, coordinator, "phone1")
        with monkeypatch.context() as patch:
            patch.setattr(next_model, "write_model", lambda *_: 1 / 0)
            end_round(coordinator, clock)
        assert coordinator.current.base_sha256 == workshop.base_sha256
        assert step_of(coordinator) == 1
        give(workshop, coordinator, "phone1")
        end_round(coordinator, clock)
        with monkeypatch.context() as patch:
            patch.setattr(next_model, "write_model", lambda *_: 1 / 0)
            end_round(coordinator, clock)
        assert "rests for 2 more" in str(refusal(workshop, coordinator, "phone1"))  # as before that round
        assert step_of(coordinator) == 2
        end_round(coordinator, clock)  # with the buffers of two rounds ago
        assert step_of(coordinator) == 3
    endings = [entry["ending"] for entry in read_report(state)["rounds"]]
    assert endings == ["failed", "deadline", "failed", "deadline", None]


def step_of(coordinator: Coordinator) -> int | None:
    with coordinator.ledger.reading() as session:
        return session.get_one(Round, coordinator.current.round).run_step


def test_a_late_update_has_no_place(workshop: Workshop, state: Path, clock: Clock) -> None:
    with serve_ftrl(workshop, state, clock, late="next") as coordinator:
        late = update_of(workshop, coordinator, 1)
        end_round(coordinator, clock)
        with pytest.raises(LateUpdateError):
            send(coordinator, late, "phone1")


def test_a_run_ends_and_its_epsilon_is_that_of_one_gaussian(workshop: Workshop, state: Path, clock: Clock) -> None:
    with serve_ftrl(workshop, state, clock) as coordinator:
        give(workshop, coordinator, "phone1")
        for _ in range(6):
            end_round(coordinator, clock)
        assert "all 6 rounds of the run of dp-ftrl are over (`planned_rounds`)" in str(coordinator.current.halted)
        clock.now += 1000
        coordinator.tick()
        assert coordinator.current.round == 7
        with pytest.raises(NotSelectedError, match="the model is final"):
            give(workshop, coordinator, "phone2")
        assert not file_names(coordinator.folder.buffers)  # nothing needs them
        with coordinator.ledger.reading() as session:
            shown = epsilon_spent(session)
    with serve_ftrl(workshop, state, clock) as coordinator:
        assert coordinator.current.halted is not None
    once = privacy_spent([PrivateRounds(1.0, 1.0)], 1e-5)
    rounds = read_report(state)["rounds"]
    assert [entry["epsilon"] for entry in rounds[:6]] == pytest.approx([once.epsilon] * 6)
    assert [entry["epsilon_rdp"] for entry in rounds[:6]] == pytest.approx([once.epsilon_rdp] * 6)
    assert (shown, rounds[5]["epsilon_infinite_phones"]) == (rounds[5]["epsilon"], 0)
    assert len({entry["model_sha256"] for entry in rounds[:6]}) == 6  # empty rounds publish noise too


def test_without_noise_epsilon_is_infinite(workshop: Workshop, state: Path, clock: Clock) -> None:
    with serve_ftrl(workshop, state, clock, noise_multiplier=0.0) as coordinator:
        give(workshop, coordinator, "phone1")
        end_round(coordinator, clock)
        with coordinator.ledger.reading() as session:
            assert epsilon_spent(session) == math.inf
    entry = read_report(state)["rounds"][0]
    assert (entry["epsilon"], entry["epsilon_infinite_phones"]) == (None, 1)


def test_what_a_run_costs_is_shown(
    workshop: Workshop, state: Path, clock: Clock, phono: Run, caplog: pytest.LogCaptureFixture
) -> None:
    with serve_ftrl(workshop, state, clock) as coordinator:
        end_round(coordinator, clock)
        end_round(coordinator, clock)
    epsilon = privacy_spent([PrivateRounds(1.0, 1.0)], 1e-5).epsilon
    changes = FTRL | {"deadline_seconds": 28_800.0}
    with run_server(workshop, state, **changes) as server, client_of(server.url) as owner:
        metrics, overview, shown = (owner.get(path).text for path in ("/metrics", "/", "/dashboard/rounds/2"))
        report, table = owner.get("/v1/report").json(), phono("report", "--state", state).out
    neighbours = "add or remove one user's whole text"
    assert [entry["neighbours"] for entry in report["rounds"]] == [neighbours, neighbours, None]
    assert f"in private rounds: {neighbours}." in metrics and f"phonograd_epsilon {epsilon}" in metrics
    assert f"epsilon: {neighbours}" in " ".join(table.split())
    figure = f"ε {formats.number(epsilon)}"
    for text in (f"up to round 2: {neighbours}", f"Privacy spent, ε: {neighbours}", figure):
        assert text in html.unescape(overview)
    assert f'<abbr title="privacy spent: {neighbours}">ε' in html.unescape(overview)
    assert f"{figure}, {neighbours}" in html.unescape(shown)
    assert "uses up one of the 6 planned ones, even if no phone took part: a day without phones costs 3" in caplog.text


def test_rounds_of_other_private_strategies_add_to_it(workshop: Workshop, state: Path, clock: Clock) -> None:
    wide = {"noise_multiplier": 20.0}  # which the accountant is quick with
    sampled = {"strategy": "dp-fedavg", "sampling": 0.5, **wide}
    with serve_ftrl(workshop, state, clock, **sampled) as coordinator:
        PhoneRegistry(coordinator.ledger).add("phone1", "phone", "90d", "test")
        coordinator.tick()
        end_round(coordinator, clock)
    with serve_ftrl(workshop, state, clock, **wide) as coordinator:
        for _ in range(2):
            end_round(coordinator, clock)
    both = privacy_spent([PrivateRounds(0.5, 20.0), PrivateRounds(1.0, 20.0)], 1e-5).epsilon
    assert [entry["epsilon"] for entry in read_report(state)["rounds"][1:3]] == pytest.approx([both, both])


@pytest.mark.parametrize(("field", "value"), [("planned_rounds", 7), ("strategy", "fedavg")])
def test_the_settings_of_a_run_are_fixed_from_its_first_round(
    workshop: Workshop, state: Path, clock: Clock, field: str, value: object
) -> None:
    with serve_ftrl(workshop, state, clock):
        pass
    with (
        pytest.raises(UsageError, match=rf"`{field}` is {value!r}, expected"),
        serve_ftrl(workshop, state, clock, **{field: value}),
    ):
        pass
    with serve_ftrl(workshop, state, clock, delta=1e-6, clients_per_round=3) as coordinator:  # nothing was lost
        end_round(coordinator, clock)


def test_a_run_is_made_once(workshop: Workshop, state: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_ftrl(workshop, state, clock) as coordinator:
        before = run_of(coordinator)
    monkeypatch.setattr(optimise, "minimize", None, raising=False)
    monkeypatch.setattr("phonograd.server_agg.aggregation.correlation.run.optimise_blt", lambda *_: 1 / 0)
    with serve_ftrl(workshop, state, clock) as coordinator:
        give(workshop, coordinator, "phone1")
        end_round(coordinator, clock)
        assert run_of(coordinator) == before
        with TensorFile(coordinator.folder.model(coordinator.current.base_sha256)) as model:
            assert json.loads(model.metadata["dp_ftrl"]) == json.loads(before)


def run_of(coordinator: Coordinator) -> str:
    with coordinator.ledger.reading() as session:
        return str(session.get_one(Round, coordinator.current.round).run)


def test_a_run_does_not_begin_amid_updates_of_another_strategy(workshop: Workshop, state: Path, clock: Clock) -> None:
    with open_coordinator(workshop, state, settings_with(clients_per_round=2), clock) as coordinator:
        send(coordinator, workshop.update(1), "phone1")
    amid = "`strategy` is 'dp-ftrl', but round 1 has updates of another strategy"
    with pytest.raises(UsageError, match=amid), serve_ftrl(workshop, state, clock):
        pass


def test_a_second_run_does_not_begin_with_the_model_of_a_first(
    workshop: Workshop, state: Path, tmp_path: Path, clock: Clock
) -> None:
    with serve_ftrl(workshop, state, clock) as coordinator:
        end_round(coordinator, clock)
        made = coordinator.folder.model(coordinator.current.base_sha256)
        weights = load_tensors(made)
        with TensorFile(made) as file:
            metadata = dict(file.metadata)
    artifacts = write_artifacts(tmp_path / "second", workshop.config, weights)
    path = artifacts.folder / "weights.safetensors"
    other = Workshop(tmp_path, workshop.config, artifacts)
    assert path == other.base_path
    save_tensors(path, weights, metadata)
    with (
        pytest.raises(UsageError, match="it is a model of a run of dp-ftrl"),
        serve_ftrl(other, tmp_path / "new", clock),
    ):
        pass
    assert not (tmp_path / "new").exists()


def test_released_noise_can_not_be_undone(workshop: Workshop, state: Path, clock: Clock) -> None:
    with serve_ftrl(workshop, state, clock) as coordinator:
        give(workshop, coordinator, "phone1")
        assert coordinator.rollback(0).round == 2  # nothing was released yet
        assert step_of(coordinator) == 1
        give(workshop, coordinator, "phone1")
        end_round(coordinator, clock)
        end_round(coordinator, clock)
        for number in (0, 2):
            with pytest.raises(RewoundNoiseError, match="2 rounds of its run of dp-ftrl have released noise"):
                coordinator.rollback(number)
        current = coordinator.current.base_sha256
        give(workshop, coordinator, "phone2")
        assert coordinator.rollback(3).base_sha256 == current  # the open round's updates alone
        assert step_of(coordinator) == 3
        give(workshop, coordinator, "phone2")
        end_round(coordinator, clock)
    with pytest.raises(RewoundNoiseError):
        offline.roll_back(state, 2, "test")
    with serve_ftrl(workshop, state, clock) as coordinator:
        assert coordinator.current.round == 6
        end_round(coordinator, clock)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ledger": "postgresql://host/db"}, "`store` is None, expected one for a ledger in PostgreSQL"),
        (
            {"masked": MaskedSettings(), "clients_per_round": MaskedSettings().cohort},
            "expected one of .* with `masked`",
        ),
        ({"deadline_seconds": None}, "`deadline_seconds` is None, expected a deadline for dp-ftrl"),
        ({"max_clients": 5}, "`max_clients` is 5, expected none for dp-ftrl"),
    ],
)
def test_what_a_run_can_not_have(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_with(**FTRL | changes)


def test_a_phone_over_http_is_told_to_rest_before_it_trains(workshop: Workshop, state: Path, clock: Clock) -> None:
    with serve_ftrl(workshop, state, clock) as coordinator:
        give(workshop, coordinator, "phone1")
        end_round(coordinator, clock)
    with run_server(workshop, state, **FTRL | {"deadline_seconds": 1e6}) as server, client_of(server.url, {}) as phone:
        secret = PhoneRegistry(server.coordinator.ledger).add("phone1", "phone", "90d", "test").token
        answer = phone.get("/v1/round", headers={"Authorization": f"Bearer {secret}", "Phonograd-Phone": "phone1"})
        told = answer.json()
        assert (told["participate"], told["accepted"]) == (False, None)
        assert "rests for 2 more" in told["reason"]
        assert int(answer.headers["Retry-After"]) > 1e6
