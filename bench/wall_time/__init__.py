"""Each part of a round in wall time, by pytest-benchmark: `make bench`. The test run does not collect them."""
