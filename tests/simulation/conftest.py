"""The command line."""

from tests.support.command_line import phono

__all__ = ["phono"]
