"""Configuration files: what is read, in which order, what is refused, and that none of it is declared twice."""

import json
from pathlib import Path
from typing import Annotated, Literal

import click
import pytest
from msgspec import Meta
from msgspec.structs import replace

from phonograd.cli import COMMANDS, phonograd
from phonograd.commands.grouped import GroupedCommand
from phonograd.config.files import FILES
from phonograd.config.layout import MODULE_CLASS, Layout, mark_unused, table
from phonograd.config.printed import print_file
from phonograd.config.values import Config
from phonograd.console import run
from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.settings import Count, Positive, Settings, as_dict, fields_of

MOST_OPTIONS, MOST_OF_A_COMMAND = 400, 16


class Rules(Settings, frozen=True):
    late: Annotated[Literal["drop", "next"], about("Late updates.")] = "drop"
    phones: Annotated[Count, about("Phones of a round.")] = 10
    kept: Annotated[Count | None, Meta(extra={"none": "all"}), about("Models.")] = 5
    seconds: Annotated[Positive | None, about("Deadline.")] = None
    share: Annotated[float, Meta(ge=0, lt=0.5), about("Trimmed.")] = 0.1
    masked: Annotated[bool, about("Sums alone.")] = False

    def check_together(self) -> None:
        self.require("kept", self.kept is None or self.kept <= self.phones, f"at most `phones` ({self.phones})")
        self.require("masked", not self.masked or self.late == "drop", f"{False} for `late` {self.late}")


class Strategy(Settings, frozen=True):
    name: Annotated[str, about("Which.")] = "mean"
    clip: Annotated[Positive, about("Bound.")] = 1.0
    text: Annotated[str, Meta(extra={"path_unless": "generated"}), about("A text.")] = "generated"


class Places(Settings, frozen=True):
    out: Annotated[Path, about("Where to write.")]
    users: Annotated[tuple[Path, ...], about("Texts.")] = ()


LAYOUT = Layout(
    "try",
    (
        table("", Places, "out"),
        table("rounds", Rules),
        table("strategy", Strategy, "name"),
        table("strategy.clipped", Strategy, "clip", "text", chosen_by=("strategy.name", ("clipped",))),
        table("strategy.own", Strategy, "clip", chosen_by=("strategy.name", (MODULE_CLASS,))),
        mark_unused(table("others", Places, "users")),
    ),
    flags={"out": "", "rounds.phones": ""},
    own="strategy.name",
    known=("mean", "clipped"),
)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("late", "never", "one of drop, next"),
        ("phones", 0, "at least 1"),
        ("phones", 2.0, "a whole number, at least 1"),
        ("phones", True, "a whole number, at least 1"),
        ("phones", 10**18, f"at most {10**18 - 1}"),
        ("kept", 0, "at least 1 or all"),
        ("seconds", 0.0, "more than 0"),
        ("seconds", float("nan"), "more than 0"),
        ("seconds", float("inf"), "more than 0"),
        ("share", 0.5, "at least 0, below 0.5"),
        ("share", "much", "a finite number, at least 0, below 0.5"),
        ("masked", 1, "true or false"),
        ("kept", 11, r"at most `phones` \(10\)"),
    ],
)
def test_a_setting_is_held_to_what_its_field_declares(name: str, value: object, expected: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}` is {value!r}, expected {expected}"):
        replace(Rules(), **{name: value})


def test_settings_as_dicts_and_edges() -> None:
    assert as_dict(Rules(share=0, seconds=1, kept=None)) == {
        **{"late": "drop", "phones": 10, "kept": None, "seconds": 1, "share": 0, "masked": False}
    }
    assert fields_of(Places)["out"].required


def config_of(tmp_path: Path, text: str, *sets: str, **flags: object) -> Config:
    file = tmp_path / "try.toml"
    file.write_text(text)
    return Config(LAYOUT, file, sets, {key.replace("_", "."): value for key, value in flags.items()})


def test_the_file_then_set_then_options(tmp_path: Path) -> None:
    text = 'out = "o"\n[rounds]\nphones = 20\nlate = "next"\nkept = "all"\n'
    assert config_of(tmp_path, text).take(Rules) == Rules(phones=20, late="next", kept=None)
    config = config_of(tmp_path, text, "rounds.phones=30", "rounds.late=drop", "rounds.seconds=9", rounds_phones=40)
    assert config.take(Rules) == Rules(phones=40, late="drop", kept=None, seconds=9.0)
    assert type(config.take(Rules).seconds) is float
    assert config.take(Places).out == tmp_path / "o"  # relative to the file
    assert config_of(tmp_path, text, "out=p").take(Places).out == Path("p")
    (tmp_path / "try.toml").write_text('compare = ["a", "b"]')
    assert Config(FILES["simulate"](), tmp_path / "try.toml").get("compare") == (tmp_path / "a", tmp_path / "b")


def test_a_table_for_other_commands_stays_unread(tmp_path: Path) -> None:
    config = config_of(tmp_path, 'out = "o"\n[others]\nusers = ["u"]\n')
    assert config.take(Places).users == ()
    assert [key for key, _ in config.paths()] == ["out"]
    assert "others" not in config.document() and "others" not in print_file(LAYOUT)


def test_a_table_of_the_choice(tmp_path: Path) -> None:
    text = 'out = "o"\n[strategy]\nname = "clipped"\n[strategy.clipped]\nclip = 2\ntext = "t.txt"\n'
    assert config_of(tmp_path, text).take(Strategy) == Strategy("clipped", 2.0, str(tmp_path / "t.txt"))
    assert config_of(tmp_path, text, "strategy.clip=3").take(Strategy).clip == 3
    other = config_of(tmp_path, text, "strategy.name=mean")  # the table of another choice may stay
    assert other.take(Strategy) == Strategy("mean")
    assert "clipped" not in other.document()["strategy"]
    own = config_of(
        tmp_path, text, "strategy.name=mine:Own", "strategy.size=3", "strategy.own.word=w", "strategy.clip=4"
    )
    assert (own.take(Strategy).clip, own.own) == (4.0, {"size": 3, "word": "w"})


@pytest.mark.parametrize(
    ("text", "sets", "message"),
    [
        ("[rounds]\nlat = 1", (), r"try.toml: rounds.lat: there is no such key; did you mean rounds.late\?"),
        ("clip = 1", (), r"try.toml: clip: there is no such key; did you mean strategy.clipped.clip, strategy"),
        ("[rounds]\nphones = 0", (), "try.toml: rounds.phones is 0, expected at least 1"),
        ("[rounds]\nphones = 3", (), r"try.toml: rounds.kept is 5, expected at most --phones \(3\)|rounds.kept is 5"),
        ("[rounds]\nshare = nan", (), "try.toml: rounds.share is nan, expected at least 0, below 0.5"),
        ("rounds = 1", (), r"try.toml: rounds: it is a table, \[rounds\]; give one of its keys"),
        ("[strategy.clipped]\nclip = 1", (), r"try.toml: \[strategy.clipped\]: expected with strategy.name clipped"),
        ("[rounds", (), "try.toml: expected TOML: Expected"),
        ("", ("rounds.late",), "--set rounds.late: expected KEY=VALUE"),
        ("", ("rounds.late=never",), "--set rounds.late is 'never', expected one of drop, next"),
        ("", ("rounds.phones=true",), "--set rounds.phones is true, expected a whole number"),
        ("", ("rounds.masked=true", "rounds.late=next"), "rounds.masked is true, expected false for rounds.late next"),
        ("", ("rounds.kept=5", "rounds.phones=3"), r"rounds.kept is 5, expected at most rounds.phones \(3\)"),
        ("", ("rounds.nothing=1",), "--set rounds.nothing: there is no such key"),
        (
            "",
            ("strategy.clipped.clip=1",),
            "strategy.clipped.clip: expected with strategy.name clipped, found mean",
        ),
        ("", ("strategy.own.size=1",), "strategy.own: expected with strategy.name MODULE:CLASS, found mean"),
        ("", ("others.users=['u']",), "--set others.users: `phonograd try` does not use it"),
        ("", (), "--out is missing; give it, or the key out"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, sets: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config = config_of(tmp_path, text, *sets)
        config.take(Rules)
        config.take(Places)


@pytest.mark.parametrize("name", FILES)
def test_the_printed_file_has_every_key_and_changes_nothing(name: str, tmp_path: Path) -> None:
    layout = FILES[name]()
    file = tmp_path / "all.toml"
    file.write_text(print_file(layout))
    for key, (one, _) in (keys := layout.keys()).items():
        assert not one.used or f"{key.rpartition('.')[2]} =" in file.read_text()
    assert Config(layout, file).document() == Config(layout).document()
    assert all(field.about for _, field in keys.values())


def test_a_report_prints_the_file_of_its_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ("--set", "strategy.clip_norm=0.25", "--set", "server.models_kept=all", "--strategy", "dp-fedavg")
    report, file = tmp_path / "report.json", tmp_path / "again.toml"
    layout = FILES["serve"]()
    sets = [one for one in line if "=" in one]
    config = Config(layout, None, sets, {"strategy.name": "dp-fedavg", "state": Path("s")})
    report.write_text(json.dumps({"config": config.document()}))
    assert run(phonograd, ["config", "serve", "--from", str(report)]) == 0
    file.write_text(capsys.readouterr().out)
    assert Config(layout, file).document() == config.document()
    assert config.document()["state"] == str(Path("s").absolute())
    report.write_text("{}")
    assert run(phonograd, ["config", "serve", "--from", str(report)]) == 2
    assert "expected a report with config" in capsys.readouterr().err
    assert run(phonograd, ["config", "upload"]) == 2
    assert "expected one of serve" in capsys.readouterr().err


def options_of(command: click.Command) -> list[str]:
    """The options of a command but those that all have."""
    shared = {"help", "as_json", "quiet", "version"}
    return [str(one.name) for one in command.params if isinstance(one, click.Option) and one.name not in shared]


def test_helps_have_groups() -> None:
    for name in ("train", "export", "phone-bench", "phone-round"):
        command = phonograd.get_command(click.Context(phonograd), name)
        assert isinstance(command, GroupedCommand)
        text = command.get_help(click.Context(command))
        assert text.index("\nSettings:\n  --config") < text.index("\nOther options:\n") < text.index("  --json")
        assert "ARTIFACTS" not in text.partition("Other options")[2]
    text = phonograd.get_help(click.Context(phonograd))
    assert text.index("\nTrain and time:\n  train ") < text.index("\nRounds, and what they cost:\n  serve ")


def test_commands_have_few_options_and_tell_their_arguments() -> None:
    context, counts = click.Context(phonograd), {}

    def count(name: str, command: click.Command) -> None:
        counts[name] = len(options_of(command))
        assert not any(isinstance(one.type, click.types.FuncParamType) for one in command.params), name
        arguments = [one.make_metavar(context) for one in command.params if isinstance(one, click.Argument)]
        assert all(one.strip("[].") in str(command.help) for one in arguments), f"{name}: its help tells {arguments}"
        for inner in command.list_commands(context) if isinstance(command, click.Group) else ():
            found = command.get_command(context, inner)
            assert found is not None
            count(f"{name} {inner}", found)

    count("", phonograd)
    assert len(counts) > len(COMMANDS)
    assert {name: number for name, number in counts.items() if number > MOST_OF_A_COMMAND} == {}
    assert sum(counts.values()) <= MOST_OPTIONS
