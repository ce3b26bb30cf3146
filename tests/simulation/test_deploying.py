"""Several rounds from one model, in a simulation and by a server."""

import json
from pathlib import Path

from msgspec.structs import replace

import phonograd
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.manifest import WEIGHTS
from phonograd.simulation.users import text_slice
from tests.simulation.test_simulation import ARTIFACTS, GENERAL, SETTINGS, USERS, encoded_users, models, run
from tests.support.command_line import Run


def test_phones_of_a_server_that_deploys_every_third_model(tmp_path: Path) -> None:
    """Phones follow, without downloads in between; a simulation, resumed, has the same models and bytes."""
    settings = replace(
        SETTINGS,
        rounds=6,
        clients_per_round=1,
        deploy_every=3,
        publish="top-rows",
        publish_rows=5,
        test_users=0,
        strategy=phonograd.StrategySettings(server_optimizer="momentum"),
    )
    only = {"user-0": USERS["user-0"]}
    for rounds in (5, 6):
        settings = replace(settings, rounds=rounds)
        simulated = phonograd.simulate(ARTIFACTS, only, tmp_path / "run", settings, rehearsal=GENERAL, workers=1)
    rules = phonograd.RoundRules(clients_per_round=1, deploy_every=3, publish="top-rows", publish_rows=5)
    model, update, received, bases = tmp_path / "model", tmp_path / "update", [], []
    with phonograd.start_server(
        ARTIFACTS, tmp_path / "state", phonograd.ServerSettings(port=0, rules=rules, strategy=settings.strategy)
    ) as server:
        for number in range(1, 7):
            received.append(
                phonograd.pull(server.admin, model, model if number > 1 else ARTIFACTS.path(WEIGHTS)).received
            )
            bases.append(sha256_of_file(model))
            messages, _ = text_slice(encoded_users()["user-0"], settings.text_bytes, number - 1)
            phone = phonograd.TrainSettings(weights=model, phone="user-0", round_number=number, codec=settings.codec)
            phonograd.train(ARTIFACTS, messages, phone, rehearsal=GENERAL, update=update)
            assert phonograd.upload(server.admin, update, "user-0").round_closed
        served = [entry["model_sha256"] for entry in phonograd.report(server.admin)["rounds"][:6]]
    assert models(simulated) == served
    assert bases == [ARTIFACTS.weights_sha256] * 3 + [served[2]] * 3
    assert (
        received == [ended.bytes_down for ended in simulated.rounds] == [0, 0, 0, simulated.rounds[2].link_bytes, 0, 0]
    )


def test_a_failed_round_deploys_nothing(tmp_path: Path) -> None:
    """Rounds fail before the first model that phones get, and after it; phones keep the model that they have."""
    settings = replace(SETTINGS, clients_per_round=1, drop_outs=0.4, seed=21, deploy_every=2)
    for rounds in (5, 8):  # resumed after a failed round
        ended = run(tmp_path / "run", replace(settings, rounds=rounds)).rounds
    assert "".join(one.outcome[0] for one in ended) == "fccffccc"
    assert [one.number for one in ended if one.deployed] == [3, 7]
    bases = [ARTIFACTS.weights_sha256] * 3 + [ended[2].model_sha256] * 4 + [ended[6].model_sha256]
    assert [one.base_sha256 for one in ended] == bases


def test_the_command_says_what_its_table_does_not_show(tmp_path: Path, phono: Run) -> None:
    lines = [json.dumps({"user": user, "text": text}) for user, messages in USERS.items() for text in messages]
    (tmp_path / "users.jsonl").write_text("\n".join(lines))
    common = ["simulate", ARTIFACTS.folder, "--users", tmp_path / "users.jsonl", "--workers", 1, "--seed", 21]
    common += ["--clients-per-round", 1, "--out", tmp_path / "out", "--set", "evaluation.test_users=2"]
    common += ["--set", "training.text_bytes=150", "--set", "failures.drop_outs=0.4"]
    never, have = (
        "phones never got a model: the next",
        "phones have the model of round 3: the next one comes after 2 rounds",
    )
    for rounds, expected in ((1, "warning: 1 of 1 rounds failed"), (2, never), (3, ""), (6, have)):
        told = phono(*common, "--set", "rounds.deploy_every=2", "--rounds", rounds).err
        assert expected in told and ("phones" in told) == (rounds in (2, 6))
    other = phono(*common, "--rounds", 8).err
    assert "rounds.deploy_every 2, found 1; use another folder; serve takes another" in other
