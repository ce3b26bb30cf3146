"""`--codec MODULE:CLASS` on the command line: a phone's part and a simulation."""

from pathlib import Path

import pytest

import phonograd
from phonograd.device_runtime.update.own_codec import OWN
from tests.support.command_line import Outcome, Run, Workplace

NAME = "examples.own_codec:Ternary"
FAULTY = "tests.support.own_codecs:Faulty"


@pytest.fixture
def users(tmp_path: Path, workplace: Workplace) -> Path:
    folder = tmp_path / "users"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_bytes(workplace.user.read_bytes() + name.encode())
    return folder


def simulated(phono: Run, workplace: Workplace, users: Path, out: Path, *line: object, workers: int = 1) -> Outcome:
    line = ("simulate", workplace.artifacts, "--users", users, "--out", out, "--rounds", 1, "--json", *line)
    return phono(*line, "--clients-per-round", 2, "--test-users", 0, "--workers", workers)


def test_phones_and_a_server_make_the_model_of_a_simulation(
    phono: Run, workplace: Workplace, users: Path, tmp_path: Path
) -> None:
    codec = ("--codec", NAME, "--deviations", 3)
    rules = phonograd.RoundRules(clients_per_round=2)
    settings = phonograd.ServerSettings(port=0, rules=rules, codecs=(NAME,))
    nbytes = 0
    with phonograd.start_server(workplace.artifacts, tmp_path / "state", settings) as server:
        for name in ("a", "b"):
            line = ("train", workplace.artifacts, "--user", users / f"{name}.txt", "--phone", name, "--json")
            done = phono(*line, "--server", server.url, "--model-cache", tmp_path / name, *codec)
            update = done.document["update"]
            assert update["codec"] == NAME
            assert update["nbytes"] == done.document["receipt"]["bytes"]
            nbytes += update["nbytes"]
        model = done.document["receipt"]["model_sha256"]
        [made, _] = phonograd.report(server.admin)["rounds"]
    for workers in (1, 2):
        done = simulated(phono, workplace, users, tmp_path / f"out-{workers}", *codec, workers=workers)
        [ended] = done.document["rounds"]
        assert (ended["model_sha256"], ended["bytes_up"]) == (model, nbytes)
        assert done.document["job"]["codec"] == f'{NAME} {{"deviations": 3.0}}'
    assert made["codecs"] == {NAME: {"updates": 2, "bytes": nbytes}}
    assert made["model_ratio"] == made["base_bytes"] / (nbytes / 2) > 5
    full = simulated(phono, workplace, users, tmp_path / "full", "--codec", "full-f32")
    assert full.document["rounds"][0]["bytes_up"] > 5 * nbytes
    assert full.document["rounds"][0]["model_sha256"] != model


def test_a_server_that_does_not_take_it_is_not_trained_for(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    settings = phonograd.ServerSettings(port=0)
    with phonograd.start_server(workplace.artifacts, tmp_path / "state", settings) as server:
        line = ("train", workplace.artifacts, "--user", workplace.user, "--server", server.url, "--phone", "a")
        refused = phono(*line, "--codec", NAME)
    assert (refused.code, f"--codec {NAME}: {server.url} takes full-f32" in refused.err) == (2, True), refused.err


def test_the_settings_are_options(phono: Run, workplace: Workplace, users: Path, tmp_path: Path) -> None:
    for command in ("train", "simulate"):
        shown = phono(command, "--codec", NAME, "--help").out
        assert f"Codec {NAME}" in shown
        assert "Largest change, in standard deviations." in shown
        assert "--deviations" not in phono(command, "--help").out
    assert "--deviations" not in phono("serve", "--codec", NAME, "--help").out  # they come with the updates
    refused = simulated(phono, workplace, users, tmp_path / "out", "--codec", NAME, "--deviations", -1)
    assert (refused.code, "deviations is -1.0" in refused.err) == (2, True), refused.err
    refused = phono("serve", "--artifacts", workplace.artifacts, "--state", tmp_path / "s", "--codec", "no:Mine")
    assert (refused.code, "cannot be imported: ModuleNotFoundError" in refused.err) == (2, True), refused.err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(("fault", "expected"), [("encode", "encode: KeyError"), ("raises", "decode: RuntimeError")])
def test_one_that_fails_ends_a_simulation(
    fault: str, expected: str, phono: Run, workplace: Workplace, users: Path, tmp_path: Path
) -> None:
    failed = simulated(phono, workplace, users, tmp_path / "out", "--codec", FAULTY, "--fault", fault)
    assert (failed.code, f"{FAULTY}: {expected}" in failed.err) == (32, True), failed.err


def test_one_that_cannot_encode_leaves_no_update(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    line = ("train", workplace.artifacts, "--user", workplace.user, "--update", tmp_path / "update")
    failed = phono(*line, "--codec", FAULTY, "--fault", "encode")
    assert (failed.code, (tmp_path / "update").exists()) == (32, False), failed.err
    assert phono(*line, "--codec", FAULTY).code == 0
    assert phonograd.read_update(tmp_path / "update").codec == FAULTY


def test_a_server_takes_several(
    phono: Run, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[phonograd.ServerSettings] = []
    monkeypatch.setattr(
        "phonograd.api.serving.serve", lambda artifacts, state, settings, ready: started.append(settings)
    )
    line = ("serve", "--artifacts", workplace.artifacts, "--state", tmp_path / "state")
    assert phono(*line, "--codec", NAME, f"--codec={FAULTY}").code == 0
    assert phono(*line).code == 0
    assert [settings.codecs for settings in started] == [(NAME, FAULTY), ()]
    refused = phono(*line, "--codec", NAME, "--masked")
    assert (refused.code, "--codec" in refused.err) == (2, True), refused.err


def test_updates_outside_a_round(
    phono: Run, workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, sent, trained = workplace.artifacts / "weights.safetensors", tmp_path / "sent", tmp_path / "trained"
    codec = ("--codec", NAME, "--deviations", 3)
    line = ("train", workplace.artifacts, "--user", workplace.user, "--seed", 5, "--out", trained, "--update", sent)
    tokens = phono(*line, *codec, "--json").document["tokens"]
    encode = ("update", "encode", trained, "--base", base, "--tokens", tokens, "--seed", 5, "--out", tmp_path / "own")
    assert phono(*encode, *codec, "--json").document["codec"] == NAME
    assert (tmp_path / "own").read_bytes() == sent.read_bytes()

    shown = phono("update", "show", sent, "--codec", NAME, "--json").document
    assert (shown["codec"], shown["codec_settings"]) == (NAME, '{"deviations": 3.0}')
    assert [part["part"] for part in shown["parts"]] == ["payload"]
    decode = ("update", "decode", sent, "--base", base, "--out", tmp_path / "decoded")
    assert phono(*decode, "--codec", NAME).code == 0
    encode = (
        "update",
        "encode",
        tmp_path / "decoded",
        "--base",
        base,
        "--tokens",
        tokens,
        "--out",
        tmp_path / "native",
    )
    assert phono(*encode, "--seed", 5).code == 0
    fold = ("fold", workplace.artifacts, "--json", "--out", tmp_path / "model")
    model = phono(*fold, tmp_path / "native").document["sha256"]
    assert phono(*fold, sent, "--codec", NAME).document["sha256"] == model

    other = phono("update", "decode", sent, "--base", trained, "--out", tmp_path / "other", "--codec", NAME)
    assert (other.code, "made from model" in other.err) == (7, True), other.err
    assert phono(*encode[:-1], tmp_path / "faulty", "--codec", FAULTY, "--fault", "raises").code == 0
    failed = phono(*fold, tmp_path / "faulty", "--codec", FAULTY)
    assert (failed.code, f"{FAULTY}: decode: RuntimeError" in failed.err) == (32, True), failed.err

    monkeypatch.setattr(OWN, "by_name", {})
    for command in (("update", "show", sent), decode, (*fold, sent)):
        refused = phono(*command)
        assert (refused.code, "expected one that was named as --codec: none" in refused.err) == (7, True), refused.err
