"""Options that would be ignored are refused."""

import click


def refuse(reason: str, *names: str) -> None:
    """Raise UsageError if one of these parameters of the running command is on its command line, for `reason`."""
    context = click.get_current_context()
    for param in context.command.params:
        if param.name in names and context.get_parameter_source(param.name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{param.opts[0]}: {reason}")
