"""The API's functions agree with each other, with files and with a server's round."""

import contextlib
import importlib
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import phonograd
from tests.support.artifacts import exported, words
from tests.support.own_models import RNNModel

MODEL = phonograd.LanguageModelConfig("lstm", vocabulary=20, embedding=8, hidden=8, layers=1)
TRAINING = phonograd.TrainingConfig(minibatch=2, bptt=5)
MESSAGES = [f"w{number % 17} w{number % 5} w{number % 7} w{number % 3}" for number in range(20)]


def test_messages_are_as_good_as_a_file(tmp_path: Path) -> None:
    artifacts = exported(MODEL, TRAINING)
    (tmp_path / "user.txt").write_text("\n".join(MESSAGES))
    for name, text in (("file", tmp_path / "user.txt"), ("path", str(tmp_path / "user.txt")), ("list", MESSAGES)):
        trained = phonograd.train(artifacts, text, phonograd.TrainSettings(seed=1), out=tmp_path / name)
        assert trained.weights is not None
        assert trained.weights.nbytes == (tmp_path / name).stat().st_size
    assert (tmp_path / "file").read_bytes() == (tmp_path / "path").read_bytes() == (tmp_path / "list").read_bytes()
    assert phonograd.evaluate(artifacts, MESSAGES) == phonograd.evaluate(artifacts, tmp_path / "user.txt")
    with pytest.raises(phonograd.TextError, match="no words found in 2 messages"):
        phonograd.evaluate(artifacts, ["", " \n"])


def test_a_stopped_run_goes_on_with_its_seed(tmp_path: Path) -> None:
    artifacts, state = exported(MODEL, TRAINING), phonograd.ResumableState(tmp_path / "state")
    done: list[int] = []

    @contextlib.contextmanager
    def stop() -> Iterator[Callable[[], int]]:
        yield lambda: signal.SIGTERM if len(done) == 3 else 0

    with pytest.raises(phonograd.StoppedError, match="after step 3 of 10; the state is saved"):
        hooks = phonograd.TrainHooks(lambda step, *_: done.append(step), stop=stop)
        phonograd.train(artifacts, MESSAGES, phonograd.TrainSettings(seed=7, state=state), hooks=hooks)
    resumed = phonograd.train(artifacts, MESSAGES, phonograd.TrainSettings(state=state), out=tmp_path / "resumed")
    assert (resumed.seed, resumed.report.resumed_at) == (7, 3)
    whole = phonograd.train(artifacts, MESSAGES, phonograd.TrainSettings(seed=7), out=tmp_path / "whole")
    assert resumed.weights == whole.weights


def test_a_module_its_state_dict_and_its_file_export_the_same(tmp_path: Path) -> None:
    model = RNNModel("gru", 20, 8, 8, 1, tied=True).bfloat16()
    torch.save(model.state_dict(), tmp_path / "my.pt")
    arrays = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
    vocabulary = [word.decode() for word in words(20).words]
    heard: list[str] = []
    made = {
        phonograd.export_artifacts(source, vocabulary, tmp_path / name, progress=heard.append).weights_sha256
        for name, source in (("1", model), ("2", model.state_dict()), ("3", tmp_path / "my.pt"), ("4", arrays))
    }
    assert len(made) == 1
    assert any("the model is tied" in line for line in heard)
    assert phonograd.open_artifacts(tmp_path / "1").manifest.model.tied
    with pytest.raises(phonograd.WeightsError, match="asked for: lstm 2x650"):
        phonograd.export_artifacts(model, vocabulary, tmp_path / "5", shape="popov-2x650")
    with pytest.raises(phonograd.VocabularyError, match="20 words expected, as model has rows, found 19"):
        phonograd.export_artifacts(model, vocabulary[:-1], tmp_path / "5")


def test_a_fold_is_a_servers_round(tmp_path: Path) -> None:
    artifacts = exported(MODEL, TRAINING)
    rules = phonograd.RoundRules(clients_per_round=2)
    settings = phonograd.ServerSettings(port=0, rules=rules)
    updates = [tmp_path / "a.update", tmp_path / "b.update"]
    with phonograd.start_server(artifacts, tmp_path / "server", settings) as server:
        assert phonograd.current_round(server.url).base_sha256 == artifacts.weights_sha256
        for phone, update, messages in zip("ab", updates, (MESSAGES, MESSAGES[:7]), strict=True):
            phonograd.train(artifacts, messages, phonograd.TrainSettings(phone=phone, codec="rot-q4"), update=update)
            receipt = phonograd.upload(server.url, update, phone)
        assert receipt.round_closed
        phonograd.download(server.url, tmp_path / "round")
    with pytest.raises(phonograd.ServerUnreachableError):
        phonograd.current_round(server.url)
    with phonograd.start_server(artifacts, tmp_path / "server", settings) as server:
        assert server.current.round == 2
    folded = phonograd.fold_updates(updates[::-1], artifacts, tmp_path / "folded")
    again = phonograd.fold_updates(updates, artifacts.folder / "weights.safetensors", tmp_path / "again")
    assert folded == again
    with phonograd.open_model(artifacts, weights=tmp_path / "folded") as model:
        assert model.sha256 == folded.sha256
    assert (tmp_path / "folded").read_bytes() == (tmp_path / "round").read_bytes()


def test_a_server_and_its_folder_report_the_same_and_go_back(tmp_path: Path) -> None:
    artifacts, state = exported(MODEL, TRAINING), tmp_path / "server"
    settings = phonograd.ServerSettings(port=0, rules=phonograd.RoundRules(clients_per_round=1))
    phonograd.train(artifacts, MESSAGES, phonograd.TrainSettings(phone="p"), update=tmp_path / "u")
    with phonograd.start_server(artifacts, state, settings) as server:
        phonograd.upload(server.url, tmp_path / "u", "p")
        assert [model["round"] for model in phonograd.models(server.admin)] == [0, 1]
        (phone,) = phonograd.round_report(server.admin, 1)
        assert (phone["phone"], phone["useful_bytes"]) == ("p", (tmp_path / "u").stat().st_size)
        assert phonograd.rollback(server.admin, 0)["base_sha256"] == artifacts.weights_sha256
        with pytest.raises(phonograd.ServerRefusedError, match="round 9"):
            phonograd.rollback(server.admin, 9)
        with pytest.raises(phonograd.StorageError, match="another server uses"):
            phonograd.rollback(state, 1)
        rounds = phonograd.report(server.admin)["rounds"]
        assert rounds == phonograd.report(state)["rounds"]
        assert phonograd.models(server.admin) == phonograd.models(state)
        assert phonograd.round_report(server.admin, 1) == phonograd.round_report(state, 1)
    assert phonograd.rollback(state, 1)["round"] == 4
    with pytest.raises(phonograd.PhonogradError, match="round 1"):
        phonograd.discard(state, 1)


def test_arguments_that_do_not_go_together(tmp_path: Path) -> None:
    artifacts = exported(MODEL, TRAINING)
    with pytest.raises(ValueError, match="`seed` is 1, expected none with `phone`"):
        phonograd.TrainSettings(seed=1, phone="a")
    with pytest.raises(phonograd.UsageError, match="`user_share` needs `rehearsal`"):
        phonograd.train(artifacts, MESSAGES, phonograd.TrainSettings(user_share=0.5))
    with pytest.raises(phonograd.UsageError, match="`weighting` is 'loudest'"):
        phonograd.fold_updates(["u"], artifacts, tmp_path / "out", weighting="loudest")
    with pytest.raises(phonograd.UsageError, match="at least one expected"):
        phonograd.fold_updates([], artifacts, tmp_path / "out")
    with pytest.raises(phonograd.UsageError, match="engine 'steam': expected local or ray"):
        phonograd.fold_updates(["u"], artifacts, tmp_path / "out", engine="steam")  # type: ignore[arg-type]


def test_an_engine_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts = exported(MODEL, TRAINING)
    monkeypatch.setitem(sys.modules, "ray", None)
    phonograd.encode_update(artifacts.path("weights.safetensors"), artifacts, tmp_path / "u", tokens=1)
    with pytest.raises(phonograd.MissingExtraError, match=r"engine ray needs ray .*'\.\[ray\]'"):
        phonograd.fold_updates([tmp_path / "u"], artifacts, tmp_path / "out", engine="ray")
    with pytest.raises(phonograd.MissingExtraError, match=r"engine ray needs ray .*'\.\[ray\]'"):
        phonograd.simulate(artifacts, {"a": MESSAGES}, tmp_path / "simulated", engine="ray")
    monkeypatch.setitem(sys.modules, "flwr", None)
    with pytest.raises(phonograd.MissingExtraError, match=r"needs flwr .*'\.\[flower\]'"):
        importlib.import_module("phonograd.adapters.flower")
