"""A cohort on the sparse graph, with drop-outs at each stage: the sum is the plain one to the bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phonograd.device_runtime.masked.cohort import MaskedCohort, MaskedSum
from tests.native.masked_phones import Fleet, Sharing, message, of_all, shares_for, without


def some(phones: dict[str, Any], random: np.random.Generator, share: float) -> dict[str, Any]:
    """The phones without a share of them, drawn at random."""
    gone = random.permutation(sorted(phones))[: int(share * len(phones))]
    left = dict(phones)
    without(left, list(gone))
    return left


@pytest.mark.long
@pytest.mark.parametrize("count", [200])
def test_the_sum_of_a_large_cohort_is_the_plain_one(tmp_path: Path, count: int) -> None:
    fleet = Fleet(tmp_path)
    fleet.settings["cohort"], fleet.settings["dropouts"] = count, 0.4
    random = np.random.default_rng(count)
    grids = {name: fleet.grid(name, seed, tokens=seed + 1) for seed, name in enumerate(map(str, range(count)))}
    phones: dict[str, Any] = {name: fleet.phone(name, grid) for name, grid in grids.items()}
    keys = [message(phone.first(), "keys") for phone in phones.values()]
    sent = of_all(phones, {"cohort": keys})
    phones = some(phones, random, 0.1)  # lost before they told their draws
    draws = {name: message(sent[name], "draws")["draw"] for name in phones}
    sent = of_all(phones, {"draws": draws})
    phones = some(phones, random, 0.1)
    shares = {name: message(sent[name], "shares") for name in phones}
    sent = of_all(phones, {name: {"members": sorted(shares), "shares": shares_for(name, shares)} for name in phones})
    phones = some(phones, random, 0.1)
    found = Sharing(keys, draws, shares)
    found.signatures = {name: message(sent[name], "members")["signature"] for name in phones}
    sent = of_all(phones, {})
    files = {name: one[1] for name in phones if (one := sent[name]) and isinstance(one[1], Path)}
    cohort = found.cohort(MaskedCohort, fleet)
    assert max(len(one["shares"]) for one in shares.values()) < len(draws) - 1  # nobody has all for neighbours
    about = cohort.about(fleet.parameters)
    total = MaskedSum(about.values, about.width)
    of_all(phones, {})
    alive = sorted(phones)
    for name in alive:
        total.add(cohort, files[name])
    cohort.list(alive, found.signatures)
    sent = of_all(phones, found.answer_list(alive))
    phones = some(phones, random, 0.05)
    signatures = {name: message(sent[name], "agreement")["signature"] for name in phones}
    answers = {name: message(one, "answer") for name, one in of_all(phones, {"signatures": signatures}).items()}
    answers = some(answers, random, 0.05)
    for name, answer in answers.items():
        cohort.check_answer(name, answer)
    unmasked = total.unmask(cohort, answers)
    plain = np.sum([fleet.values(grids[name]) for name in alive], axis=0)
    assert (unmasked.wrong, unmasked.weight) == ((), len(alive))
    np.testing.assert_array_equal(total.values(), plain)
