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
    given = {"artifacts": tmp_path, "rehearsal": tmp_path}
    context = Context(1, tmp_path, tmp_path, 1, None, given, lambda *_: None)
    phone = one_node._Phone(context, one_node.Settings(1, 1, 1, {}))
    node = one_node._Node("a", messages, [])
    for on_top, share in ((True, 0.5), (False, 1.0)):
        with pytest.raises(TrainedError):
            phone.measure(node, one_node.Method("rehearsal", share, on_top=on_top))
    assert seen[0] == seen[1] != messages
    assert sorted(seen[0]) == sorted(messages)
    other = dataclasses.replace(node, name="b")
    with pytest.raises(TrainedError):
        phone.measure(other, one_node.Method("rehearsal", 1.0))
    assert seen[2] != seen[0]


@pytest.mark.parametrize(
    ("method", "user_bytes"),
    [
        (one_node.Method("rehearsal", 0.25, text_bytes=40), 10),
        (one_node.Method("rehearsal", 0.25, text_bytes=40, on_top=True), 40),
        (one_node.Method("rehearsal", 1.0, text_bytes=40), 40),
        (one_node.Method("lwf", 0.25, text_bytes=40), 40),
    ],
)
def test_rehearsal_takes_the_place_of_the_users_text(method: one_node.Method, user_bytes: int) -> None:
    assert method.user_bytes == user_bytes


def test_a_text_is_cut_to_its_bytes_between_words() -> None:
    messages = [b"one two", b"three four five"]
    assert one_node._cut(messages, 8) == [b"one two"]
    assert one_node._cut(messages, 20) == [b"one two", b"three four"]
    assert one_node._cut(messages, 100) == messages
