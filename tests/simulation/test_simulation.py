"""A simulation is what the same phones do through a server, however it is run or interrupted."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

import phonograd
from examples.own_strategy import LargestCluster
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.training.round import Round, RoundSettings, Trained
from phonograd.device_runtime.update.links import LinkCodec
from phonograd.pages import to_words
from phonograd.server_agg.aggregation.strategy import ClientUpdate
from phonograd.server_agg.transfer.closing import transfer as train_student
from phonograd.simulation.folder import read_record
from phonograd.simulation.quality import spread
from phonograd.simulation.records import RoundRecord, tables_of
from phonograd.simulation.schedule import Participation, schedule
from phonograd.simulation.simulator import Simulation, Texts
from phonograd.simulation.users import text_slice
from tests.server_agg.trained_weights import stored
from tests.support.artifacts import exported
from tests.support.command_line import Run

MODEL = phonograd.LanguageModelConfig("lstm", vocabulary=20, embedding=8, hidden=8, layers=1)
TRAINING = phonograd.TrainingConfig(minibatch=2, bptt=5, dropout=0.2)
GENERAL = [f"w{number % 17} w{number % 5} w{number % 7} w{number % 3}" for number in range(200)]
USERS = {
    f"user-{user}": [f"w{(user + line) % 6} w{user} w{(user * line) % 4}" for line in range(30)] for user in range(9)
} | {"brief": ["w1"]}
SETTINGS = phonograd.SimulationSettings(rounds=3, clients_per_round=4, text_bytes=150, test_users=2, seed=5)
ARTIFACTS = exported(MODEL, TRAINING)


def run(
    out: Path, settings: phonograd.SimulationSettings = SETTINGS, workers: int = 1, **more: Any
) -> phonograd.SimulationRecord:
    texts = {"rehearsal": GENERAL, "general_test": GENERAL[:50]}
    return phonograd.simulate(ARTIFACTS, USERS, out, settings, **texts, workers=workers, **more)


def models(record: phonograd.SimulationRecord) -> list[str]:
    return [ended.model_sha256 for ended in record.rounds]


def comparable(record: phonograd.SimulationRecord) -> list[RoundRecord]:
    return [msgspec.structs.replace(ended, seconds=0, train_seconds=0) for ended in record.rounds]


STRATEGIES = (
    phonograd.StrategySettings(),
    phonograd.StrategySettings(strategy="fedatt", server_optimizer="momentum"),
    phonograd.StrategySettings(strategy="fedsgd", server_lr=2.0),
    phonograd.own_strategy(LargestCluster, similarity=0.1),
)


@pytest.mark.parametrize(
    ("strategy", "drawn", "publish"),
    list(zip(STRATEGIES, (None, 6, 6, None), ("rows-f32", "top-rows", "rows-f32", "top-rows"), strict=True)),
    ids=lambda value: getattr(value, "strategy", str(value)),
)
def test_a_server_makes_the_same_models(
    tmp_path: Path, strategy: phonograd.StrategySettings, drawn: int | None, publish: LinkCodec
) -> None:
    steps: Literal[1] | None = 1 if strategy.strategy == "fedsgd" else None
    settings = replace(
        SETTINGS, rounds=2, strategy=strategy, output_sample=drawn, codec="rot-q4", steps=steps, publish=publish
    )
    simulated = run(tmp_path / "simulated", settings)
    rules = phonograd.RoundRules(clients_per_round=settings.clients_per_round, publish=publish)
    server_settings = phonograd.ServerSettings(port=0, rules=rules, strategy=strategy)
    with Simulation(ARTIFACTS, Texts(encoded_users(), [b"-"], []), settings, tmp_path / "population", 1) as unused:
        population = unused.population
    served, received = [], []
    with phonograd.start_server(ARTIFACTS, tmp_path / "state", server_settings) as server:
        for number, parts in zip((1, 2), schedule(settings, sorted(population.training)), strict=False):
            base = ARTIFACTS.path(WEIGHTS) if number == 1 else tmp_path / f"{number - 1}.safetensors"
            received.append(phonograd.pull(server.admin, tmp_path / f"{number}.safetensors", base).received)
            for part in parts:
                messages, _ = text_slice(population.training[part.user], settings.text_bytes, part.earlier)
                phone = phonograd.TrainSettings(
                    weights=tmp_path / f"{number}.safetensors",
                    phone=part.user,
                    round_number=number,
                    codec=settings.codec,
                    output_sample=drawn,
                    steps=steps,
                    sample_seed=part.sample_seed if drawn else None,
                )
                phonograd.train(ARTIFACTS, messages, phone, rehearsal=GENERAL, update=tmp_path / "update")
                phonograd.upload(server.admin, tmp_path / "update", part.user)
            while server.current.round == number:
                time.sleep(0.01)
            served.append(server.current.base_sha256)
    assert models(simulated) == served
    assert [ended.accepted for ended in simulated.rounds] == [4, 4]
    first = simulated.rounds[0]
    assert received == [0, first.link_bytes or (tmp_path / "2.safetensors").stat().st_size]
    assert (first.left_out == 0) == (publish == "rows-f32")


def encoded_users() -> dict[str, list[bytes]]:
    return {user: [message.encode() for message in messages] for user, messages in USERS.items()}


DISTILLING = exported(MODEL, TRAINING, distill=True)
TRANSFER = replace(
    SETTINGS,
    rounds=2,
    strategy=phonograd.StrategySettings(strategy="transfer"),
    transfer=phonograd.TransferSettings(transfer_tokens=120, transfer_cycles=2),
)


def run_transfer(out: Path, settings: phonograd.SimulationSettings = TRANSFER, **more: Any) -> list[str]:
    record = phonograd.simulate(DISTILLING, USERS, out, settings, rehearsal=GENERAL, workers=1, **more)
    return models(record)


def test_a_round_of_transfer_learning_makes_the_servers_student(tmp_path: Path) -> None:
    text = tmp_path / "general.txt"
    text.write_text("\n".join(GENERAL))
    transfer = replace(TRANSFER.transfer, general=str(text))
    settings = replace(TRANSFER, rounds=1, transfer=transfer)
    simulated = run_transfer(tmp_path / "simulated", settings)
    with Simulation(DISTILLING, Texts(encoded_users(), [b"-"], []), settings, tmp_path / "population", 1) as unused:
        population = unused.population
    updates = []
    for part in next(schedule(settings, sorted(population.training))):
        messages, _ = text_slice(population.training[part.user], settings.text_bytes, part.earlier)
        path = tmp_path / part.user
        phone = phonograd.TrainSettings(phone=part.user)
        phonograd.train(DISTILLING, messages, phone, rehearsal=GENERAL, update=path)
        updates.append(
            ClientUpdate(sha256_of_file(path), 1, {}, functools.partial(stored, path, DISTILLING.path(WEIGHTS)))
        )
    written = train_student(
        DISTILLING,
        DISTILLING.path(WEIGHTS),
        updates,
        transfer,
        [message.encode() for message in GENERAL],
        tmp_path / "work",
        tmp_path / "model",
        {"round": "1", "parent_sha256": DISTILLING.weights_sha256},
    )
    assert simulated == [written.sha256]
    assert not (tmp_path / "simulated" / "transfer").exists()


def test_transfer_learning_resumes_and_needs_its_graph(tmp_path: Path) -> None:
    whole = run_transfer(tmp_path / "whole")
    asked = iter([0] * 25 + [signal.SIGTERM])
    with pytest.raises(phonograd.StoppedError):
        run_transfer(tmp_path / "stopped", stop=lambda: next(asked))
    assert (tmp_path / "stopped" / "transfer").exists()
    assert run_transfer(tmp_path / "stopped") == whole
    more = replace(TRANSFER.transfer, transfer_epochs=2)
    with pytest.raises(phonograd.StateError, match="transfer_epochs 1, found 2"):
        run_transfer(tmp_path / "whole", replace(TRANSFER, transfer=more))
    with pytest.raises(phonograd.ArtifactsError, match="--distill"):
        phonograd.simulate(ARTIFACTS, USERS, tmp_path / "older", TRANSFER)


def test_an_interrupted_simulation_resumes_to_the_same_models(tmp_path: Path) -> None:
    settings = replace(SETTINGS, late_phones=0.4, late="next")
    whole = run(tmp_path / "whole", settings)
    asked: list[int] = []

    def stop() -> int:
        asked.append(1)
        return signal.SIGTERM if len(asked) == 6 else 0

    with pytest.raises(phonograd.StoppedError, match="interrupted in round 2; run the same command to resume"):
        phonograd.simulate(
            ARTIFACTS,
            USERS,
            tmp_path / "cut",
            settings,
            rehearsal=GENERAL,
            general_test=GENERAL[:50],
            stop=stop,
            workers=1,
        )
    assert len(read_record(tmp_path / "cut").rounds) == 1
    assert comparable(run(tmp_path / "cut", settings)) == comparable(whole)
    assert comparable(run(tmp_path / "cut", settings)) == comparable(whole)  # nothing is left to do


def test_more_rounds_continue_a_simulation_and_other_settings_are_refused(tmp_path: Path) -> None:
    run(tmp_path / "a", replace(SETTINGS, rounds=1))
    assert models(run(tmp_path / "a")) == models(run(tmp_path / "b"))
    path = tmp_path / "a/simulation.json"
    document = json.loads(path.read_bytes())
    del document["job"]["evaluate_last"]  # of a version without this setting: it had its default
    path.write_text(json.dumps(document))
    with pytest.raises(phonograd.StateError, match=r"holds a simulation with `codec` rows-f32, found top-rows"):
        run(tmp_path / "a", replace(SETTINGS, codec="top-rows"))
    (tmp_path / "a/models/3.safetensors").write_bytes(b"damaged")
    with pytest.raises(phonograd.StateError, match=r"3\.safetensors: SHA-256 \w+… expected, found"):
        run(tmp_path / "a", replace(SETTINGS, rounds=4))


def test_a_user_goes_on_where_its_last_round_ended() -> None:
    rounds = [parts for _, parts in zip(range(6), schedule(SETTINGS, sorted(USERS)), strict=False)]
    seen: list[str] = []
    for parts in rounds:
        assert [part.earlier for part in parts] == [seen.count(part.user) for part in parts]
        seen += [part.user for part in parts]
    assert len({part.sample_seed for parts in rounds for part in parts}) == len(seen)


def test_a_late_update_moves_to_the_next_rounds_model(tmp_path: Path) -> None:
    settings = replace(SETTINGS, rounds=3, clients_per_round=7, late_phones=0.5, late="next")
    simulated = run(tmp_path / "run", settings)
    with Simulation(ARTIFACTS, Texts(encoded_users(), [], []), settings, tmp_path / "population", 1) as unused:
        users = sorted(unused.population.training)
    parts = [parts for _, parts in zip(range(3), schedule(settings, users), strict=False)]
    late = {part.user for part in parts[1] if part.late}
    in_time = {part.user for part in parts[2] if not part.late}
    assert late - in_time, "no late update is alone in round 3: choose another seed"
    by_hand = [*late, *(in_time - late)]
    assert (simulated.rounds[2].accepted, simulated.rounds[2].refused) == (len(by_hand), len(late & in_time))
    run(tmp_path / "one", replace(settings, rounds=1))
    one, two = tmp_path / "one/models/1.safetensors", tmp_path / "run/models/2.safetensors"
    with TensorFile(one) as first, TensorFile(two) as second:
        moved = {name: np.zeros(spec.shape) for name, spec in second.specs.items()}
        tokens = 0
        for user in by_hand:
            number, base = (2, first) if user in late else (3, second)
            weights, weight = trained_in(tmp_path / user, settings, parts[number - 1], number, user, base.path)
            tokens += weight
            for name in moved:
                moved[name] += weight * (weights[name].astype(np.float64) - base.read(name))
        with TensorFile(tmp_path / "run/models/3.safetensors") as third:
            for name, total in moved.items():
                np.testing.assert_allclose(third.read(name), second.read(name) + total / tokens, rtol=1e-5, atol=1e-6)


def trained_in(
    out: Path,
    settings: phonograd.SimulationSettings,
    parts: Sequence[Participation],
    number: int,
    user: str,
    base: Path,
) -> tuple[dict[str, np.ndarray], int]:
    """What a user's phone trained in a round, and the tokens."""
    part = next(part for part in parts if part.user == user)
    messages, _ = text_slice(encoded_users()[user], settings.text_bytes, part.earlier)
    settings = phonograd.TrainSettings(weights=base, phone=user, round_number=number)
    trained = phonograd.train(ARTIFACTS, messages, settings, rehearsal=GENERAL, out=out)
    with TensorFile(out) as file:
        return {name: file.read(name) for name in file.specs}, trained.report.tokens


def test_each_phone_is_counted(tmp_path: Path) -> None:
    gone = run(tmp_path / "gone", replace(SETTINGS, drop_outs=1.0))
    assert [(ended.outcome, ended.accepted, ended.drop_outs, ended.bytes_up) for ended in gone.rounds] == [
        ("failed", 0, 4, 0)
    ] * 3
    assert models(gone) == [ARTIFACTS.weights_sha256] * 3
    assert (gone.users.training, gone.users.testing, gone.users.left_out) == (7, 2, 1)
    once, twice = run(tmp_path / "once"), run(tmp_path / "twice", replace(SETTINGS, duplicates=1.0))
    assert models(once) == models(twice)
    for single, double in zip(once.rounds, twice.rounds, strict=True):
        assert (double.accepted, double.repeated, double.bytes_up) == (4, 4, 2 * single.bytes_up)
    assert once.rounds[0].bytes_down == 0  # every phone has the first model
    dropped = run(tmp_path / "dropped", replace(SETTINGS, late_phones=1.0))
    assert [(ended.accepted, ended.late, ended.refused) for ended in dropped.rounds] == [
        (0, 4, 0),
        (4, 4, 0),  # the model is the one that they were made from
        (0, 4, 4),
    ]
    moved = run(tmp_path / "moved", replace(SETTINGS, late_phones=1.0, late="next"))
    assert [(ended.accepted, ended.refused) for ended in moved.rounds] == [(0, 0), (4, 0), (4, 0)]


def test_quality_is_what_eval_measures(tmp_path: Path) -> None:
    settings, text = replace(SETTINGS, kss=True, evaluate_every=2), [*GENERAL[:50], "w1 nonsense w2"]
    users = {user: ["nonsense", *messages] for user, messages in USERS.items()}
    heard: list[str] = []
    told = {"general_test": text, "progress": lambda *at: heard.append(at[-1])}
    record = phonograd.simulate(ARTIFACTS, users, tmp_path / "run", settings, workers=1, **told)
    assert [ended.quality is None for ended in record.rounds] == [True, False, False]
    evaluation = phonograd.evaluate(ARTIFACTS, text, weights=tmp_path / "run/models/3.safetensors", kss=True)
    quality = record.rounds[-1].quality
    assert quality is not None
    assert quality.general is not None
    found = quality.general
    assert found == evaluation
    assert found.perplexity_with_unknown != found.perplexity
    users = spread(quality.users, "perplexity")
    with_unknown = spread(quality.users, "perplexity_with_unknown")
    assert users is not None and with_unknown is not None
    tables = tables_of(record)
    row = tables["New users"][-1]
    figure = {"perplexity": users.pooled, "perplexity_error": users.error}
    assert (row["perplexity"], row["p10"]) == (to_words(figure)["perplexity"], users.p10)
    assert tables["General text"][-1]["perplexity with unknown words"] == found.perplexity_with_unknown
    assert row["perplexity with unknown words"] == with_unknown.pooled != users.pooled
    assert re.fullmatch(r"general [\d.]+ \([\d.]+ with <unk>\), users [\d.]+ ± [\d.]+", heard[-1])


def test_the_last_rounds_are_all_evaluated(tmp_path: Path) -> None:
    record = run(tmp_path / "run", replace(SETTINGS, rounds=4, evaluate_every=100, evaluate_last=2))
    assert [ended.quality is not None for ended in record.rounds] == [False, False, True, True]


def test_divergence_ends_a_simulation_with_the_last_good_model(tmp_path: Path) -> None:
    with pytest.raises(phonograd.TrainingError, match=r"round 1.*training diverged.*last good model is .*weights"):
        run(tmp_path / "run", replace(SETTINGS, learning_rate=1e30))
    assert read_record(tmp_path / "run").rounds == ()


def test_weights_that_the_last_step_made_infinite_are_divergence_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Round):
        def __init__(self, settings: RoundSettings):
            super().__init__(settings)
            self._refused = settings.update is not None and settings.update.name == "1.safetensors"

        def train(self, *callbacks: Any) -> Trained:
            if self._refused:
                raise phonograd.TrainingError("trained weights: tensor lstm.bias: element 3 is not finite")
            return super().train(*callbacks)

    monkeypatch.setattr("phonograd.simulation.phone.Round", Refusing)
    (ended,) = run(tmp_path / "run", replace(SETTINGS, rounds=1)).rounds
    assert (ended.diverged, ended.accepted) == (1, SETTINGS.clients_per_round - 1)


@pytest.mark.long
def test_a_private_strategy_samples_its_phones_and_spends_epsilon(tmp_path: Path) -> None:
    strategy = phonograd.StrategySettings(strategy="dp-fedavg", sampling=0.5, noise_multiplier=1.0, delta=1e-3)
    settings = replace(SETTINGS, rounds=2, seed=6, strategy=strategy)
    record = run(tmp_path / "run", settings)
    spent = [ended.epsilon for ended in record.rounds]
    assert spent == sorted({epsilon for epsilon in spent if epsilon is not None})
    assert [ended.phones for ended in record.rounds] != [SETTINGS.clients_per_round] * 2
    assert models(record) == models(run(tmp_path / "again", settings))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"user": "a", "text": "w1"}', "oops"], r"line 2: not JSON"),
        (['{"user": "a", "text": "w1"}', "", '{"user": "a"}'], r"line 3: text: missing"),
        (['{"user": "a", "text": 7}'], r"line 1: text: expected a string, found 7"),
        (['{"user": "a", "text": " "}'], "no user with text"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, lines: Sequence[str], message: str) -> None:
    path = tmp_path / "users.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(phonograd.TextError, match=message):
        phonograd.simulate(ARTIFACTS, path, tmp_path / "out", SETTINGS)


def test_a_folder_of_texts_is_as_good_as_lines(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for user, messages in USERS.items():
        (tmp_path / "texts" / f"{user}.txt").write_text("\n".join(messages))
    with (tmp_path / "users.jsonl").open("w") as file:
        for user, messages in USERS.items():
            file.writelines(json.dumps({"user": user, "text": message, "at": 1}) + "\n" for message in messages)
    settings = replace(SETTINGS, rounds=1)
    by_folder = phonograd.simulate(ARTIFACTS, tmp_path / "texts", tmp_path / "1", settings, workers=1)
    by_lines = phonograd.simulate(ARTIFACTS, tmp_path / "users.jsonl", tmp_path / "2", settings, workers=1)
    assert models(by_folder) == models(by_lines)


def test_nobody_with_enough_text_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(phonograd.TextError, match=r"none left to train, 10 users, 9 with 5 tokens or more, 9 kept"):
        run(tmp_path / "run", replace(SETTINGS, test_users=50))


def test_a_text_that_ends_begins_again() -> None:
    messages = [b"one", b"two", b"three"]
    assert text_slice(messages, 5, 0) == ([b"one", b"two"], False)
    assert text_slice(messages, 5, 1) == ([b"three"], False)
    assert text_slice(messages, 5, 2) == ([b"one", b"two"], True)
    assert text_slice(messages, 100, 0) == (messages, False)
    assert text_slice(messages, 100, 3) == (messages, True)


def test_bytes_without_words_are_not_enough_to_train_on(tmp_path: Path) -> None:
    pasted = [b"x" * 500, b"one two", b"three", b"four"]
    assert text_slice(pasted, 100, 0, least_tokens=5) == (pasted[:2], False)
    assert text_slice(pasted, 100, 1, least_tokens=5) == ([b"three", b"four", b"x" * 500], True)
    assert text_slice(pasted, 100, 0, least_tokens=50) == (pasted, False)
    users = {user: ["x" * 500, *messages] for user, messages in USERS.items()}
    found = phonograd.simulate(ARTIFACTS, users, tmp_path / "run", replace(SETTINGS, rounds=1), workers=1)
    assert found.rounds[0].accepted == SETTINGS.clients_per_round


@pytest.mark.long
def test_a_killed_simulation_loses_at_most_its_round(tmp_path: Path) -> None:
    settings = replace(SETTINGS, rounds=6, late_phones=0.3, late="next")
    whole = run(tmp_path / "whole", settings)
    (tmp_path / "texts").mkdir()
    for user, messages in USERS.items():
        (tmp_path / "texts" / f"{user}.txt").write_text("\n".join(messages))
    for name, part in (("rehearsal", GENERAL), ("test", GENERAL[:50])):
        (tmp_path / name).write_text("\n".join(part))
    command = [
        *(sys.executable, "-m", "phonograd", "simulate", str(ARTIFACTS.folder), "--users", str(tmp_path / "texts")),
        *("--out", str(tmp_path / "killed"), "--rounds", "6", "--clients-per-round", "4", "--seed", "5"),
        *("--set", "training.text_bytes=150", "--set", "evaluation.test_users=2", "--workers", "2"),
        *("--set", "failures.late_phones=0.3", "--set", "rounds.late=next"),
        *("--rehearsal", str(tmp_path / "rehearsal"), "--general-test", str(tmp_path / "test"), "--json"),
    ]
    for rounds in (1, 3, 4):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, process_group=0) as process:
            while process.poll() is None and len(rounds_of(tmp_path / "killed")) < rounds:
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGKILL)
    done = subprocess.run(command, check=True, capture_output=True)
    document = json.loads(done.stdout)
    assert [ended["model_sha256"] for ended in document["rounds"]] == models(whole)


def rounds_of(folder: Path) -> Sequence[object]:
    return read_record(folder).rounds if (folder / "simulation.json").exists() else ()


def test_the_command_writes_a_table_json_and_a_page(tmp_path: Path, phono: Run) -> None:
    lines = [json.dumps({"user": user, "text": text}) for user, messages in USERS.items() for text in messages]
    (tmp_path / "users.jsonl").write_text("\n".join(lines))
    common = ["simulate", ARTIFACTS.folder, "--users", tmp_path / "users.jsonl", "--rounds", 2, "--workers", 1]
    common += ["--set", "evaluation.test_users=2", "--set", "training.text_bytes=150"]
    said = phono(*common, "--out", tmp_path / "mean")
    assert said.code == 0
    assert "only 7 users train" in said.err
    assert "New users" in said.out
    page = ["--page", tmp_path / "page.html", "--compare", tmp_path / "mean"]
    document = phono(*common, "--out", tmp_path / "median", "--strategy", "median", "--json", *page).document
    assert document == json.loads((tmp_path / "median/simulation.json").read_bytes())
    assert document["job"]["strategy.strategy"] == "median"
    assert document["config"]["evaluation"]["test_users"] == 2
    text = (tmp_path / "page.html").read_text()
    assert text.count("<svg") == 4
    assert ">mean<" in text and ">median<" in text
    # No option of the run has effect on bits without being part of its job.
    other = phono(*common, "--out", tmp_path / "mean", "--strategy", "median")
    assert (other.code, "strategy.strategy fedavg, found median" in other.err) == (17, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "--set failures.drop_outs=0.6 --set failures.late_phones=0.6",
            "late_phones is 0.6, expected at most 1 - fail",
        ),
        ("--compare x", "--compare needs --page"),
        ("--strategy fedsgd", "training.steps is none, expected 1: fedsgd averages single steps"),
        ("--set training.user_share=0.5", "training.user_share: expected with rehearsal"),
        ("--set rounds.late=next", "rounds.late: expected with failures.late_phones"),
        ("--set rounds.masked=true --codec rot-q1", "--codec: expected without rounds.masked"),
        ("--set rounds.masked=true --set strategy.weighting=tokens", "weighting: expected without rounds.masked"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, phono: Run, options: str, message: str) -> None:
    found = phono("simulate", "art", "--users", "users", "--out", tmp_path, *options.split())
    assert (found.code, message in found.err) == (2, True)
