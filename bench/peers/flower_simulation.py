"""Flower's simulation: its engine on Ray, its FedAvg, and clients that train in PyTorch as its users write them.

It runs in an environment of its own: pip install 'flwr[simulation]' torch msgspec numpy.
"""

import os
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # read when flwr is imported
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
import ray  # noqa: F401  # says what is missing before the engine does
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from phonograd.bench.environment import version_of
from phonograd.bench.worker import SimulatorJob, Tell
from phonograd.device_runtime.engine.backend import IGNORED
from phonograd.device_runtime.formats.manifest import WEIGHTS, Manifest, open_artifacts
from phonograd.device_runtime.formats.tensor_file import load_tensors
from phonograd.device_runtime.text.windows import windows
from phonograd.export.torch_model import LanguageModel

WEIGHT = "num-examples"  # FedAvg's default weighted_by_key


def run(job: SimulatorJob, tell: Tell) -> tuple[list[float], Mapping[str, str]]:
    """See SimulatorJob. Each client is one process with one thread, `workers` at a time."""
    artifacts = open_artifacts(job.artifacts, verify=False)
    manifest, streams = artifacts.manifest, job.streams
    losses: list[float] = []

    class Counting(FedAvg):  # type: ignore[misc]  # flwr has no types here
        def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> Any:
            kept = list(replies)
            losses.append(statistics.fmean(reply.content["metrics"]["loss"] for reply in kept))
            return super().aggregate_train(server_round, kept)

    server = ServerApp()

    @server.main()  # type: ignore[untyped-decorator]
    def _serve(grid: Grid, _context: Context) -> None:
        model = LanguageModel(manifest.model)
        model.load(load_tensors(artifacts.path(WEIGHTS)))
        strategy = Counting(fraction_evaluate=0.0, min_train_nodes=job.phones, min_available_nodes=job.phones)
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(model.state_dict()),
            num_rounds=job.rounds,
            evaluate_fn=lambda _number, _arrays: tell(),
        )

    client = ClientApp()

    @client.train()  # type: ignore[untyped-decorator]
    def _train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        stream = np.load(streams)[str(context.node_config["partition-id"])]
        model = LanguageModel(manifest.model, manifest.training.dropout).train()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        metrics = {"loss": train_epoch(model, manifest, stream, job.learning_rate), WEIGHT: len(stream)}
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord(metrics)})
        return Message(content=content, reply_to=message)

    backend: Mapping[str, Any] = {
        "init_args": {"num_cpus": job.workers, "include_dashboard": False, "_temp_dir": str(Path(job.out).resolve())},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(server, client, job.phones, backend_config=dict(backend))
    return losses, version_of("flwr", "ray", "torch")


def train_epoch(model: LanguageModel, manifest: Manifest, stream: Any, learning_rate: float) -> float:
    """An epoch of SGD with clipping on a stream of ids. Returns the last step's loss in nats a token."""
    training = manifest.training
    optimizer = torch.optim.SGD(model.parameters(), learning_rate)
    state = model.zero_state(training.minibatch)
    nats = 0.0
    for window in windows(stream, training.minibatch, training.bptt):
        optimizer.zero_grad()
        logits, state = model(torch.from_numpy(window.tokens), state)
        targets = torch.from_numpy(window.targets).flatten()
        total = nn.functional.cross_entropy(logits.flatten(0, 1), targets, ignore_index=IGNORED, reduction="sum")
        divisor = training.minibatch if training.loss_reduction == "sum_over_time" else window.predictions
        (total / divisor).backward()  # type: ignore[no-untyped-call]
        if training.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
        optimizer.step()
        state = tuple(part.detach() for part in state)
        nats = total.item() / window.predictions
    return nats
