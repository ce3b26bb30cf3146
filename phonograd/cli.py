"""The command group. A subcommand's module is imported when it runs, so that `phonograd --help` stays quick."""

import difflib
from collections.abc import Mapping
from importlib import import_module

import click

from phonograd import __version__

# title in `phonograd --help`: {name: (module of `commands`, its click command, the line that the help shows)}
GROUPS: Mapping[str, Mapping[str, tuple[str, str, str]]] = {
    "Build artifacts": {
        "corpus": ("text", "corpus", "Fetch the demo's text."),
        "vocab": ("text", "vocab", "Build a vocabulary."),
        "pretrain": ("pretrain", "pretrain", "Pre-train a model on general text."),
        "export": ("export", "export", "Write the artifacts folder that phones train from."),
        "inspect": ("export", "inspect", "Show an artifacts folder's contents."),
        "merge": ("export", "merge", "Make a plain model of one with adapters."),
    },
    "Train and time": {
        "train": ("train", "train", "Train one epoch on a user's text, as a phone does."),
        "eval": ("evaluate", "evaluate", "Measure perplexity, top-1 accuracy and keystroke savings."),
        "predict": ("predict", "predict", "Show the most probable next words after a text."),
        "personal": ("personal", "personal", "The user's own words, for suggestions."),
        "update": ("update", "update", "Encode, decode and show updates."),
        "devices": ("devices", "devices", "List the phones on adb and whether they are ready."),
        "phone-bench": ("phone_bench", "phone_bench", "Time epochs on phones over adb."),
        "build-phone": ("native", "build_phone", "Build and check the binary that phones run."),
        "zip-model": ("zip_model", "zip_model", "Write what phones need of a model, for an app."),
        "bench": ("bench", "bench", "Benchmark training and aggregation on this machine."),
    },
    "Rounds, and what they cost": {
        "serve": ("server", "serve", "Run the aggregation server."),
        "phone-round": ("phone_round", "phone_round", "Run a federated round on phones over adb."),
        "upload": ("server", "upload", "Send an update to a server."),
        "pull": ("server", "pull", "Bring a local model up to date with a server."),
        "report": ("report", "report", "Report rounds and the bytes each one cost."),
        "models": ("report", "models", "List a server's models and their lineage; fetch one."),
        "rollback": ("report", "rollback", "Return a server to an earlier model."),
        "discard": ("report", "discard", "Delete the updates of a round that failed."),
        "fold": ("fold", "fold", "Average updates into the next model, without a server."),
        "tokens": ("tokens", "tokens", "Enrol phones at a server, replace and revoke their tokens."),
        "keys": ("keys", "keys", "Make and certify the keys of masked rounds."),
        "simulate": ("simulate", "simulate", "Simulate federated rounds of many phones on this machine."),
        "privacy": ("privacy", "privacy", "Compute epsilon, and measure what a model gives away."),
    },
    "More": {
        "docs": ("docs", "docs", "Print a page of the documentation."),
        "config": ("config", "config", "Print a command's configuration file."),
        "demo": ("demo", "demo", "Run one federated round at full size, from corpus to report."),
        "selftest": ("selftest", "selftest", "Check that this machine computes what others do."),
        "reproduce": ("reproduce", "reproduce", "Measure the papers' tables and figures again."),
    },
}
COMMANDS = {name: command for commands in GROUPS.values() for name, command in commands.items()}


class LazyGroup(click.Group):
    """A click group that knows its subcommands by name and loads the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of the work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of one subcommand."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"phonograd.commands.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The subcommand that is called. Raises UsageError with the name that may be meant, as click does in others."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            for meant in difflib.get_close_matches(args[0], COMMANDS, n=1):
                raise click.UsageError(f"{error.message} Did you mean '{meant}'?", ctx) from error
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the subcommands by their jobs, without importing them."""
        width = max(map(len, COMMANDS))
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), line) for name, (_, _, line) in commands.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(__version__, prog_name="phonograd")
def phonograd() -> None:
    """Train language models on phones: export artifacts, train, aggregate, and measure what each round costs.

    Exit codes: 0 for success, 2 for wrong usage, others in `phonograd docs exit-codes`. PHONOGRAD_DEBUG=1 shows
    tracebacks.
    """
