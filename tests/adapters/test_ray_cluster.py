"""A Ray that cannot be reached, or does not start."""

import socket
from typing import Any

import pytest

import phonograd
from phonograd.adapters.ray import cluster

pytestmark = pytest.mark.ray


def test_an_address_without_a_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))  # nobody listens
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        monkeypatch.setattr(cluster.ray, "init", None)  # not asked
        message = f"RAY_ADDRESS {address}: a Ray cluster expected, found none .*refused.*unset RAY_ADDRESS"
        with pytest.raises(phonograd.ServerUnreachableError, match=message), cluster.cluster(1):
            pass


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_a_slow_start_is_tried_again(monkeypatch: pytest.MonkeyPatch, failures: int) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    begun: list[str] = []

    def init(*_: object, **__: Any) -> None:
        begun.append("start")
        if len(begun) <= failures:
            raise Exception("The current node timed out during startup.")  # as Ray does

    monkeypatch.setattr(cluster.ray, "init", init)
    if failures < cluster.STARTS:
        with cluster.cluster(1):
            assert len(begun) == failures + 1
        return
    expected = pytest.raises(phonograd.ServerUnreachableError, match="in 3 attempts .The current node timed out")
    with expected, cluster.cluster(1):
        pass
    assert len(begun) == cluster.STARTS
