"""Benchmarks of single kernels, by pytest-benchmark: `make bench-kernels`. The test run does not collect them."""
