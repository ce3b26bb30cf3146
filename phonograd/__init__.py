"""The command line: `phonograd`, a click group that loads its subcommands when they run."""

__version__ = "0.1.0"
