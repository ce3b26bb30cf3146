"""Contestants of `bench epoch`, a module each: `load(job)` returns a `phonograd.bench.worker.Contestant`."""
