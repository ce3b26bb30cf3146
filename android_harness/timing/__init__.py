"""Epochs timed on phones: warm-up, cooling, sampling, throttling."""
