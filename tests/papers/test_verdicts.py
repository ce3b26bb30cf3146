"""What a claim needs to agree, and that the page says what the results show."""

from typing import Any

import msgspec
import pytest

from phonograd.device_runtime.base.errors import ArtifactsError
from phonograd.papers.experiment import Claim, Experiment, load, names
from phonograd.papers.page import _same_runs, page
from phonograd.papers.result import Result, read_result, results_folder
from phonograd.papers.verdicts import ClaimError, judge, require_all

EXPERIMENT = Experiment(
    title="Paper P, Table 0",
    about="Nothing.",
    kind="epsilon",
    settings={},
    published={"one": {"loss": 1.0, "hits, %": 10.0}, "two": {"loss": 2.0, "hits, %": 20.0}},
)
NODES = msgspec.structs.replace(EXPERIMENT, units="nodes")
ASCENDING = Claim("one is less", "loss", ("one", "two"))


def result(one: tuple[float, ...], two: tuple[float, ...], figure: str = "loss", **more: Any) -> Result:
    rows = {"one": {figure: one}, "two": {figure: two}}
    return Result("p-table0", False, tuple(range(1, len(one) + 1)), "none", {}, {}, rows, "0", **more)


def verdict(claim: Claim, found: Result, experiment: Experiment = EXPERIMENT) -> str:
    (one,) = judge(msgspec.structs.replace(experiment, claims=(claim,)), found)
    return one.verdict


@pytest.mark.parametrize(
    ("one", "two", "expected"),
    [
        ((1.0, 1.0, 1.0), (2.0, 1.5, 1.2), "agrees"),
        ((1.0, 1.0), (2.0, 2.0), "inconclusive"),  # two seeds
        ((1.0,), (2.0,), "inconclusive"),
        ((1.0, 1.0, 1.0), (2.0, 2.0, 0.9), "inconclusive"),  # one seed of three shows the opposite
        ((2.0, 2.0, 2.0), (1.0, 1.0, 1.9), "contradicts"),
        ((1.0, 1.0, 1.0), (1.05, 1.05, 1.05), "inconclusive"),  # less than a tenth of the paper's factor of 2
        ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), "inconclusive"),
    ],
)
def test_seeds_decide(one: tuple[float, ...], two: tuple[float, ...], expected: str) -> None:
    assert verdict(ASCENDING, result(one, two)) == expected


def test_figures_in_percent_differ_by_points() -> None:
    claim = Claim("one is less", "hits, %", ("one", "two"))
    for two, expected in ((11.1, "agrees"), (10.9, "inconclusive")):  # a tenth of the paper's 10 points is 1
        assert verdict(claim, result((10.0,) * 3, (two,) * 3, "hits, %")) == expected


def paired_result(differences: list[float], pooled: float | None = None) -> Result:
    before = tuple(5.0 + place for place in range(len(differences)))
    after = tuple(value * factor for value, factor in zip(before, differences, strict=True))
    mean = sum(differences) / len(differences) if pooled is None else pooled
    return result((1.0,), (mean,), units={"one": {"loss": (before,)}, "two": {"loss": (after,)}})


@pytest.mark.parametrize(
    ("factors", "expected"),
    [
        ([1.3, 1.2, 1.4, 1.1, 1.3, 1.2, 1.5, 0.98, 1.2, 1.3], "agrees"),
        ([1.3, 0.7, 1.4, 0.6, 1.3, 0.8, 1.5, 0.7, 1.2, 0.9], "inconclusive"),  # the interval has zero
        ([0.7, 0.8, 0.6, 0.9, 0.7, 0.8, 0.5, 1.02, 0.8, 0.7], "contradicts"),
        ([1.3, 1.2, 1.4, 1.1], "inconclusive"),  # too few nodes
    ],
)
def test_nodes_that_each_had_a_training_decide(factors: list[float], expected: str) -> None:
    assert verdict(ASCENDING, paired_result(factors), NODES) == expected


def test_users_of_one_model_say_nothing_of_another_run() -> None:
    assert verdict(ASCENDING, paired_result([1.3] * 12)) == "inconclusive"
    (before,), (after,) = (paired_result([0.8] * 12).units[row]["loss"] for row in ("one", "two"))
    units = {"one": {"loss": (before,) * 3}, "two": {"loss": (after,) * 3}}
    assert verdict(ASCENDING, result((1.0,) * 3, (2.0,) * 3, units=units)) == "agrees"  # as all three seeds show


def test_nodes_who_show_what_the_pooled_figure_does_not_leave_it_open() -> None:
    factors = [1.3, 1.2, 1.4, 1.1, 1.3, 1.2, 1.5, 0.98, 1.2, 1.3]
    assert verdict(ASCENDING, paired_result(factors, pooled=0.9), NODES) == "inconclusive"


def test_an_effect_is_a_reduction_beside_the_interval_that_it_is_of() -> None:
    factors = [2.0, 2.1, 2.2, 1.9, 2.0, 2.0, 2.1, 1.9, 2.0, 2.0]
    experiment = msgspec.structs.replace(NODES, claims=(ASCENDING,))
    (one,) = judge(experiment, paired_result(factors, pooled=1.5))
    pooled, each = one.ours.split("; each ")
    assert (pooled, one.paper) == ("-33.3 %", "-50 %")
    assert each == "-50.4 % (95 %: -51.8 % to -49.2 %)"


def test_a_claim_that_figures_cant_settle_says_why() -> None:
    claim = msgspec.structs.replace(ASCENDING, instead="not comparable: other texts")
    (one,) = judge(msgspec.structs.replace(EXPERIMENT, claims=(claim,)), result((1.0,) * 3, (2.0,) * 3))
    assert (one.verdict, one.evidence, one.ours) == ("not comparable", "other texts", "-50 % (-50 % to -50 %)")


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        (Claim("a range", "loss", ("one", "two"), low=0.9, high=2.1), "agrees"),
        (Claim("above", "loss", ("one",), low=1.3), "contradicts"),
        (Claim("above for some", "loss", ("two",), low=1.8), "inconclusive"),
        (Claim("near the paper's", "loss", ("one", "two"), within=0.6), "agrees"),
    ],
    ids=lambda value: value.says if isinstance(value, Claim) else None,
)
def test_a_range_needs_all_seeds(claim: Claim, expected: str) -> None:
    assert verdict(claim, result((1.0, 1.1, 1.2), (2.0, 1.7, 1.5))) == expected


def test_a_range_over_pairs_needs_their_interval() -> None:
    most = Claim("most pass", "passes", ("one",), low=0.5)
    for passing, expected in ((19, "agrees"), (12, "inconclusive"), (3, "contradicts")):
        pairs = (1.0,) * passing + (0.0,) * (20 - passing)
        rows = {"one": {"passes": (passing / 20,)}}
        found = Result("p-table0", False, (1,), "none", {}, {}, rows, "0", units={"one": {"passes": (pairs,)}})
        assert verdict(most, found, NODES) == expected


def test_what_is_exact_needs_no_seeds() -> None:
    assert verdict(msgspec.structs.replace(ASCENDING, exact=True), result((1.0,), (2.0,))) == "agrees"
    exact = msgspec.structs.replace(EXPERIMENT, exact=True)
    assert verdict(ASCENDING, result((1.0,), (2.0,)), exact) == "agrees"
    assert verdict(ASCENDING, result((2.0,), (1.0,)), exact) == "contradicts"


def test_a_chain_is_as_strong_as_its_weakest_pair() -> None:
    chain = Claim("one, two, three", "loss", ("one", "two", "three"))
    rows = {"one": {"loss": (1.0,) * 3}, "two": {"loss": (2.0,) * 3}, "three": {"loss": (3.0, 3.0, 1.9)}}
    found = msgspec.structs.replace(result((1.0,) * 3, (2.0,) * 3), rows=rows)
    (one,) = judge(msgspec.structs.replace(EXPERIMENT, claims=(chain,)), found)
    assert (one.verdict, one.evidence) == ("inconclusive", "2 of 3 seeds")


def test_a_small_run_is_held_to_the_means_alone() -> None:
    claims = (Claim("only full", "loss", ("two", "one"), small=False), ASCENDING)
    both = msgspec.structs.replace(EXPERIMENT, claims=claims)
    small = msgspec.structs.replace(result((1.0,), (2.0,)), small=True)
    assert [one.claim.says for one in judge(both, small)] == ["one is less"]
    require_all("p-table0", judge(both, small))
    wrong = msgspec.structs.replace(small, rows={"one": {"loss": (2.0,)}, "two": {"loss": (1.0,)}})
    with pytest.raises(ClaimError, match="expected that one is less; the figures above do not show it"):
        require_all("p-table0", judge(both, wrong))


def test_a_claim_about_no_figure_is_named() -> None:
    wrong = Claim("typo", "loss", ("one", "tow"))
    with pytest.raises(ArtifactsError, match="claim 'typo': a measured figure 'loss' of row 'tow' expected"):
        verdict(wrong, result((1.0,), (2.0,)))


def test_the_papers_own_figures_show_what_is_claimed() -> None:
    for name in names():
        experiment = load(name)
        for claim in experiment.claims:
            values = [experiment.published.get(row, {}).get(claim.figure) for row in claim.rows]
            if claim.ordered and not claim.own and None not in values:
                assert values == sorted(values), f"{name}: {claim.says}"  # type: ignore[type-var]


def test_the_page_opens_with_every_claims_verdict() -> None:
    folder = results_folder()
    assert folder is not None
    opening = page(folder).split("## The papers' claims")[1].split("\n## ")[0]
    shown = [line.split(" | ") for line in opening.splitlines() if line.startswith("| ")][1:]
    expected = 0
    for name in names():
        experiment, path = load(name), folder / f"{name}.json"
        if not path.exists():
            assert (f"| {experiment.title} |" in opening) == (not experiment.page)
        elif experiment.title.startswith("Paper"):
            found = read_result(path)
            for one in judge(experiment, found):
                if not one.claim.own:
                    expected += 1
                    assert any(one.claim.says in row and row[-1] == f"{one.verdict} |" for row in shown)
    assert sum(row[-1] != "not run |" for row in shown) == expected


def test_rows_of_two_tables_that_show_one_run_say_so() -> None:
    one = result((1.0,), (2.0,), runs={"one": ("a" * 64,), "two": ("b" * 64,)})
    other = result((1.0,), (2.0,), runs={"one": ("c" * 64,), "two": ("a" * 64,)})
    assert list(_same_runs("j", {"j": one, "k": other})) == ["one is the same run as two of `k`"]
    assert list(_same_runs("j", {"j": one})) == []


def test_results_of_one_run_are_equal() -> None:
    folder = results_folder()
    assert folder is not None
    seen: dict[tuple[str, ...], dict[str, tuple[float, ...]]] = {}
    for path in sorted(folder.glob("*.json")):
        found = read_result(path)
        for row, runs in found.runs.items():
            earlier = seen.setdefault(runs, found.rows[row])
            assert all(earlier[figure] == found.rows[row][figure] for figure in earlier.keys() & found.rows[row].keys())
