"""Your own strategies: what they are loaded from, what the example averages, and that their faults harm nothing."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.own_strategy import LargestCluster
from phonograd.device_runtime.base.errors import UsageError, WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, load_tensors
from phonograd.device_runtime.update.update_file import DecodedUpdate
from phonograd.server_agg.aggregation import own
from phonograd.server_agg.aggregation.own import load_strategy, own_strategy
from phonograd.server_agg.aggregation.settings import StrategySettings
from phonograd.server_agg.aggregation.strategies import strategy_of
from phonograd.server_agg.aggregation.strategies.averaging import Averaging
from phonograd.server_agg.aggregation.strategy import ClientUpdate, Measures
from phonograd.server_agg.refusals import InvalidUpdateError, RoundFailedError
from phonograd.server_agg.report.document import report_of
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.server import ServerSettings
from tests.server_agg.coordinators import open_coordinator, send
from tests.server_agg.workshop import Workshop

NAME = "examples.own_strategy:LargestCluster"


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "LOADED", {})


def server_with(strategy: StrategySettings, clients: int = 2) -> ServerSettings:
    return ServerSettings(port=0, rules=RoundRules(clients_per_round=clients), strategy=strategy)


class Faulty(Averaging):
    """FedAvg, with a fault in what `part` says."""

    @dataclass(frozen=True)
    class Settings:
        part: str = "none"
        only_after: int = 0  # updates that were added

    own: Settings
    added = 0  # in all rounds

    def fault(self, part: str) -> bool:
        return self.own.part == part and Faulty.added >= self.own.only_after

    def measure(self, update: DecodedUpdate) -> dict[str, float]:
        if self.fault("measure"):
            raise KeyError("mine")
        if self.fault("unfit"):
            raise WeightsError("update: too long for me")
        return {**super().measure(update), **({"nan": float("nan")} if self.fault("measures") else {})}

    def add(self, update: DecodedUpdate, weight: int, measures: Measures) -> None:
        if self.fault("add"):
            _ = 1 // 0
        super().add(update, weight, measures)
        Faulty.added += 1

    def deltas(self, updates: Sequence[ClientUpdate]) -> Iterator[Array]:
        tiles = list(super().deltas(updates))
        if self.fault("raises"):
            raise RuntimeError("out of ideas")
        if self.fault("short"):
            tiles = tiles[:-1]
        if self.fault("long"):
            tiles = [*tiles, tiles[0]]
        if self.fault("shape"):
            tiles[0] = tiles[0][:-1]
        if self.fault("dtype"):
            tiles[0] = tiles[0].astype(np.float32)
        if self.fault("type"):
            tiles[0] = list(tiles[0])  # type: ignore[call-overload]
        if self.fault("nan"):
            tiles[-1][-1] = np.nan
        return iter(tiles)

    def metadata(self) -> dict[str, str]:
        return {"round": "7"} if self.fault("metadata") else {"mine": "yes"}


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Callable[..., StrategySettings]:
    monkeypatch.setattr(Faulty, "added", 0)
    return lambda part, **more: own_strategy(Faulty, part=part, **more)


def endings(coordinator: Coordinator) -> list[tuple[Any, Any]]:
    return [(one.ending, one.reason) for one in report_of(coordinator.ledger).rounds if one.ending]


CLOSING = {
    "raises": "deltas: RuntimeError: out of ideas",
    "short": "found the end",
    "long": "found another tile",
    "shape": "float64 [",
    "dtype": "found float32 [",
    "type": "found list",
    "nan": "found NaN or infinity",
    "metadata": "found 'round': '7'",
}


@pytest.mark.parametrize("part", CLOSING)
def test_a_fault_at_the_close_fails_its_round_and_the_next_one_opens(
    part: str, faulty: Callable[..., StrategySettings], workshop: Workshop, state: Path
) -> None:
    with open_coordinator(workshop, state, server_with(faulty(part))) as coordinator:
        for phone in (1, 2):
            send(coordinator, workshop.update(phone), f"phone{phone}")
        [(ending, reason)] = endings(coordinator)
        assert ending == "failed"
        assert f"Faulty: {'metadata' if part == 'metadata' else 'deltas'}: " in reason
        assert CLOSING[part] in reason
        assert (coordinator.current.round, coordinator.current.base_sha256) == (2, workshop.base_sha256)
        assert coordinator.discard(1) == 2  # they were kept
        assert send(coordinator, workshop.update(1, round=2), "phone1").accepted == 1


@pytest.mark.parametrize("part", ["measure", "measures", "add"])
def test_a_fault_with_an_update_fails_its_round_and_says_so_to_the_phone(
    part: str, faulty: Callable[..., StrategySettings], workshop: Workshop, state: Path
) -> None:
    with open_coordinator(workshop, state, server_with(faulty(part, only_after=1))) as coordinator:
        send(coordinator, workshop.update(1), "phone1")
        with pytest.raises(RoundFailedError, match="round 1: its strategy failed; take part in the next round"):
            send(coordinator, workshop.update(2), "phone2")
        [(ending, reason)] = endings(coordinator)
        assert ending == "failed"
        assert f"Faulty: {part.removesuffix('s')}: " in reason
        assert coordinator.current.round == 2
        assert coordinator.discard(1) == 1


def test_a_strategy_may_refuse_an_update(
    faulty: Callable[..., StrategySettings], workshop: Workshop, state: Path
) -> None:
    with open_coordinator(workshop, state, server_with(faulty("unfit"))) as coordinator:
        with pytest.raises(InvalidUpdateError, match="too long for me"):
            send(coordinator, workshop.update(1), "phone1")
        assert coordinator.current.round == 1


def test_a_fault_at_a_restart_fails_the_round_that_has_its_updates(
    faulty: Callable[..., StrategySettings], workshop: Workshop, state: Path
) -> None:
    settings = server_with(faulty("add", only_after=1))
    with open_coordinator(workshop, state, settings) as coordinator:
        send(coordinator, workshop.update(1), "phone1")
    with open_coordinator(workshop, state, settings) as coordinator:
        assert [ending for ending, _ in endings(coordinator)] == ["failed"]
        assert coordinator.current.round == 2


def test_without_a_fault_it_is_fedavg_and_its_metadata_are_in_the_model(
    faulty: Callable[..., StrategySettings], workshop: Workshop, state: Path, tmp_path: Path
) -> None:
    made = []
    for folder, strategy in ((state, faulty("none")), (tmp_path / "fedavg", StrategySettings())):
        with open_coordinator(workshop, folder, server_with(strategy)) as coordinator:
            for phone in (1, 2):
                send(coordinator, workshop.update(phone), f"phone{phone}")
            made.append(coordinator.folder.model(coordinator.current.base_sha256))
    assert b'"mine"' in made[0].read_bytes()[:2000]
    mine, fedavg = map(load_tensors, made)
    assert all(np.array_equal(mine[name], fedavg[name]) for name in fedavg)


def test_the_example_averages_the_largest_cluster(workshop: Workshop, state: Path) -> None:
    base, along = load_tensors(workshop.base_path), workshop.trained(1)
    towards = {name: along[name] - base[name] for name in base}
    moved = [{name: base[name] + np.float32(scale) * towards[name] for name in base} for scale in (1, 2, -4)]
    with open_coordinator(workshop, state, server_with(own_strategy(NAME, similarity=0.5), 3)) as coordinator:
        for phone, trained in enumerate(moved):
            send(coordinator, workshop.update(phone, trained=trained), f"phone{phone}")
        assert endings(coordinator) == [("full", None)]
        model = load_tensors(coordinator.folder.model(coordinator.current.base_sha256))
    for name in base:
        np.testing.assert_allclose(model[name], base[name] + 1.5 * towards[name], atol=1e-6)


def test_a_restart_needs_the_strategy_only_for_a_round_that_was_opened_with_it(
    workshop: Workshop, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_coordinator(workshop, state, server_with(own_strategy(NAME))) as coordinator:
        send(coordinator, workshop.update(1), "phone1")
    monkeypatch.setattr(own, "LOADED", {})
    with pytest.raises(UsageError, match=f"`strategy` {NAME}: expected to be loaded"):
        Coordinator(workshop.artifacts, state, server_with(StrategySettings()))
    load_strategy(NAME)
    with open_coordinator(workshop, state, server_with(StrategySettings())) as coordinator:
        send(coordinator, workshop.update(2), "phone2")
        assert coordinator.current.round == 2
    monkeypatch.setattr(own, "LOADED", {})
    with open_coordinator(workshop, state, server_with(StrategySettings())) as coordinator:
        assert report_of(coordinator.ledger).rounds[0].strategy == NAME


def test_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("clustered", NAME, "phonograd.strategies")
    monkeypatch.setattr(own, "entry_points", lambda group: (point,) if group == point.group else ())
    settings = own_strategy("clustered", similarity=0.4)
    assert (settings.strategy, json.loads(settings.own)) == (NAME, {"similarity": 0.4})
    assert StrategySettings.from_json(settings.to_json()) == settings
    assert strategy_of(settings).min_updates == 2
    with pytest.raises(UsageError, match=r"'clusterd', expected one of fedavg, .*transfer, clustered, or MODULE:CLASS"):
        load_strategy("clusterd")


def test_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in_this_folder.py").write_text(
        "import phonograd\n\nclass Mine(phonograd.Averaging):\n    class Inner(phonograd.Averaging):\n        pass\n"
    )
    (tmp_path / "json.py").write_text("raise SystemError('it must not hide the standard library')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_strategy("in_this_folder:Mine") == "in_this_folder:Mine"
    assert load_strategy("in_this_folder:Mine.Inner") == "in_this_folder:Mine.Inner"
    sys.modules.pop("in_this_folder")


class NoDataclass(Averaging):
    Settings = dict


class NoDefault(Averaging):
    @dataclass(frozen=True)
    class Settings:
        mu: float


HERE = __name__


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("no.such.module:Mine", "cannot be imported: ModuleNotFoundError"),
        (f"{HERE}:Missing", "cannot be imported: AttributeError"),
        ("some path:Mine", "expected MODULE:CLASS"),
        ("json:loads", "expected a subclass of phonograd.Aggregation, found <function loads"),
        (f"{HERE}:NoDataclass", "`Settings` expected to be a dataclass"),
        (f"{HERE}:NoDefault", "setting 'mu': a default expected"),
    ],
)
def test_what_is_no_strategy(name: str, expected: str) -> None:
    with pytest.raises(UsageError) as refused:
        load_strategy(name)
    assert expected in str(refused.value)
    assert f"`strategy` {'is ' if 'path' in name else ''}" in str(refused.value)


def test_settings_out_of_range() -> None:
    with pytest.raises(ValueError, match="`similarity` is 2.0, expected -1 to 1"):
        own_strategy(LargestCluster, similarity=2)
