"""Benchmarks. May import every package; only the command line and the demo import it."""
