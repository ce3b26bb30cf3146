"""Rounds: opening, ingesting updates, closing."""
