"""Contestants of `bench epoch`, a module each: `load(job)` returns a `bench.worker.Contestant`."""
