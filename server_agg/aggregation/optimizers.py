"""Server optimizers: from a round's averaged delta to the step of the model (Reddi et al. 2021).

The averaged delta is the pseudo-gradient, with the sign that improves the model. The state of an optimizer, the moments
of each parameter, is one tensor file: `NAME.moments` F32 [*shape, number of moments].
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, TensorSpec, check_specs
from phonograd.server_agg.aggregation.settings import StrategySettings

STATE_FORMAT = "phonograd-optimizer-state"
STATE_VERSION = "1"


class ServerOptimizer(Protocol):
    """An elementwise update rule."""

    @property
    def initial_moments(self) -> tuple[float, ...]:
        """The initial value of each moment."""
        ...

    def step(self, delta: Array, moments: Array) -> Array:
        """The step, float64 [n], for `delta` [n]. Updates `moments`, float64 [n, number of moments], in place."""
        ...


class NoOptimizer:
    """The step is learning rate x delta, without state."""

    initial_moments: tuple[float, ...] = ()

    def __init__(self, settings: StrategySettings):
        self._rate = settings.server_lr

    def step(self, delta: Array, moments: Array) -> Array:
        """learning rate x delta."""
        del moments
        if self._rate != 1:
            delta *= self._rate
        return delta


class Momentum:
    """FedAvgM (Hsu et al. 2019): m <- beta m + delta; the step is learning rate x m."""

    initial_moments: tuple[float, ...] = (0.0,)

    def __init__(self, settings: StrategySettings):
        self._rate = settings.server_lr
        self._beta = settings.momentum

    def step(self, delta: Array, moments: Array) -> Array:
        """learning rate x m."""
        m = moments[:, 0]
        m *= self._beta
        m += delta
        step: Array = self._rate * m
        return step


class Adam:
    """FedAdam (Reddi et al. 2021, Algorithm 2): m <- beta1 m + (1 - beta1) delta, v <- beta2 v + (1 - beta2) delta^2;
    the step is learning rate x m / (sqrt(v) + tau). As in the paper, v starts at tau^2 and there is no bias correction.
    """

    def __init__(self, settings: StrategySettings):
        self._rate = settings.server_lr
        self._beta1, self._beta2 = settings.beta1, settings.beta2
        self._tau = settings.adam_epsilon
        self.initial_moments: tuple[float, ...] = (0.0, self._tau**2)

    def step(self, delta: Array, moments: Array) -> Array:
        """learning rate x m / (sqrt(v) + tau)."""
        m, v = moments[:, 0], moments[:, 1]
        m *= self._beta1
        m += (1 - self._beta1) * delta
        v *= self._beta2
        v += (1 - self._beta2) * delta**2
        step: Array = self._rate * m / (np.sqrt(v) + self._tau)
        return step


def optimizer_of(settings: StrategySettings) -> ServerOptimizer:
    """The optimizer named in the settings."""
    makers: dict[str, Callable[[StrategySettings], ServerOptimizer]] = {
        "none": NoOptimizer,
        "momentum": Momentum,
        "adam": Adam,
    }
    return makers[settings.server_optimizer](settings)


def state_specs(base: TensorFile, moments: int) -> list[TensorSpec]:
    """The tensors of a state file, in order."""
    return [TensorSpec(f"{name}.moments", "F32", (*spec.shape, moments)) for name, spec in base.specs.items()]


def state_metadata(settings: StrategySettings) -> dict[str, str]:
    """The metadata of a state file."""
    return {"format": STATE_FORMAT, "version": STATE_VERSION, "optimizer": settings.server_optimizer}


def state_matches(settings: StrategySettings, state: TensorFile) -> bool:
    """Whether a state file was written by the optimizer named in the settings."""
    return state.metadata.get("optimizer") == settings.server_optimizer


class Moments:
    """Moments tile by tile, from an earlier round's state or their initial values.

    Raises WeightsError for a state of another optimizer or model shape.
    """

    def __init__(
        self, settings: StrategySettings, base: TensorFile, initial_moments: tuple[float, ...], old: TensorFile | None
    ):
        self._initial_moments = initial_moments
        self._old = old
        if old is None:
            return
        for key, expected in state_metadata(settings).items():
            if (found := old.metadata.get(key)) != expected:
                raise WeightsError(f"{old.path}: expected {key} {expected}, found {found}; start without this state")
        check_specs(str(old.path), old.specs, state_specs(base, len(initial_moments)))

    def read(self, name: str, start: int, stop: int) -> Array:
        """float64 [stop - start, number of moments] of a tensor's elements."""
        count = len(self._initial_moments)
        if self._old is None or count == 0:
            return np.tile(np.array(self._initial_moments, np.float64), (stop - start, 1))
        flat = self._old.read_range(f"{name}.moments", start * count, stop * count)
        return flat.reshape(-1, count).astype(np.float64)
