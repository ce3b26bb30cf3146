"""Which numbers of threads a sweep tries, on which cores."""

from collections.abc import Iterator, Mapping, Sequence

WORDS = ("big", "little", "all")


def sweep_points(choices: Mapping[str, Sequence[int]], pin: bool) -> Iterator[tuple[str, int]]:
    """(--cores, --threads) to time: 1, 2, 4 and so on up to one for each core, of each of WORDS that has cores.

    choices: the cores of each word, the fastest first, as phonograd-phone info has them. What would run as something
    before it is left out: two pinned threads on all cores are on the same two as on the big ones.
    """
    seen = set()
    for word in WORDS:
        cores = choices.get(word, ())
        for threads in _counts(len(cores)):
            place = (frozenset(cores[:threads] if pin else cores), threads)
            if place not in seen:
                seen.add(place)
                yield word, threads


def _counts(most: int) -> list[int]:
    """Powers of two below `most`, and itself."""
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), *([most] if most else [])]
