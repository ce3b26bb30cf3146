"""The papers' tables and figures, measured again: README.md says how to add one."""
