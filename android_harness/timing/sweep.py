"""The numbers of threads and the cores that a sweep tries."""

from collections.abc import Iterator, Mapping, Sequence

CORE_CHOICES = ("big", "little", "all")


def sweep_points(choices: Mapping[str, Sequence[int]], pin: bool) -> Iterator[tuple[str, int]]:
    """Yield (--cores, --threads) to time: 1, 2, 4 and so on up to one per core, for each of CORE_CHOICES.

    choices: the cores of each choice, the fastest first, from phonograd-phone info. Repetitions are left out: two
    pinned threads run on the same two cores with `all` as with `big`.
    """
    seen = set()
    for word in CORE_CHOICES:
        cores = choices.get(word, ())
        powers = (1 << power for power in range(len(cores).bit_length()))
        for threads in sorted({len(cores), *(count for count in powers if count < len(cores))} - {0}):
            place = (frozenset(cores[:threads] if pin else cores), threads)
            if place not in seen:
                seen.add(place)
                yield word, threads
