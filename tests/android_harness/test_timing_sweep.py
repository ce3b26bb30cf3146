"""A sweep's points: each number of threads on each choice of cores, and nothing twice."""

from phonograd.android_harness.timing.phone_task import sweep_points

BIG, LITTLE = (7, 4, 5, 6), (0, 1, 2, 3)
CHOICES = {"all": (*BIG, *LITTLE), "big": BIG, "little": LITTLE}


def test_threads_that_move_are_tried_on_all_cores_too() -> None:
    found = list(sweep_points(CHOICES, pin=False))
    assert found[6:] == [("all", 1), ("all", 2), ("all", 4), ("all", 8)]


def test_cores_of_one_kind_are_tried_once() -> None:
    alike = dict.fromkeys(("all", "big", "little"), (0, 1, 2))
    assert list(sweep_points(alike, pin=True)) == [("big", 1), ("big", 2), ("big", 3)]
    assert list(sweep_points({"all": (3,)}, pin=True)) == [("all", 1)]
