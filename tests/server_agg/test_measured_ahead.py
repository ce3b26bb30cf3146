"""Updates are decoded and measured side by side before their turns, and counted one at a time.

Of norm bounding: what needs no norms first is decoded once, in its turn.
"""

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from phonograd.device_runtime.base.errors import OutOfMemoryError
from phonograd.device_runtime.update.update_file import DecodedUpdate, Norm
from phonograd.server_agg.aggregation.fold import Fold
from phonograd.server_agg.rounds.aggregator import RoundAggregator
from tests.server_agg.coordinators import open_coordinator, send, undisturbed_model
from tests.server_agg.workshop import Workshop, settings_with
from tests.support.waiting import PATIENCE_SECONDS

BOUNDED = settings_with(clients_per_round=3, strategy="norm-bound", norm_bound=1.0)


def test_several_updates_are_measured_at_once_and_added_one_at_a_time(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits in its measuring for the other two; the model is the one of updates that came one after the other."""
    expected = undisturbed_model(workshop, tmp_path / "alone", BOUNDED)
    together, ahead = threading.Barrier(3, timeout=PATIENCE_SECONDS), threading.local()
    norms, accumulate = DecodedUpdate.norms, Fold.accumulate

    def wait_and_measure(update: DecodedUpdate, norm: Norm = "2") -> dict[str, float]:
        if not getattr(ahead, "measured", False):
            ahead.measured = True
            together.wait()
        return norms(update, norm)

    def add(*arguments: object) -> None:
        assert coordinator._lock.locked()
        accumulate(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DecodedUpdate, "norms", wait_and_measure)
    monkeypatch.setattr(Fold, "accumulate", add)
    with open_coordinator(workshop, tmp_path / "state", BOUNDED) as coordinator, ThreadPoolExecutor(3) as threads:
        sent = [
            threads.submit(send, coordinator, workshop.update(seed, tokens=100 * seed), f"phone{seed}")
            for seed in (3, 1, 2)
        ]
        models = {receipt.result().model_sha256 for receipt in sent}
        assert coordinator.current.base_sha256 == expected
    assert models == {None, expected}


@pytest.mark.parametrize("error", [OSError(5, "gone"), OutOfMemoryError("no room")])
def test_what_cannot_be_measured_ahead_is_measured_in_its_turn(
    error: Exception, workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed_model(workshop, tmp_path / "alone", BOUNDED)
    norms, failures = DecodedUpdate.norms, [error] * 3

    def fail_first(update: DecodedUpdate, norm: Norm = "2") -> dict[str, float]:
        if len(failures) > failed:
            raise failures.pop()
        return norms(update, norm)

    monkeypatch.setattr(DecodedUpdate, "norms", fail_first)
    with open_coordinator(workshop, tmp_path / "state", BOUNDED) as coordinator:
        for seed in (1, 2, 3):
            failed = 3 - seed
            send(coordinator, workshop.update(seed, tokens=100 * seed), f"phone{seed}")
        assert coordinator.current.base_sha256 == expected


def test_a_round_that_ends_meanwhile_makes_it_late(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured on the old model is of no use on the new one."""
    settings = settings_with(clients_per_round=2, late="next", strategy="norm-bound", norm_bound=1.0)
    late, *others = (workshop.update(seed) for seed in range(4))
    with open_coordinator(workshop, tmp_path / "in-turn", settings) as coordinator:
        for phone, update in zip("bca", (*others[:2], late), strict=True):
            send(coordinator, update, phone)
        send(coordinator, others[2], "d")
        expected = coordinator.current
    measured_ahead = RoundAggregator.measured_ahead

    @contextlib.contextmanager
    def then_others(aggregator: RoundAggregator, path: Path) -> Iterator[DecodedUpdate | None]:
        with measured_ahead(aggregator, path) as ahead:
            assert ahead is not None
            monkeypatch.undo()
            for phone, update in zip("bc", others[:2], strict=True):
                send(coordinator, update, phone)
            yield ahead

    with open_coordinator(workshop, tmp_path / "state", settings) as coordinator:
        monkeypatch.setattr(RoundAggregator, "measured_ahead", then_others)
        send(coordinator, late, "a")
        send(coordinator, others[2], "d")
        assert (coordinator.current.round, coordinator.current.base_sha256) == (3, expected.base_sha256)


def test_an_average_decodes_an_update_once_and_in_its_turn(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = undisturbed_model(workshop, tmp_path / "alone")
    one_pass = DecodedUpdate.take

    def take(*arguments: Any) -> float:
        assert coordinator._lock.locked()
        return one_pass(*arguments)

    monkeypatch.setattr(DecodedUpdate, "take", take)
    monkeypatch.delattr(DecodedUpdate, "norms")
    monkeypatch.delattr(DecodedUpdate, "add")
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        for seed in (1, 2, 3):
            send(coordinator, workshop.update(seed, tokens=100 * seed), f"phone{seed}")
        assert coordinator.current.base_sha256 == expected
