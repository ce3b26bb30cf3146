"""Several workers over one state folder, here in one process: the tests of several servers that hold for them too."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.refusals import RequestError
from phonograd.server_agg.rounds import partial_sums
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.storage.folder_claim import claim, lock
from phonograd.server_agg.storage.tables import Process, Update
from phonograd.server_agg.storage.worker import Worker
from tests.cluster.conftest import Open
from tests.cluster.test_partial_sums import (
    folded_again,
    send_without_closing,
    small_chunks,
    test_a_beat_tells_once_of_a_round_that_closes_and_of_the_next,
    test_a_dead_server_is_not_waited_for,
    test_a_server_whose_closing_failed_gives_its_own_sum_to_the_next,
    test_a_strategy_of_ones_own_adds_what_other_servers_accepted,
    test_an_update_that_came_too_late_is_taken_out_again,
    test_the_closer_waits_for_the_sums_of_servers_that_live,
)
from tests.cluster.test_private_replicas import test_the_same_models_as_one_server_with_the_same_keys
from tests.cluster.test_replicas import (
    test_a_phone_counts_once_at_all_servers,
    test_a_round_that_closes_takes_no_more_updates,
    test_a_server_that_dies_while_it_closes_a_round,
    test_a_server_that_has_not_heard_of_the_new_round_takes_part_in_it,
    test_each_round_closes_once_whoever_comes,
    test_no_server_rolls_back_while_another_closes_the_round,
    test_the_same_models_as_one_process,
)
from tests.server_agg.test_rounds import send
from tests.server_agg.workshop import Workshop, settings_with

__all__ = [
    "folded_again",
    "small_chunks",
    "test_a_beat_tells_once_of_a_round_that_closes_and_of_the_next",
    "test_a_dead_server_is_not_waited_for",
    "test_a_phone_counts_once_at_all_servers",
    "test_a_round_that_closes_takes_no_more_updates",
    "test_a_server_that_dies_while_it_closes_a_round",
    "test_a_server_that_has_not_heard_of_the_new_round_takes_part_in_it",
    "test_a_server_whose_closing_failed_gives_its_own_sum_to_the_next",
    "test_a_strategy_of_ones_own_adds_what_other_servers_accepted",
    "test_an_update_that_came_too_late_is_taken_out_again",
    "test_each_round_closes_once_whoever_comes",
    "test_no_server_rolls_back_while_another_closes_the_round",
    "test_the_closer_waits_for_the_sums_of_servers_that_live",
    "test_the_same_models_as_one_process",
    "test_the_same_models_as_one_server_with_the_same_keys",
]


@pytest.fixture
def replicas(workshop: Workshop, tmp_path: Path) -> Iterator[Open]:
    """Workers of one folder; those of the first call begin with the one that is alone."""
    root, numbers = tmp_path / "shared", itertools.count()
    claim(root)
    with contextlib.ExitStack() as stack:
        descriptor = lock(root)
        stack.callback(os.close, descriptor)

        def one(**changes: object) -> Coordinator:
            number = next(numbers)
            worker = Worker(number, number == 0, os.dup(descriptor))
            settings = settings_with(**{"clients_per_round": 3} | changes)
            made = Coordinator(workshop.artifacts, root, settings, worker=worker)
            stack.callback(made.close)
            return made

        yield lambda count, **changes: [one(**changes) for _ in range(count)]
