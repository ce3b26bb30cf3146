"""Models that train a part, or adapters: exported, evaluated, trained, sent, folded and merged by the commands."""

import re
from pathlib import Path

import numpy as np
import pytest

from phonograd.device_runtime.formats.frozen import frozen_in
from phonograd.device_runtime.formats.manifest import WEIGHTS, open_artifacts
from phonograd.device_runtime.formats.model_config import ADAPTER_A, ADAPTER_B
from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors
from tests.e2e.test_bad_input import assert_refused
from tests.support.command_line import Run, Workplace, keys
from tests.support.serving import serving

SHAPE = ("--seed", 4, *keys(shape="cell=lstm layers=1 hidden=8", training="bptt=5 minibatch=3 learning_rate=0.5"))
MATRICES = ["embedding.weight", "lstm.0.W", "lstm.0.R", "decoder.weight"]
ADAPTERS = [name + ADAPTER_B for name in MATRICES]


def export_model(phono: Run, workplace: Workplace, out: Path, *options: object) -> dict[str, object]:
    document = phono("export", *SHAPE, "--vocab", workplace.vocabulary, *options, "--out", out, "--json").document
    return dict(document)


@pytest.mark.parametrize(
    ("phones", "trained"),
    [
        ('train=["rnn.0.W","decoder"] freeze=decoder.bias', ["lstm.0.W", "decoder.weight"]),
        ("adapters=2 train=decoder", ["decoder.bias", "decoder.weight.adapter.B"]),
        ("adapters=2 freeze=encoder", ["lstm.0.B", "decoder.bias", *ADAPTERS[1:]]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_tensors_that_train(
    phono: Run, workplace: Workplace, tmp_path: Path, phones: str, trained: list[str]
) -> None:
    document = export_model(phono, workplace, tmp_path / "a", *keys(phones=phones))
    names = [spec.name for spec in open_artifacts(tmp_path / "a").manifest.model.tensor_specs()]
    assert document["frozen"] == [name for name in names if name not in trained]
    assert set(trained) <= set(names)


def test_what_is_no_rank_is_refused(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    export = ("export", *SHAPE, "--vocab", workplace.vocabulary, "--out", tmp_path / "a")
    assert_refused(phono(*export, *keys(phones="adapters=8")), 5, "adapters is 8, expected below 8, the columns of its")
    assert_refused(phono(*export, *keys(phones="adapters=0")), 2, "adapters")
    assert_refused(phono(*export, *keys(phones="train=lstm.7")), 2, "tensor lstm.7: one of embedding.weight,")
    assert not (tmp_path / "a").exists()


@pytest.mark.long
def test_a_round_of_adapters(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    """Two phones; the next model, merged, fits the plain artifacts."""
    plain, artifacts = tmp_path / "plain", tmp_path / "artifacts"
    export_model(phono, workplace, plain)
    export_model(phono, workplace, artifacts, *keys(phones="adapters=2"))
    text = ("--text", workplace.user, "--json")
    before = [phono("eval", folder, *text).document[0] for folder in (plain, artifacts)]
    assert before[0]["perplexity"] == pytest.approx(before[1]["perplexity"], rel=1e-6)

    with serving(artifacts, tmp_path / "state", "--clients-per-round", "2") as url:
        train = ("train", artifacts, "--user", workplace.user, "--server", url, "--json")
        for phone in ("alice", "bob"):
            update = tmp_path / f"{phone}.update"
            assert phono(*train, "--phone", phone, "--update", update).document["receipt"]
            found = phono("update", "show", update, "--json").document["parts"]
            parts = {re.sub(r"\.(rows|values|scales|levels)$", "", part["part"]) for part in found}
            assert parts == {"lstm.0.B", "decoder.bias", *ADAPTERS}
        assert phono(*train, "--phone", "again", "--out", tmp_path / "trained.safetensors").code == 0
        assert phono("eval", artifacts, *text, "--weights", tmp_path / "trained.safetensors").code == 0
        assert phono("models", "--server", url, "--fetch", "latest", "--out", tmp_path / "next").code == 0
    first, after = load_tensors(artifacts / WEIGHTS), load_tensors(tmp_path / "next")
    for name, array in first.items():
        frozen = name in MATRICES or name.endswith(ADAPTER_A)
        assert (array.tobytes() == after[name].tobytes()) == frozen, name
    with TensorFile(tmp_path / "next") as file:
        assert frozen_in(file) == {*MATRICES, *(name + ADAPTER_A for name in MATRICES)}

    merged = tmp_path / "merged"
    assert phono("merge", tmp_path / "next", "--out", merged).code == 0
    weights = (tmp_path / "next", merged)
    found = [
        phono("eval", folder, *text, "--weights", one).document[0]
        for folder, one in zip((artifacts, plain), weights, strict=True)
    ]
    assert found[0]["perplexity"] == pytest.approx(found[1]["perplexity"], rel=1e-5)
    assert found[0]["perplexity"] != pytest.approx(before[0]["perplexity"], rel=1e-4)
    assert np.any(load_tensors(merged)["decoder.weight"] != first["decoder.weight"])
    assert_refused(phono("merge", merged, "--out", tmp_path / "again"), 6, "a model with adapters expected, found none")
    assert_refused(phono("eval", artifacts, *text, "--weights", merged), 6, "embedding.weight.adapter.A")
