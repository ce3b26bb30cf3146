"""A round trip by hand: the model here, an epoch, the update there; and a model fetched by its place in the lineage."""

import json
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import httpx
import numpy as np
import pytest

from phonograd.api import rounds
from phonograd.api.rounds import JoinedRound
from phonograd.commands.train import rises
from phonograd.device_runtime.base.errors import ServerUnreachableError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client import server_client
from phonograd.device_runtime.client.owner_file import user_state_folder
from phonograd.device_runtime.client.server_client import CurrentRound
from phonograd.device_runtime.formats.manifest import WEIGHTS, open_artifacts
from phonograd.device_runtime.formats.tensor_file import load_tensors, save_tensors
from phonograd.device_runtime.update.update_file import UpdateFile
from phonograd.export.torch_layout import to_torch
from tests.support.command_line import Run, Workplace
from tests.support.ports import reserved_port
from tests.support.serving import serving


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in, and a cache of models of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rounds, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("PHONOGRAD_MODEL_CACHE")
    return tmp_path


def test_train_fetches_trains_and_uploads(phono: Run, workplace: Workplace, desk: Path) -> None:
    exported = sha256_of_file(workplace.artifacts / WEIGHTS)
    train = ("train", workplace.artifacts, "--user", workplace.user, "--set", "training.epochs=2", "--json")
    with serving(workplace.artifacts, desk / "state", "--clients-per-round", "1") as url:
        first = phono(*train, "--server", url, "--phone", "p1").document
        assert (first["receipt"]["round"], first["receipt"]["phone"]) == (1, "p1")
        assert first["receipt"]["round_closed"]
        assert not (desk / "cache" / "models").exists()  # the artifacts' own model was the round's
        latest = first["receipt"]["model_sha256"]

        kept = desk / "kept.update"
        state = ("--state", desk / "training", "--update", kept)
        second = phono(*train, "--server", url, "--codec", "delta-int8", *state).document
        assert (second["receipt"]["round"], second["receipt"]["phone"]) == (2, "unnamed")
        with UpdateFile(kept) as update:
            assert (update.info.round, update.info.base_sha256) == (2, latest)
        assert [path.stem for path in (desk / "cache" / "models").glob("*/*/*.safetensors")] == [latest]
        assert list((desk / "training").iterdir()) == []
        assert list(desk.glob("phonograd-updates/*/*")) == []
        rows = phono("report", "--server", url, "--round", 2, "--json").document
        assert [row["model_bytes"] > 0 for row in rows if row["phone"] == "unnamed"] == [True]

        models = {name: desk / name for name in ("latest", "0", "1", "2")}
        for name, path in models.items():
            assert phono("models", "--server", url, "--fetch", name, "--out", path).code == 0
        found = {name: sha256_of_file(path) for name, path in models.items()}
        assert found == {"0": exported, "1": latest} | dict.fromkeys(("2", "latest"), second["receipt"]["model_sha256"])
        none = phono("models", "--server", url, "--fetch", "3", "--out", desk / "3")
        assert (none.code, "--fetch 3: latest, the number of a round that made a model" in none.err) == (2, True)


def test_a_phone_counts_its_rounds_of_dp_ftrl_itself(phono: Run, workplace: Workplace, desk: Path) -> None:
    """Whatever the server's ledger says: here it has lost nine rounds."""
    state, run = (
        desk / "state",
        (
            "--strategy",
            "dp-ftrl",
            "--set",
            "strategy.min_separation=5",
            "--set",
            "strategy.planned_rounds=20",
            "--accept-noise",
        ),
    )
    token = phono("tokens", "add", "p1", "--state", state, "--json").document["token"]
    options = (*run, "--set", "strategy.max_participations=2", "--deadline-seconds", "1e6", "--clients-per-round", "2")
    with serving(workplace.artifacts, state, *options) as url:
        line = ("train", workplace.artifacts, "--user", workplace.user, "--server", url)
        line += ("--phone", "p1", "--token", token)
        told = json.loads(
            httpx.get(f"{url}/v1/round", headers={"Authorization": f"Bearer {token}"}, trust_env=False).json()["run"]
        )
        history = user_state_folder() / "runs" / quote(url, safe="") / "phone-p1.json"
        history.parent.mkdir(parents=True)
        history.write_text(json.dumps({told["run"]: [9]}))
        refused = phono(*line)
        assert refused.code == 29
        assert "took part in step 9 of the run, and rests until step 14 (min_separation), found step 1" in refused.err
        history.unlink()
        assert phono(*line).code == 0
        assert json.loads(history.read_text()) == {told["run"]: [1]}


def test_a_place_that_is_taken_costs_no_training(phono: Run, workplace: Workplace, desk: Path) -> None:
    train = ("train", workplace.artifacts, "--user", workplace.user, "--phone", "p1")
    with serving(workplace.artifacts, desk / "state", "--clients-per-round", "2") as url:
        assert phono(*train, "--server", url).code == 0
        again = phono(*train, "--server", url)
        assert (again.code, f"{url}: no place in round 1: phone p1: " in again.err) == (8, True)
    assert list(desk.glob("phonograd-updates/*/*")) == []


@pytest.mark.parametrize(
    ("codecs", "strategy", "refusal"),
    [
        (("full-f32",), "fedavg", "--codec rows-f32: http://nobody.invalid takes full-f32"),
        (
            ("rows-f32",),
            "fedsgd",
            "training.steps 1 expected: round 3 has strategy fedsgd, which averages single steps",
        ),
    ],
)
def test_what_the_server_does_not_take_costs_no_training(
    phono: Run,
    workplace: Workplace,
    monkeypatch: pytest.MonkeyPatch,
    codecs: tuple[str, ...],
    strategy: str,
    refusal: str,
) -> None:
    opened = CurrentRound(3, "0" * 64, 4, 2, 0, codecs, strategy)
    monkeypatch.setattr(server_client, "current_round", lambda server: opened)
    outcome = phono("train", workplace.artifacts, "--user", workplace.user, "--server", "http://nobody.invalid")
    assert (outcome.code, refusal in outcome.err) == (2, True)


def test_an_update_that_was_not_sent_is_kept_with_the_way_to_send_it(
    phono: Run, workplace: Workplace, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise ServerUnreachableError("the server went away")

    with serving(workplace.artifacts, desk / "state", "--clients-per-round", "2") as url:
        with monkeypatch.context() as patch:
            patch.setattr(server_client, "upload_update", broken)
            line = ("train", workplace.artifacts, "--user", workplace.user, "--server", url, "--phone", "p1")
            outcome = phono(*line)
        kept = Path("phonograd-updates/round-1/p1.update")
        command = f"phonograd upload {kept} --server {url} --phone p1"
        assert (outcome.code, outcome.err) == (
            9,
            f"phonograd: the server went away; the update is kept, send it with: {command}\n",
        )
        assert kept.parent.stat().st_mode & 0o777 == 0o700
        assert phono(*command.split()[1:], "--json").document["accepted"] == 1


def test_a_second_phone_without_a_name_is_refused(phono: Run, workplace: Workplace, desk: Path) -> None:
    with serving(workplace.artifacts, desk / "state", "--clients-per-round", "2") as url:
        train = ("train", workplace.artifacts, "--user", workplace.user)
        assert phono(*train, "--server", url, "--update", desk / "kept").code == 0
        assert phono(*train, "--out", desk / "other", "--update", desk / "second").err == ""
        for line in ((*train, "--server", url), ("upload", desk / "second", "--server", url)):
            outcome = phono(*line)
            assert (outcome.code, outcome.err.rpartition("; ")[2]) == (
                8,
                "phones without --phone share the name unnamed: send it with a name of its own\n",
            )
        assert phono(*train, "--server", url, "--phone", "bob").code == 0


def test_a_loss_that_rises_is_told_from_one_that_wavers() -> None:
    assert rises([1.0, 1.1, 0.9, 1.2, 1.3, 1.2, 1.3, 1.2, 1.4])
    assert not rises([1.0, 1.3, 0.9, 1.2, 1.0, 1.1, 1.0, 1.2, 1.1])
    assert not rises([1.0, 2.0, 3.0])


def test_phones_without_a_name_do_not_share_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    opened = SimpleNamespace(round=3)
    paths = set()
    for phone, process in (("unnamed", 1), ("unnamed", 2), ("alice", 1), ("alice", 2)):
        monkeypatch.setattr("os.getpid", lambda process=process: process)
        paths.add(JoinedRound("http://localhost", phone, opened, tmp_path).update_path().name)  # type: ignore[arg-type]
    assert paths == {"unnamed-1.update", "unnamed-2.update", "alice.update"}


def test_a_state_without_a_run_to_resume_is_said(phono: Run, workplace: Workplace, desk: Path) -> None:
    line = ("train", workplace.artifacts, "--user", workplace.user, "--out", desk / "out", "--state", desk / "run")
    said = f"{desk / 'run'}: no run to resume: the last one is finished, or saved nothing; a new one starts\n"
    assert [phono(*line).err for _ in range(2)] == ["", said]


def test_training_that_nothing_keeps_says_so(phono: Run, workplace: Workplace, desk: Path) -> None:
    outcome = phono("train", workplace.artifacts, "--user", workplace.user)
    assert (outcome.code, outcome.err.partition(":")[0]) == (0, "nothing of this training was kept")


def test_where_no_update_can_be_kept_its_option_is_named(phono: Run, workplace: Workplace, desk: Path) -> None:
    (desk / "phonograd-updates").write_text("in the way")
    with serving(workplace.artifacts, desk / "state", "--clients-per-round", "2") as url:
        line = ("train", workplace.artifacts, "--user", workplace.user, "--server", url)
        outcome = phono(*line)
        assert (outcome.code, outcome.err.partition("cannot write: ")[2]) == (
            11,
            "File exists; name a file with --update\n",
        )
        assert phono(*line, "--update", desk / "here").code == 0


def test_what_the_server_says_is_not_given(phono: Run, workplace: Workplace) -> None:
    train = ("train", workplace.artifacts, "--user", workplace.user)
    with reserved_port() as nobody:
        for options in (("--weights", "w"), ("--round", "2")):
            outcome = phono(*train, "--server", f"http://127.0.0.1:{nobody}", *options)
            assert (outcome.code, "--server says which --weights and --round" in outcome.err) == (2, True)
        assert phono(*train, "--server", f"http://127.0.0.1:{nobody}", "--wait", "0").code == 9


def test_torch_weights_train_as_the_model_that_export_makes_of_them(
    phono: Run, workplace: Workplace, desk: Path
) -> None:
    config = open_artifacts(workplace.artifacts).manifest.model
    trained = to_torch(load_tensors(workplace.artifacts / WEIGHTS), config)
    save_tensors(desk / "torch", {name: (2 * array).astype(np.float16) for name, array in trained.items()})
    line = ("--preset", "tiny", "--vocab", workplace.vocabulary, "--weights", desk / "torch", "--out", desk / "made")
    assert phono("export", *line).code == 0
    files = {}
    for name, options in (("torch", (workplace.artifacts, "--weights", desk / "torch")), ("made", (desk / "made",))):
        files[name] = desk / f"{name}.update"
        line = ("train", *options, "--user", workplace.user, "--seed", 1, "--update", files[name])
        assert phono(*line).code == 0
    assert files["torch"].read_bytes() == files["made"].read_bytes()
    with UpdateFile(files["torch"]) as update:
        assert update.info.base_sha256 == sha256_of_file(desk / "made" / WEIGHTS)
    evaluated = [
        phono("eval", *options, "--text", workplace.user, "--json").out
        for options in ((workplace.artifacts, "--weights", desk / "torch"), (desk / "made",))
    ]
    assert json.loads(evaluated[0]) == json.loads(evaluated[1])
    other = to_torch(load_tensors(workplace.artifacts / WEIGHTS), config)
    del other["decoder.bias"]
    save_tensors(desk / "other", other)
    refused = phono("train", workplace.artifacts, "--weights", desk / "other", "--user", workplace.user)
    assert (refused.code, "tensor decoder.bias F32[17] expected, not found" in refused.err) == (6, True)
