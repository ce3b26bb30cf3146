"""Configuration files: a command's settings in TOML, whose keys, types and defaults come from the settings' records."""
