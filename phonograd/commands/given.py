"""Options that would be ignored are refused."""

from collections.abc import Container

import click


def refuse(reason: str, *names: str) -> None:
    """Raise UsageError if one of these parameters of the running command is on its command line, for `reason`."""
    _refuse(reason, names)


def refuse_all_but(reason: str, *names: str) -> None:
    """Raise UsageError if a parameter that is none of these is on the command line, for `reason`."""
    kept = (*names, "as_json", "quiet")
    _refuse(reason, [param.name for param in click.get_current_context().command.params if param.name not in kept])


def _refuse(reason: str, names: Container[str | None]) -> None:
    context = click.get_current_context()
    for param in context.command.params:
        if param.name in names and context.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{param.opts[0]}: {reason}")
