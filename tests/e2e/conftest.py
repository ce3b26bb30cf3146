"""The command line, and a tiny model's artifacts made by it."""

from tests.support.command_line import phono, workplace

__all__ = ["phono", "workplace"]
