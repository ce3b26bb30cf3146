"""The server's settings: the one place that declares their defaults."""
