"""The kinds of experiments, a module each: `Settings`, a record, and `run(settings, context)`."""
