"""Benchmarks, the demo, the papers' experiments. May import every package; only the command line imports it."""
