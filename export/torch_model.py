"""The language model in PyTorch, for pre-training and as the reference other engines are tested against."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.export.torch_cifg import Cifg
from phonograd.export.torch_layout import seeded_weights, to_canonical, to_torch

# (h, c) of an LSTM or CIFG, or (h,) of a GRU, each [layers, B, H] float32.
RecurrentState = tuple[Tensor, ...]


class LanguageModel(nn.Module):
    """Embedding, recurrent layers, optional projection, output layer: the model of any LanguageModelConfig.

    `dropout` is applied where Zaremba et al. (2014, fig. 2) apply it, on the connections that are not recurrent: the
    embedding's output, between the layers, and the last layer's output. Weights start as `seeded_weights(config,
    seed)`, so that a seed means the same model here and in an export without PyTorch.
    """

    def __init__(self, config: LanguageModelConfig, dropout: float = 0.0, seed: int = 0):
        super().__init__()
        self.config = config
        self.dropout = dropout
        recurrent = {"lstm": nn.LSTM, "gru": nn.GRU, "cifg": Cifg}[config.cell]
        # PyTorch warns of a dropout between layers where there is one layer.
        between = dropout if config.layers > 1 else 0.0
        self.embedding = nn.Embedding(config.vocabulary, config.embedding)
        self.add_module(config.cell, recurrent(config.embedding, config.hidden, config.layers, dropout=between))
        if config.projected:
            self.projection = nn.Linear(config.hidden, config.embedding, bias=False)
        output = config.embedding if config.tied else config.width
        self.decoder = nn.Linear(output, config.vocabulary, bias=config.output_bias)
        self.tie()
        self.load(seeded_weights(config, seed))

    def tie(self) -> None:
        """Make the embedding the decoder's weights, where the config says so; to_empty() parts them."""
        if self.config.tied:
            self.decoder.weight = self.embedding.weight

    def forward(self, tokens: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Logits [T, B, V] float32 (bfloat16 under autocast) of int64 `tokens` [T, B], and the state after them."""
        embedded = nn.functional.dropout(self.embedding(tokens), self.dropout, self.training)
        hidden, after = self.get_submodule(self.config.cell)(embedded, state if len(state) > 1 else state[0])
        hidden = nn.functional.dropout(hidden, self.dropout, self.training)
        if self.config.projected:
            hidden = self.projection(hidden)
        return self.decoder(hidden), after if isinstance(after, tuple) else (after,)

    def zero_state(self, minibatch: int) -> RecurrentState:
        """The state a text starts with: zeros, on the model's device."""
        shape = (self.config.layers, minibatch, self.config.hidden)
        return tuple(torch.zeros(shape, device=self.embedding.weight.device) for _ in self.config.states)

    def load(self, tensors: Mapping[str, Array]) -> None:
        """Copy canonical weights in. Raises WeightsError unless names, shapes and dtypes are the model's."""
        parameters = dict(self.named_parameters())
        with torch.no_grad():
            for name, array in to_torch(tensors, self.config).items():
                parameters[name].copy_(torch.from_numpy(array))

    def weights(self) -> dict[str, Array]:
        """Canonical float32 weights, copies of the model's."""
        return to_canonical({name: array.copy() for name, array in self.torch_weights().items()}, self.config)

    def torch_weights(self) -> dict[str, Array]:
        """Weights in PyTorch's names and layout, a tied embedding once. On the CPU they are the parameters' memory."""
        return {name: parameter.detach().cpu().numpy() for name, parameter in self.named_parameters()}
