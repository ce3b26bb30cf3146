"""Timed epochs on phones: warm-up, cooling, sampling, throttling."""
