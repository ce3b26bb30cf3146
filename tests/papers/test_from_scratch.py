"""What rows of models from random weights are measured by."""

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

import phonograd
from phonograd.device_runtime.base.errors import TextError
from phonograd.papers.kinds import from_scratch, one_node
from phonograd.papers.kinds.from_scratch import Settings
from phonograd.papers.run import Context
from phonograd.simulation.quality import Quality
from phonograd.simulation.records import SimulationRecord
from tests.papers.finished import evaluation, record
from tests.support.artifacts import exported

MODEL = phonograd.LanguageModelConfig("lstm", vocabulary=5, embedding=4, hidden=4, layers=1)


def settings(**changed: Any) -> Settings:
    return Settings(MODEL, 100, {"a": from_scratch.Run()}, **changed)


def with_quality(*measured: tuple[float, float]) -> SimulationRecord:
    """Rounds that were all measured: (general perplexity, perplexity of a client that never trains)."""
    rounds = tuple(
        msgspec.structs.replace(ended, quality=Quality(evaluation(general), (evaluation(client),)))
        for ended, (general, client) in zip(record(len(measured)).rounds, measured, strict=True)
    )
    return msgspec.structs.replace(record(), rounds=rounds)


def test_the_chosen_model_is_best_on_clients_that_never_train_and_measured_on_the_test() -> None:
    found = with_quality((50.0, 9.0), (70.0, 5.0), (40.0, 8.0))
    figures, units = from_scratch._figures(found, settings(chosen=True, target=60.0))
    assert (figures["perplexity"], figures["best round"]) == (pytest.approx(70), 2.0)
    assert figures["rounds to the target"] == 1.0
    assert units == {}
    never, _ = from_scratch._figures(found, settings(chosen=True, target=30.0))
    assert never["rounds to the target"] == 4.0  # of three rounds; all seeds must have the figure


def test_otherwise_a_row_is_the_mean_of_the_last_five_evaluations() -> None:
    found = with_quality((1000.0, 3.0), *((10.0, 3.0), (40.0, 3.0)) * 2, (20.0, 3.0))
    figures, units = from_scratch._figures(found, settings())
    assert figures["perplexity"] == pytest.approx(20)
    assert units["perplexity"] == [pytest.approx(3)]


def test_a_model_without_any_test_is_refused() -> None:
    found = record(2)
    bare = tuple(msgspec.structs.replace(ended, quality=Quality(None, ())) for ended in found.rounds)
    with pytest.raises(TextError, match="a test expected"):
        from_scratch._figures(msgspec.structs.replace(found, rounds=bare), settings())


def test_a_bigram_suggests_what_most_often_follows(tmp_path: Path) -> None:
    artifacts = exported(MODEL, phonograd.TrainingConfig(minibatch=1, bptt=2))
    one, two, *_ = phonograd.Vocabulary.load(artifacts.path("vocab.txt")).words[2:]
    line = b" ".join((one, two, one, two, one))
    users = {name: [line, b"never seen"] for name in "abc"}
    simulation = phonograd.SimulationSettings(test_users=1, text_bytes=1000)
    figures, units = from_scratch._of_bigram(artifacts, users, simulation)
    # All five known words are right, the first one too, after the end of a message; the two unknown ones are misses.
    assert figures["top-1, %"] == pytest.approx(500 / 7)
    assert units["top-1, %"] == [pytest.approx(500 / 7)]


def test_clients_are_dealt_or_cut(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("".join(f"message {number}\n" for number in range(8)))
    context = Context(1, tmp_path, tmp_path, 1, None, {"users": tmp_path}, lambda *_: None)
    dealt = from_scratch._clients(settings(clients=2), text, context)
    assert dealt["client-00000"][:2] == [b"message 0", b"message 2"]
    few = msgspec.structs.replace(settings(clients=4, contiguous=True), shard_bytes=20)
    assert from_scratch._clients(few, text, context)["client-00001"] == [b"message 2", b"message 3"]
    with pytest.raises(TextError, match="too short for so many clients"):
        from_scratch._clients(msgspec.structs.replace(few, clients=5), text, context)
    assert list(from_scratch._clients(settings(), text, context)) == ["text"]  # users that are given


def test_every_method_trains_on_shuffled_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rehearsal shuffles; were the user's text alone in order, the comparison would be of orders too."""
    seen: list[list[bytes]] = []

    class TrainedError(Exception):
        pass

    def train(_: object, messages: list[bytes], *__: object, **___: object) -> None:
        seen.append(messages)
        raise TrainedError

    monkeypatch.setattr(phonograd, "train", train)
    messages = [b"%d" % number for number in range(20)]
    context = Context(1, tmp_path, tmp_path, 1, None, {"artifacts": tmp_path}, lambda *_: None)
    phone = one_node._Phone(context, one_node.Settings(1, 1, 1, {}), tmp_path, tmp_path)
    node = one_node._Node("a", messages, [])
    for share in (0.5, 1.0):
        with pytest.raises(TrainedError):
            phone.measure(node, one_node.Method("rehearsal", share))
    assert seen[0] == seen[1] != messages
    assert sorted(seen[0]) == sorted(messages)
    other = dataclasses.replace(node, name="b")
    with pytest.raises(TrainedError):
        phone.measure(other, one_node.Method("rehearsal", 1.0))
    assert seen[2] != seen[0]
