"""The server's settings, with their defaults."""
