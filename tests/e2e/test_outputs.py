"""What a command writes never destroys what it reads: refused before any work, by one rule for all commands."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import phonograd as api
from phonograd.cli import phonograd
from phonograd.commands.paths import INPUT, OUT_FOLDER, OUTPUT
from phonograd.device_runtime.base.errors import StorageError, UsageError
from tests.support.command_line import Run, Workplace


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "line",
    [
        "train {art} --user {user} --out {user}",
        "train {art} --user {user} --update {link}",
        "train {art} --user {user} --rehearsal {general} --out {hard}",
        "train {art} --user {user} --out {art}/weights.safetensors",
        "train {art} --user {user} --state {art}",
        "train {art} --user {user} --weights {model} --out {model}",
        "train {art} --user {user} --out {new} --update {folder}/../{name}/new",
        "update encode {model} --base {art}/weights.safetensors --tokens 9 --out {art}/vocab.txt",
        "update decode {model} --base {art}/weights.safetensors --out {model}",
        "fold {art} {folder} --out {folder}/next.safetensors",
        "vocab build {general} --size 17 --out {general}",
        "vocab build {general} --size 17 --lexicon {user} --out {user}",
        "vocab import {general} --out {general}",
        "pretrain --preset tiny --vocab {general} --text {user} --out {user}",
        "export --model {art}/weights.safetensors --vocab {general} --out {art}/new",
        "simulate {art} --users {user} --out {art}",
        "simulate {art} --users {user} --out {new} --page {user}",
        "privacy empirical {art} --users {user} --page {art}/vocab.txt",
        "phone-bench {art} --compare {user} --out {user}",
        "bench results --results {folder} --out {folder}/page.md",
        "reproduce table-3 --input x={user} --out {user}",
    ],
)
def test_an_output_that_is_an_input_or_another_output(
    phono: Run, workplace: Workplace, tmp_path: Path, line: str
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    user, general, model = folder / "me.txt", folder / "general.txt", folder / "model.safetensors"
    user.write_bytes(workplace.user.read_bytes())
    general.write_bytes(workplace.general.read_bytes())
    model.write_bytes((workplace.artifacts / "weights.safetensors").read_bytes())
    link, hard = tmp_path / "link.txt", tmp_path / "hard.txt"
    link.symlink_to(user)
    os.link(general, hard)
    names = {"art": workplace.artifacts, "user": user, "general": general, "model": model, "link": link, "hard": hard}
    names |= {"folder": folder, "name": folder.name, "new": folder / "new"}
    before = contents(tmp_path) | contents(workplace.artifacts)
    outcome = phono(*line.format(**names).split())
    assert outcome.code == 2
    assert "choose" in outcome.err
    assert outcome.out == ""
    assert contents(tmp_path) | contents(workplace.artifacts) == before


def test_an_output_that_is_no_regular_file(phono: Run, workplace: Workplace, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (pipe, Path(os.devnull), tmp_path):
        outcome = phono("train", workplace.artifacts, "--user", workplace.user, "--out", place)
        assert outcome.code == 11
        assert f"{place}: cannot write: a file expected" in outcome.err
    assert pipe.is_fifo()
    outcome = phono("simulate", workplace.artifacts, "--users", workplace.user, "--out", pipe)
    assert outcome.code == 11
    assert "a folder expected, found a device, a pipe or a socket" in outcome.err


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="links to what is open are Linux's")
def test_a_link_to_what_is_open_is_no_output_even_if_a_file_is_behind_it(tmp_path: Path) -> None:
    """Root's `--out /dev/stdout > FILE` replaced the link. Only the rule is asked: a test must not break /dev."""
    with (tmp_path / "stdout").open("wb") as file:
        for place in (f"/dev/fd/{file.fileno()}", "/dev/stdout", "/dev/not-there"):
            with pytest.raises(StorageError, match="a file expected, found a device, a pipe or a socket"):
                OUTPUT.convert(place, None, None)


def test_the_python_api_refuses_them_too(workplace: Workplace, tmp_path: Path) -> None:
    weights = workplace.artifacts / "weights.safetensors"
    with pytest.raises(UsageError, match="reads"):
        api.train(workplace.artifacts, workplace.user, out=workplace.user)
    with pytest.raises(UsageError, match="twice"):
        api.train(workplace.artifacts, workplace.user, out=tmp_path / "x", update=tmp_path / "x")
    with pytest.raises(UsageError, match="reads"):
        api.train(api.open_artifacts(workplace.artifacts), workplace.user, out=weights)
    with pytest.raises(UsageError, match="reads"):
        api.encode_update(weights, weights, workplace.artifacts / "vocab.txt", tokens=9)
    with pytest.raises(UsageError, match="reads"):
        api.fold_updates([tmp_path / "a"], weights, tmp_path / "a")
    with pytest.raises(StorageError, match="a device"):
        api.download("http://127.0.0.1:1", os.devnull)


def parameters(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Parameter]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from ((f"{name} {one.opts[0]}", one) for one in command.params)
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", one) for inner, one in parameters(command, context))


def test_every_path_of_every_command_is_known_as_read_or_written() -> None:
    found = {
        name: one for name, one in parameters(phonograd, click.Context(phonograd)) if isinstance(one.type, click.Path)
    }
    other = {name for name, one in found.items() if one.type not in (INPUT, OUTPUT, OUT_FOLDER)}
    assert other == {"pull --base"}  # the model to bring up to date, unless told otherwise
    assert len(found) > 80
    outputs = {name for name in found if name.split()[-1] in ("--out", "--save", "--page", "--update", "--html")}
    assert {name for name in outputs if found[name].type is INPUT} == set()
