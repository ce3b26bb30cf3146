"""A language model's weights for P phones, and one training step of all of them.

Phones hold only the rows that training can move: of an untied embedding those of the words they read, and with an
output sample those of its candidates. All ids in here are places among these rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from phonograd.device_runtime.engine.backend import IGNORED
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.simulation.batched.recurrent import LayerWeights, State, Sweep, sweep

EMBEDDING, DECODER, BIAS, PROJECTION = "embedding.weight", "decoder.weight", "decoder.bias", "projection.weight"
# Added to the logit of a row that only fills a phone's candidates up to the batch's number: no probability is left.
NEVER = -1e30


@dataclass(frozen=True)
class Words:
    """Vocabulary ids of the rows that each phone holds, int64: of those read [P, U], and of those scored [P, C].

    None: all of the vocabulary. shifts: added to the scored words' logits, float32 [P, C], NEVER for a row that only
    fills up. A tied model has one table, `scored`.
    """

    read: Tensor | None
    scored: Tensor | None
    shifts: Tensor | None


@dataclass(frozen=True)
class Product:
    """A weight's gradient as its factors: rowsᵀ·columns, [P, N, X] and [P, N, Y] of a weight [P, X, Y]."""

    rows: Tensor
    columns: Tensor

    def squared(self) -> Tensor:
        """The squared norm of each phone's, float64 [P]: that of the product, which is not computed."""
        return _total(self.rows.bmm(self.rows.mT), self.columns.bmm(self.columns.mT))

    def subtract(self, weight: Tensor, rates: Tensor) -> None:
        """Take it times `rates` [P] off the weight."""
        weight.baddbmm_(self.rows.mT, self.columns * -rates[:, None, None])


@dataclass(frozen=True)
class Vector:
    """A bias's gradient [P, X]."""

    values: Tensor

    def squared(self) -> Tensor:
        """See Product."""
        return _total(self.values, self.values)

    def subtract(self, weight: Tensor, rates: Tensor) -> None:
        """See Product."""
        weight.addcmul_(self.values, -rates[:, None])


@dataclass(frozen=True)
class Rows:
    """A table's gradient: rows [P, N, E] at `places` [P, N], where a place may come again."""

    places: Tensor
    rows: Tensor

    def squared(self) -> Tensor:
        """See Product."""
        return _total(self._summed, self.rows)

    def subtract(self, weight: Tensor, rates: Tensor) -> None:
        """See Product. Equal places write equal rows, so the order of the writes does not matter."""
        phone = torch.arange(len(weight), device=weight.device)[:, None]
        weight[phone, self.places] = weight[phone, self.places] - self._summed * rates[:, None, None]

    @property
    def _summed(self) -> Tensor:
        """Each row with all those at its place added."""
        same = (self.places[:, :, None] == self.places[:, None, :]).to(self.rows.dtype)
        return same.bmm(self.rows)


@dataclass(frozen=True)
class Tied:
    """The gradient of a table that is also the output layer's matrix: the sum of both."""

    product: Product
    rows: Rows

    def squared(self) -> Tensor:
        """See Product. |A + S|² = |A|² + |S|² + 2⟨A, S⟩."""
        N = self.product.rows.shape[1]
        at_places = self.product.rows.gather(2, self.rows.places[:, None, :].expand(-1, N, -1))
        between = _total(at_places, self.product.columns.bmm(self.rows.rows.mT))
        return self.product.squared() + self.rows.squared() + 2 * between

    def subtract(self, weight: Tensor, rates: Tensor) -> None:
        """See Product."""
        self.product.subtract(weight, rates)
        self.rows.subtract(weight, rates)


Gradient = Product | Vector | Rows | Tied


class BatchedModel:
    """The weights of P phones, which begin as `base`; `trained`: to be trained, else they share the base's memory."""

    def __init__(
        self, config: LanguageModelConfig, base: Mapping[str, Tensor], words: Words, phones: int, trained: bool = True
    ):
        self._config = config
        self._shifts = words.shifts
        of_rows = {DECODER: words.scored, BIAS: words.scored, EMBEDDING: words.scored if config.tied else words.read}
        self.weights: dict[str, Tensor] = {}
        for name, tensor in base.items():
            ids = of_rows.get(name)
            if ids is not None:
                self.weights[name] = tensor[ids]
                continue
            leading = tensor if name.startswith(f"{config.cell}.") else tensor[None]  # ONNX's axis of directions, 1
            whole = leading.expand(phones, *leading.shape[1:])
            self.weights[name] = whole.clone(memory_format=torch.contiguous_format) if trained else whole

    def zero_state(self, minibatch: int) -> list[State]:
        """Each layer's at the start of a text."""
        config, R = self._config, self.weights[f"{self._config.cell}.0.R"]
        shape = (len(R), minibatch, config.hidden)
        return [tuple(R.new_zeros(shape) for _ in config.states) for _ in range(config.layers)]

    def forward(self, tokens: Tensor, states: Sequence[State], masks: Sequence[Tensor] = ()) -> "Forward":
        """Run the first A phones on tokens [A, N], from states [A, B, H] of each layer.

        masks: dropout's, [A, N, width] each: of the embedding's output and each layer's; none without dropout.
        """
        return Forward(
            self._config,
            {name: part[: len(tokens)] for name, part in self.weights.items()},
            tokens,
            states,
            masks,
            None if self._shifts is None else self._shifts[: len(tokens)],
        )


class Forward:
    """One window through the model: logits [A, N, C], the states after it, and the way back."""

    def __init__(
        self,
        config: LanguageModelConfig,
        weights: Mapping[str, Tensor],
        tokens: Tensor,
        states: Sequence[State],
        masks: Sequence[Tensor],
        shifts: Tensor | None,
    ):
        self._config, self._weights, self._tokens, self._masks = config, weights, tokens, masks
        phone = torch.arange(len(tokens), device=tokens.device)[:, None]
        x = self._masked(weights[EMBEDDING][phone, tokens], 0)
        self._inputs: list[Tensor] = []
        self._sweeps: list[Sweep] = []
        for layer, state in enumerate(states):
            parts = LayerWeights(*(weights[f"{config.cell}.{layer}.{part}"] for part in "WRB"))
            self._inputs.append(x)
            self._sweeps.append(sweep(config.cell, parts, x, state))
            x = self._masked(self._sweeps[-1].outputs, layer + 1)
        self.states = [one.state for one in self._sweeps]
        self._hidden = x
        self._projected = x.bmm(weights[PROJECTION].mT) if config.projected else x
        self._matrix = weights[EMBEDDING if config.tied else DECODER]
        bias = weights[BIAS] if config.output_bias else None
        if shifts is not None:
            bias = shifts if bias is None else bias + shifts
        products = self._projected, self._matrix.mT
        self.logits = torch.bmm(*products) if bias is None else torch.baddbmm(bias[:, None], *products)

    def gradients(self, deltas: Tensor) -> Iterator[tuple[str, Gradient]]:
        """All weights' by name, from the logits' gradient [A, N, C]."""
        config, weights = self._config, self._weights
        output = Product(deltas, self._projected)
        if not config.tied:
            yield DECODER, output
        if config.output_bias:
            yield BIAS, Vector(deltas.sum(1))
        dx = deltas.bmm(self._matrix)
        if config.projected:
            yield PROJECTION, Product(dx, self._hidden)
            dx = dx.bmm(weights[PROJECTION])
        for layer in reversed(range(config.layers)):
            found = self._sweeps[layer].backward(self._masked(dx, layer + 1))
            yield f"{config.cell}.{layer}.W", Product(found.deltas, self._inputs[layer])
            yield f"{config.cell}.{layer}.R", Product(found.recurrent_deltas, found.previous)
            yield f"{config.cell}.{layer}.B", Vector(found.bias)
            dx = found.inputs
        rows = Rows(self._tokens, self._masked(dx, 0))
        yield EMBEDDING, Tied(output, rows) if config.tied else rows

    def _masked(self, x: Tensor, place: int) -> Tensor:
        return x * self._masks[place] if self._masks else x


def losses_and_deltas(
    logits: Tensor, targets: Tensor, training: TrainingConfig, teacher: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Each phone's loss in nats a token [A], and the gradient of its loss with respect to the logits, in their memory.

    targets [A, N]: places among the rows scored, or IGNORED; teacher: its logits, for LwF (paper P, eqs. 1-2).
    """
    counted = targets != IGNORED
    at = targets.clamp(min=0)[..., None]
    predictions = counted.sum(1)
    highest = logits.amax(2, keepdim=True)
    logits -= highest
    hard = logits.gather(2, at)[..., 0]
    soft = hard
    share = 1.0
    if teacher is not None:
        share = training.user_share
        teacher = teacher.softmax(2)
        soft = (teacher * logits).sum(2)
    sums = logits.exp_().sum(2, keepdim=True)
    loss = sums[..., 0].log() - share * hard - (1 - share) * soft
    nats = (loss * counted).sum(1, dtype=torch.float64) / predictions
    deltas = logits.div_(sums)
    if teacher is not None:
        deltas.sub_(teacher.mul_(1 - share))
    deltas.scatter_add_(2, at, torch.full_like(at, -share, dtype=deltas.dtype))
    divisor = predictions if training.loss_reduction == "mean" else torch.full_like(predictions, training.minibatch)
    deltas.mul_((counted / divisor[:, None])[..., None])
    return nats, deltas


def _total(one: Tensor, other: Tensor) -> Tensor:
    """The sum of all elements' products for each phone, float64."""
    return (one * other).flatten(1).sum(1, dtype=torch.float64)
