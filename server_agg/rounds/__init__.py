"""Rounds: opening the state, taking updates in, closing."""
