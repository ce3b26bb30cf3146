"""Simulated rounds that publish links: what they cost, and that lossy ones lead where lossless ones do."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

import phonograd
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.simulation import one_round
from phonograd.simulation.folder import SimulationFolder
from phonograd.simulation.one_round import bytes_down
from phonograd.simulation.records import RoundRecord, tables_of
from phonograd.simulation.schedule import Participation
from tests.papers.finished import round_record
from tests.support.artifacts import exported

WORDS = 300
TRAINING = phonograd.TrainingConfig(minibatch=2, bptt=5, dropout=0.0)
ARTIFACTS = exported(phonograd.LanguageModelConfig("lstm", vocabulary=600, embedding=8, hidden=8, layers=1), TRAINING)


def messages(user: int) -> list[str]:
    """Three words, one of each third of the vocabulary, some far more often than others."""
    random = np.random.default_rng(user)
    return [" ".join(f"w{3 * int(WORDS / 3 * random.random() ** 3) + third}" for third in range(3)) for _ in range(120)]


USERS = {f"user-{user}": messages(user) for user in range(8)}
TEST = [f"w{word} w{word + 1} w{word + 2}" for word in range(WORDS // 4, WORDS, 3)]  # the rare ones
SETTINGS = phonograd.SimulationSettings(
    rounds=30, clients_per_round=4, text_bytes=4000, test_users=1, seed=5, evaluate_every=30, learning_rate=0.5
)
LOSSY = replace(SETTINGS, publish="top-rows", publish_rows=40)  # of 1200


def run(out: Path, settings: phonograd.SimulationSettings) -> phonograd.SimulationRecord:
    return phonograd.simulate(ARTIFACTS, USERS, out, settings, general_test=TEST, workers=1)


def test_lossless_links_change_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(SETTINGS, rounds=3)
    linked = run(tmp_path / "links", short)
    close = one_round.close_round
    monkeypatch.setattr(one_round, "close_round", lambda *given: close(*given[:8], None, *given[9:]))
    whole = run(tmp_path / "whole", short)
    assert [ended.model_sha256 for ended in linked.rounds] == [ended.model_sha256 for ended in whole.rounds]
    assert all(ended.link_bytes and ended.left_out == 0 for ended in linked.rounds)
    assert all(ended.link_bytes is None for ended in whole.rounds)


def test_a_lossy_simulation_resumes_to_the_same_models(tmp_path: Path) -> None:
    short = replace(LOSSY, rounds=4, evaluate_every=1)
    whole = run(tmp_path / "whole", short)
    run(tmp_path / "parts", replace(short, rounds=2))
    parts = run(tmp_path / "parts", short)
    assert [ended.model_sha256 for ended in parts.rounds] == [ended.model_sha256 for ended in whole.rounds]
    assert [ended.bytes_down for ended in parts.rounds] == [ended.bytes_down for ended in whole.rounds]
    assert sha256_of_file(tmp_path / "parts/models/4.safetensors") == whole.rounds[-1].model_sha256
    assert all(ended.left_out and 0.05 < ended.left_out < 2 for ended in whole.rounds)
    assert whole.rounds[0].bytes_down == 0
    row = tables_of(whole)["Simulated rounds"][-1]
    assert (row["link, MB"], row["link error, %"]) == (
        (whole.rounds[-1].link_bytes or 0) / 1e6,
        100 * (whole.rounds[-1].left_out or 0),
    )
    with pytest.raises(phonograd.StateError, match="publish_bits` 4, found 1"):
        run(tmp_path / "parts", replace(short, publish_bits=1))


def test_a_round_that_fails_keeps_what_links_left_out(tmp_path: Path) -> None:
    settings = replace(LOSSY, rounds=1)
    run(tmp_path / "run", settings)
    folder = SimulationFolder(tmp_path / "run", ARTIFACTS.path("weights.safetensors"))
    folder.repeat_model(2)
    before, now = folder.model(1), folder.model(2)
    folder.close()
    assert before.residual is not None and now.residual is not None and now.link is not None
    assert now.residual.read_bytes() == before.residual.read_bytes()
    assert not now.link.exists()


def ended_round(number: int, link_bytes: int | None, outcome: str = "closed") -> RoundRecord:
    return msgspec.structs.replace(round_record(number), link_bytes=link_bytes, outcome=outcome)


@pytest.mark.parametrize(
    ("held", "links", "expected"),
    [
        ({}, [], 0),
        ({}, [10, 20], 30),
        ({"a": 1}, [10, 20], 20),
        ({"a": 2}, [10, 20], 0),
        ({"b": 2}, [10, 20], 30),
        ({"a": 1}, [10, None, 20], 100),
        ({"a": 2}, [10, None, 20], 20),
        ({}, [60, 60], 100),
        ({}, [1] * 50, 50),
        ({}, [0] * (ServerSettings().links_kept or 0), 0),
        ({}, [0] * (1 + (ServerSettings().links_kept or 0)), 100),
    ],
)
def test_a_phone_pays_for_links_or_the_model(held: dict[str, int], links: list[int | None], expected: int) -> None:
    rounds = [ended_round(number, nbytes) for number, nbytes in enumerate(links, 1)]
    part = Participation("a", 0, 0, drops_out=False, late=False, duplicate=False)
    assert bytes_down([part], held, rounds, 100) == expected
    assert bytes_down([part, part], held, rounds, 100) == 2 * expected


def test_a_failed_round_costs_nothing_to_follow() -> None:
    part = Participation("a", 0, 0, drops_out=False, late=False, duplicate=False)
    assert bytes_down([part], {}, [ended_round(1, 10), ended_round(2, None, "failed"), ended_round(3, 5)], 100) == 15
