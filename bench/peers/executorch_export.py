"""Lower the language model for ExecuTorch: python -m phonograd.bench.peers.executorch_export ARTIFACTS PROGRAM

XNNPACK takes only `bmm` of the products in a joint graph, so all products are written as `bmm`.
"""

import sys
from pathlib import Path

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch import Tensor, nn
from torch.export.experimental import _export_forward_backward

from phonograd.device_runtime.base.files import write_bytes
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts, open_artifacts
from phonograd.device_runtime.formats.tensor_file import load_tensors


class TrainingStep(nn.Module):
    """Loss and next states (h, c [layers, B, H]) of an untied LSTM; parameters as in the artifacts, in ONNX's order."""

    def __init__(self, artifacts: Artifacts):
        super().__init__()
        self.training_config, self.model = artifacts.manifest.training, artifacts.manifest.model
        for name, array in load_tensors(artifacts.path(WEIGHTS)).items():
            self.register_parameter(name.replace(".", "_"), nn.Parameter(torch.from_numpy(array)))

    def forward(self, tokens: Tensor, targets: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See phonograd.bench.worker.Contestant.step."""
        after = []
        x = nn.functional.embedding(tokens.flatten(), self.get_parameter("embedding_weight"))
        for layer in range(self.model.layers):
            x, *states = self._layer(layer, x, h[layer], c[layer])
            after.append(states)
        logits = _product(x, self.get_parameter("decoder_weight"))
        if self.model.output_bias:
            logits = logits + self.get_parameter("decoder_bias")
        loss = -torch.log_softmax(logits, 1).gather(1, targets.reshape(-1, 1)).sum()
        summed = self.training_config.loss_reduction == "sum_over_time"
        loss = loss / (self.training_config.minibatch if summed else targets.numel())
        next_h, next_c = (torch.stack(states).detach() for states in zip(*after, strict=True))
        return loss, next_h, next_c

    def _layer(self, layer: int, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        W, R, bias = (self.get_parameter(f"lstm_{layer}_{part}")[0] for part in "WRB")
        T, B, H = self.training_config.bptt, self.training_config.minibatch, self.model.hidden
        inputs = (_product(x, W) + bias.view(2, -1).sum(0)).view(T, B, 4 * H).unbind(0)
        turned, outputs = R.t().unsqueeze(0), []
        for t in range(T):
            gates = inputs[t] + torch.bmm(h.unsqueeze(0), turned).squeeze(0)
            i, o, f, new = gates.split(H, dim=1)  # type: ignore[no-untyped-call]
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(new)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.cat(outputs), h, c


def _product(x: Tensor, weights: Tensor) -> Tensor:
    return torch.bmm(x.unsqueeze(0), weights.t().unsqueeze(0)).squeeze(0)


def main(folder: Path, program: Path) -> None:
    """Write the ExecuTorch program of the artifacts' training step."""
    artifacts = open_artifacts(folder)
    training, model = artifacts.manifest.training, artifacts.manifest.model
    ids = torch.zeros(training.bptt, training.minibatch, dtype=torch.int64)
    states = torch.zeros(model.layers, training.minibatch, model.hidden)
    exported = torch.export.export(TrainingStep(artifacts), (ids, ids.clone(), states, states.clone()), strict=True)
    lowered = to_edge_transform_and_lower(_export_forward_backward(exported), partitioner=[XnnpackPartitioner()])
    write_bytes(program, lowered.to_executorch().buffer)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
