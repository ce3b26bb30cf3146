from phonograd.device_runtime.update.seeds import random_seed, seed_of
from phonograd.device_runtime.update.update_file import MAX_COUNT

BASE, OTHER = "0" * 64, "1" * 64


def test_seeds_are_each_models_phones_and_rounds_own() -> None:
    rounds = [(base, number) for base in (BASE, OTHER) for number in range(1, 20)]
    seeds = {seed_of(*opened, f"phone{index}") for opened in rounds for index in range(30)}
    assert len(seeds) == len(rounds) * 30
    assert seed_of(BASE, 12, "3") != seed_of(BASE, 1, "23")
    assert all(0 <= seed <= MAX_COUNT for seed in seeds)


def test_another_implementation_finds_the_same_seed() -> None:
    """The example of docs/phone-round.md: printf '%s 1 p1' BASE | sha256sum, the first 14 digits."""
    assert seed_of(BASE, 1, "p1") == 4454680700919631


def test_random_seeds_fit_an_update_and_differ() -> None:
    """Two of 50 draws of 56 bits are equal once in 10^13 runs."""
    seeds = {random_seed() for _ in range(50)}
    assert len(seeds) == 50
    assert all(0 <= seed <= MAX_COUNT for seed in seeds)
