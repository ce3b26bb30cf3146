"""Server optimizers: from a round's averaged delta to the step of the model (Reddi et al. 2021).

The averaged delta is the pseudo-gradient, with the sign that improves the model. The state of an optimizer, the moments
of each parameter, is one tensor file: `NAME.moments` F32 [*shape, number of moments].
"""

import numpy as np

from phonograd.device_runtime.base.errors import WeightsError
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, TensorSpec, check_specs
from phonograd.server_agg.aggregation.settings import StrategySettings

STATE_FORMAT = "phonograd-optimizer-state"
STATE_VERSION = "1"


class ServerOptimizer:
    """An elementwise update rule, here the one without state: the step is learning rate x delta.

    initial_moments: the initial value of each moment.
    """

    initial_moments: tuple[float, ...] = ()

    def __init__(self, settings: StrategySettings):
        self.settings = settings

    def step(self, delta: Array, moments: Array) -> Array:
        """The step, float64 [n], for `delta` [n]. Updates `moments`, float64 [n, number of moments], in place."""
        del moments
        if self.settings.server_lr != 1:
            delta *= self.settings.server_lr
        return delta


class Momentum(ServerOptimizer):
    """FedAvgM (Hsu et al. 2019): m <- beta m + delta; the step is learning rate x m."""

    initial_moments = (0.0,)

    def step(self, delta: Array, moments: Array) -> Array:
        """learning rate x m."""
        m = moments[:, 0]
        m *= self.settings.momentum
        m += delta
        step: Array = self.settings.server_lr * m
        return step


class Adam(ServerOptimizer):
    """FedAdam (Reddi et al. 2021, Algorithm 2): m <- beta1 m + (1 - beta1) delta, v <- beta2 v + (1 - beta2) delta^2;
    the step is learning rate x m / (sqrt(v) + tau). As in the paper, v starts at tau^2 and there is no bias correction.
    """

    def __init__(self, settings: StrategySettings):
        super().__init__(settings)
        self.initial_moments = (0.0, settings.adam_epsilon**2)

    def step(self, delta: Array, moments: Array) -> Array:
        """learning rate x m / (sqrt(v) + tau)."""
        m, v, beta1, beta2 = moments[:, 0], moments[:, 1], self.settings.beta1, self.settings.beta2
        m *= beta1
        m += (1 - beta1) * delta
        v *= beta2
        v += (1 - beta2) * delta**2
        step: Array = self.settings.server_lr * m / (np.sqrt(v) + self.settings.adam_epsilon)
        return step


OPTIMIZERS = {"none": ServerOptimizer, "momentum": Momentum, "adam": Adam}


def state_specs(base: TensorFile, moments: int) -> list[TensorSpec]:
    """The tensors of a state file, in order."""
    return [TensorSpec(f"{name}.moments", "F32", (*spec.shape, moments)) for name, spec in base.specs.items()]


def state_metadata(settings: StrategySettings) -> dict[str, str]:
    """The metadata of a state file."""
    return {"format": STATE_FORMAT, "version": STATE_VERSION, "optimizer": settings.server_optimizer}


class Moments:
    """Moments tile by tile, from an earlier round's state or their initial values.

    Raises WeightsError for a state of another optimizer or model shape.
    """

    def __init__(self, optimizer: ServerOptimizer, base: TensorFile, old: TensorFile | None):
        self._initial = np.array(optimizer.initial_moments, np.float64)
        self._old = old
        if old is None:
            return
        for key, expected in state_metadata(optimizer.settings).items():
            if (found := old.metadata.get(key)) != expected:
                raise WeightsError(f"{old.path}: expected {key} {expected}, found {found}; start without this state")
        check_specs(str(old.path), old.specs, state_specs(base, len(self._initial)))

    def read(self, name: str, start: int, stop: int) -> Array:
        """float64 [stop - start, number of moments] of a tensor's elements."""
        count = len(self._initial)
        if self._old is None or count == 0:
            return np.tile(self._initial, (stop - start, 1))
        flat = self._old.read_range(f"{name}.moments", start * count, stop * count)
        return flat.reshape(-1, count).astype(np.float64)
