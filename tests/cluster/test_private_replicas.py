"""Private strategies on several servers: one noise key, one released noise a round, the same rules everywhere."""

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from phonograd.device_runtime.base.errors import StorageError, UsageError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.aggregation import next_model
from phonograd.server_agg.aggregation.correlation.run import begin_run
from phonograd.server_agg.refusals import (
    DuplicatePhoneError,
    NotSelectedError,
    RestingPhoneError,
    RewoundNoiseError,
    RoundClosingError,
)
from phonograd.server_agg.rounds import noise_runs
from phonograd.server_agg.rounds.live_round import LiveRound
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.storage import noise_keys
from phonograd.server_agg.storage.tables import Ending, Model
from tests.cluster.conftest import Open, break_the_lock
from tests.cluster.servers import (
    FTRL,
    SAMPLED,
    accepted_phones,
    before_acceptance,
    deadline,
    end_round,
    endings,
    enrol,
    follow,
    models,
    name_of,
    rounds,
    update_of,
    upload,
)
from tests.server_agg.coordinators import file_names, open_coordinator, send
from tests.server_agg.faults import raising
from tests.server_agg.workshop import Clock, Workshop, settings_with

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    "changes",
    [
        FTRL | {"min_separation": 1, "max_participations": 3},
        SAMPLED,
        {"strategy": "fedatt", "attention_noise": 0.1, "clients_per_round": 3, "deadline_seconds": 100.0},
    ],
    ids=["dp-ftrl", "dp-fedavg", "fedatt"],
)
def test_the_same_models_as_one_server_with_the_same_keys(
    changes: dict[str, object], workshop: Workshop, tmp_path: Path, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    three, keys, sent = replicas(3, **changes), [], []
    enrol(*three)
    for number in range(1, 4):
        (key,) = {one.folder.noise_keys.get_or_create(number) for one in three}
        keys.append(key)
        sent.append([update_of(workshop, three[0], 10 * number + seed) for seed in range(1 + number % 2)])
        for seed, update in enumerate(sent[-1]):
            send(three[seed], update, f"phone{seed}")
        end_round(*three[number % 3 :], *three[: number % 3])
    made = [one.sha256 for one in models(three[0])]
    assert len(set(keys)) == 3
    left, clock = iter([*keys, bytes(32)]), Clock()
    monkeypatch.setattr(noise_keys, "secrets", SimpleNamespace(token_bytes=lambda _: next(left)))
    with open_coordinator(workshop, tmp_path / "alone", settings_with(**changes), clock) as alone:
        enrol(alone)
        for updates in sent:
            for seed, update in enumerate(updates):
                send(alone, update, f"phone{seed}")
            clock.now += 101
            alone.tick()
        assert [one.sha256 for one in models(alone)] == made
    assert len(set(made)) == 4


@pytest.mark.parametrize(
    ("changes", "target"), [(FTRL, "write_model"), (SAMPLED, "publish"), (FTRL, "record_model")], ids=name_of
)
def test_a_server_that_lost_the_lock_makes_the_same_bytes(
    changes: dict[str, object],
    target: str,
    workshop: Workshop,
    database: str,
    replicas: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Meanwhile another one closes the round, from beginning to end, and deletes the key."""
    first, second = replicas(2, **changes)
    enrol(first, second)
    end_round(first, second)  # so that there are buffers
    send(second, update_of(workshop, second, 1), "phone1")
    place: Any = LiveRound if target == "record_model" else next_model
    original, record_model, made = getattr(place, target), LiveRound.record_model, []

    def too_late(*arguments: object) -> object:
        monkeypatch.setattr(place, target, original)
        break_the_lock(database)
        follow([second], 3)
        assert second.folder.store.names("noise")[0].startswith("3-")
        return original(*arguments)

    def record(current: object, ending: object, model: Model) -> None:
        if current is first.round:
            made.append((model.sha256, model.buffers_sha256, model.buffers_seal))
        record_model(current, ending, model)  # type: ignore[arg-type]

    if target != "record_model":
        monkeypatch.setattr(LiveRound, "record_model", record)
    else:
        original = record
    deadline(first, second)
    monkeypatch.setattr(place, target, too_late)
    with pytest.raises(StorageError, match="round 2: another server ended it"):
        first.round.end_if_complete()
    monkeypatch.setattr(LiveRound, "record_model", record_model)
    follow([first, second], 3)
    published = models(first)[-1]
    assert made == [(published.sha256, published.buffers_sha256, published.buffers_seal)]
    end_round(first, second)
    assert endings(first) == ["deadline"] * 3 + [None]
    kept = [f"{one.buffers_sha256}.safetensors" for one in models(first)[-1:] if one.buffers_sha256]
    assert first.folder.store.names("buffers") == kept


@pytest.mark.parametrize(
    ("changes", "dies"), [(SAMPLED, "write_model"), (FTRL, "record_model"), (FTRL, "publish")], ids=name_of
)
def test_a_server_that_dies_while_it_closes_a_round_leaves_its_noise_to_the_next(
    changes: dict[str, object], dies: str, workshop: Workshop, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas(2, **changes)
    enrol(first, second)
    end_round(second, first)
    send(first, update_of(workshop, first, 1), "phone1")
    deadline(first, second)
    with monkeypatch.context() as patch:
        patch.setattr(LiveRound if dies == "record_model" else next_model, dies, raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            first.tick()
    left = set(first.folder.store.names("models"))
    follow([second], 3)
    published = {f"{one.sha256}.safetensors" for one in models(second)}
    assert len(left) == (3 if dies == "record_model" else 2)
    assert left <= published  # no second model of the round with other noise
    follow([first], 3)


def test_a_server_that_lost_the_lock_leaves_the_next_round_alone(
    database: str, replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = replicas(2, **FTRL)
    deadline(first, second)
    follow_, calls = first.round.follow, itertools.count(1)

    def slowly() -> None:
        if next(calls) == 3:  # it has marked the round as closing
            break_the_lock(database)
            follow([second], 2)
        follow_()

    monkeypatch.setattr(first.round, "follow", slowly)
    first.round.end_if_complete()
    assert next(calls) == 4
    assert endings(first) == ["deadline", None]


def test_a_private_round_neither_ends_nor_refuses_anybody_when_as_many_came_as_were_expected(
    workshop: Workshop, replicas: Open
) -> None:
    first, second = replicas(2, **FTRL | {"clients_per_round": 1})
    for server, phone in ((first, 0), (second, 1), (first, 2)):
        receipt = send(server, update_of(workshop, server, phone), f"phone{phone}")
        assert (receipt.accepted, receipt.round_closed) == (None, False)
    follow([first, second], 1)
    end_round(second, first)
    assert endings(first) == ["deadline", None]


def test_a_phone_that_is_offered_at_two_servers_at_once_is_taken_once(workshop: Workshop, replicas: Open) -> None:
    first, second = replicas(2, **FTRL)
    update, identifiers = update_of(workshop, first, 1), []
    for server in (first, second):
        with server.ledger.writing() as session:  # as if neither had seen the other's
            row = server.uploads.add(session, UploadMetadata("phone1", update.stat().st_size), 1)
        server.folder.upload(row.id).write_bytes(update.read_bytes())
        identifiers.append(row.id)
    before_acceptance(second, lambda: first.ingest(identifiers[0], sha256_of_file(update), 0))
    with pytest.raises(DuplicatePhoneError):
        second.ingest(identifiers[1], sha256_of_file(update), 0)
    assert accepted_phones(first) == {"phone1"}
    end_round(first, second)


def test_a_phone_rests_at_all_servers(workshop: Workshop, replicas: Open) -> None:
    first, second = replicas(2, **FTRL, retry_seconds=0.01)
    send(first, update_of(workshop, first, 1), "phone1")
    deadline(first, second)
    follow([first], 2)
    assert second.current.round == 1  # it has not heard of the next round yet
    told = second.participation("phone1")
    assert isinstance(told, RestingPhoneError)
    assert 0.01 < told.retry_seconds <= 100  # the rest of this round
    with pytest.raises(RestingPhoneError, match="took part 1 rounds ago, and rests for 1 more"):
        send(second, update_of(workshop, second, 2), "phone1")
    end_round(second, first)
    send(second, update_of(workshop, second, 3), "phone1")
    end_round(first, second)
    end_round(first, second)
    for server in (first, second):
        with pytest.raises(RestingPhoneError, match="took part 2 times"):
            send(server, update_of(workshop, server, 4), "phone1")


def test_what_halts_a_round_halts_it_at_all_servers(workshop: Workshop, replicas: Open) -> None:
    first, second = replicas(2, **FTRL | {"planned_rounds": 1, "min_separation": 1, "max_participations": 1})
    before = second.create_upload(UploadMetadata("phone1", update_of(workshop, first, 1).stat().st_size))
    deadline(first, second)
    follow([first], 2)
    assert "all 1 rounds of the run of dp-ftrl are over" in str(second.participation("phone2"))
    update = update_of(workshop, first, 2)
    with pytest.raises(NotSelectedError, match="the model is final"):
        upload(second, update, "phone2")
    second.folder.upload(before.id).write_bytes(update.read_bytes())
    with pytest.raises(NotSelectedError, match="the model is final"):
        second.ingest(before.id, sha256_of_file(update), 0)
    assert second.folder.store.names("buffers") == []


def test_only_phones_that_were_drawn_take_part_at_any_server(workshop: Workshop, replicas: Open) -> None:
    first, second = replicas(2, **SAMPLED | {"sampling": 1e-9})
    enrol(first)
    assert "not selected for round 1" in str(second.participation("phone1"))
    with pytest.raises(NotSelectedError, match="not selected for round 1"):
        upload(second, update_of(workshop, second, 1), "phone1")


def test_a_server_follows_a_round_whose_phones_another_one_drew(replicas: Open) -> None:
    """The deadline counts from the draw, and the noise is of its population."""
    first, second = replicas(2, **SAMPLED)
    deadline(first, second, seconds=60.0)
    enrol(first)
    deadline(first, second, seconds=60.0)
    second.round.end_if_complete()
    assert [round_.closed_at for round_ in rounds(first.ledger)] == [None]
    assert second.round.aggregator.row.population == 3
    end_round(second, first)
    assert rounds(first.ledger)[0].ending == "deadline"


def test_a_round_is_closed_with_the_settings_that_the_ledger_accounts_for(
    workshop: Workshop, tmp_path: Path, place: dict[str, object], replicas: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that started meanwhile has changed them; none changes them once the round is closing."""
    (first,) = replicas(1, **SAMPLED | {"noise_multiplier": 8.0})
    enrol(first)
    ingest, write_model, used = upload(first, update_of(workshop, first, 1), "phone1"), next_model.write_model, []
    others, looks, ending_of = itertools.count(), itertools.count(1), LiveRound.find_ending

    def start(noise: float) -> None:
        settings = settings_with(**place | SAMPLED | {"noise_multiplier": noise})
        with open_coordinator(workshop, tmp_path / f"other{next(others)}", settings) as other:
            deadline(other, seconds=first.ledger.clock() - other.ledger.clock())

    before_acceptance(first, lambda: start(4.0))
    with pytest.raises(RoundClosingError):  # it was measured with other settings
        ingest()

    def note_and_write(settings: object, *arguments: object) -> object:
        used.append(settings.noise_multiplier)  # type: ignore[attr-defined]
        start(2.0)
        return write_model(settings, *arguments)  # type: ignore[arg-type]

    def decide(current: LiveRound) -> Ending | None:
        if next(looks) == 2:  # it has the lock, and is about to mark the round
            start(3.0)
        return ending_of(current)

    monkeypatch.setattr(next_model, "write_model", note_and_write)
    monkeypatch.setattr(LiveRound, "find_ending", decide)
    deadline(first)
    follow([first], 1)
    follow([first], 2)
    ended = rounds(first.ledger)[0]
    assert (used, '"noise_multiplier": 3.0' in ended.strategy, ended.ending) == ([3.0], True, "deadline")


@pytest.mark.parametrize("change", [{"noise_multiplier": 2.0}, {"strategy": "fedavg"}])
def test_a_server_with_other_settings_than_the_run_opens_no_round_of_it(
    change: dict[str, object],
    workshop: Workshop,
    tmp_path: Path,
    place: dict[str, object],
    replicas: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (other,) = replicas(1, strategy="fedavg", deadline_seconds=100.0, clients_per_round=2)
    (first,) = replicas(1, **FTRL)  # the run begins while the other one runs
    deadline(other, first)
    other.tick()
    assert (other.overdue, len(rounds(first.ledger))) == (True, 1)
    follow([first], 2)
    settings = settings_with(**place | FTRL | change, end_privacy=True)
    with pytest.raises(UsageError), open_coordinator(workshop, tmp_path / "late", settings):
        pass
    # As if it had looked before the run began.
    run = None if "strategy" in change else begin_run(settings.strategy).text
    monkeypatch.setattr(noise_runs, "required_run", lambda *_: run)
    with (
        pytest.raises(StorageError, match=r"round 2: `\w+` is .*, expected"),
        open_coordinator(workshop, tmp_path / "at once", settings),
    ):
        pass
    end_round(first)


def test_the_run_of_the_server_that_was_first_counts(replicas: Open) -> None:
    three = replicas(3, **FTRL)
    assert len({str(one.round.aggregator.row.run) for one in three}) == 1
    end_round(*three)
    assert len({row.run for row in rounds(three[0].ledger)}) == 1


def test_buffers_are_in_the_store_and_a_server_that_lacks_them_fetches_them(
    workshop: Workshop, tmp_path: Path, place: dict[str, object], replicas: Open
) -> None:
    first, second = replicas(2, **FTRL)
    end_round(first, second)
    name = f"{models(first)[-1].buffers_sha256}.safetensors"
    store = first.folder.store
    assert (store.names("buffers"), file_names(second.folder.buffers)) == ([name], set())
    send(second, update_of(workshop, second, 1), "phone1")
    assert (second.folder.buffers / name).stat().st_mode & 0o777 == 0o600
    end_round(second, first)
    assert name not in {*store.names("buffers"), *file_names(first.folder.buffers), *file_names(second.folder.buffers)}
    with pytest.raises(RewoundNoiseError):
        first.rollback(1)
    kept = tmp_path / "kept"
    (current,) = store.names("buffers")
    assert store.get(f"buffers/{current}", kept)
    for harm in (
        lambda: store.delete([f"buffers/{current}"]),
        lambda: store.put(workshop.base_path, f"buffers/{current}"),
    ):
        harm()
        settings = settings_with(**place | FTRL)
        with (
            pytest.raises(StorageError, match="restore the state folder|damaged in the store"),
            open_coordinator(workshop, tmp_path / "third", settings),
        ):
            pass
    store.put(kept, f"buffers/{current}")
    end_round(first, second)
