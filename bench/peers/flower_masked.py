"""Flower's SecAgg+: its workflow's stages over a grid that hands messages to phones beside, which run its client mod.

The model is left out of the messages. A phone's threshold is 0.7 of the shares, as phonograd's with 0.3 drop-outs.
"""

import importlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # read when flwr is imported

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.common import (
    Code,
    FitIns,
    FitRes,
    Parameters,
    Status,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.compat.common import recorddict_compat as compat
from flwr.server.workflow import constant
from flwr.server.workflow.secure_aggregation import secaggplus_workflow as workflow
from flwr.supercore.task_identity import TaskIdentity

from phonograd.bench.environment import version_of
from phonograd.bench.measuring import peak_rss_bytes
from phonograd.bench.peers.cohort import Beside, Meter, Sampled, spent
from phonograd.bench.worker import MaskedJob
from phonograd.device_runtime.formats.tensor_file import CHECKSUM, load_tensors

# By name: its package has a function of the same name.
mod = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
EXAMPLES = 1000  # of each phone: the workflow's max_weight, so that the quantization is at its finest
THRESHOLD = 0.7
MASKS = 8  # that a server removes of a cohort that is not run whole
# What a phone sends and is given in each stage, by the names of phonograd's messages.
KINDS = {
    Stage.SETUP: ("keys", "keys"),
    Stage.SHARE_KEYS: ("shares", "keys"),
    Stage.COLLECT_MASKED_VECTORS: ("update", "shares"),
    Stage.UNMASK: ("unmasking", "unmasking"),
}
STEPS: Mapping[str, Callable[..., dict[str, Any]]] = {
    Stage.SETUP: mod._setup,
    Stage.SHARE_KEYS: mod._share_keys,
    Stage.UNMASK: mod._unmask,
}
NONE = Parameters([], "numpy.ndarray")


class FlowerPhones:
    """All phones, which trained the same model."""

    def __init__(self, job: MaskedJob):
        self._parameters = ndarrays_to_parameters(_weights(job))
        self._little = ndarrays_to_parameters([np.zeros(1, np.float32)])
        self._states: dict[int, Any] = {}
        self._quantizing = defaultdict[str, float](float)
        quantize = mod.quantize

        def timed(*given: Any) -> Any:
            with spent(self._quantizing, "encoding"):
                return quantize(*given)

        mod.quantize = timed

    def step(self, phone: int, stage: str, given: dict[str, Any], whole: bool) -> tuple[dict[str, Any], float, float]:
        """A stage of a phone. whole: mask the model, and not a single number.

        Returns what it sends, its CPU seconds, and those of quantizing.
        """
        self._quantizing.clear()
        began = time.process_time()
        if stage == Stage.SETUP:
            self._states[phone] = mod.SecAggPlusState(nid=phone)
        state = self._states[phone]
        if stage == Stage.COLLECT_MASKED_VECTORS:
            parameters = self._parameters if whole else self._little
            sent = mod._collect_masked_vectors(state, given, EXAMPLES, parameters)
        else:
            sent = STEPS[stage](state, given)
        encoding = self._quantizing["encoding"]
        return sent, time.process_time() - began - encoding, encoding


class BesideGrid:
    """What Flower's grid does, without a network. whole: how many phones mask the model; None: all.

    The update of the first phone is then delivered for those who did not mask theirs. `seconds`: what it took itself.
    """

    def __init__(self, phones: Beside, meter: Meter, dead: set[int], whole: int | None):
        self._phones, self._meter, self._dead, self._whole = phones, meter, dead, whole
        self.seconds = 0.0
        self.masked: set[int] = set()  # phones that masked the model
        self.vector_bytes = 0

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """The replies of those who are not dead."""
        del timeout
        began = time.process_time()
        replies, shared = [], None
        for message in messages:
            given = dict(message.content.config_records[RECORD_KEY_CONFIGS])
            stage, phone = str(given.pop(Key.STAGE)), message.metadata.dst_node_id
            updating = stage == Stage.COLLECT_MASKED_VECTORS
            if phone in self._dead and (updating or stage == Stage.UNMASK):
                continue
            whole = updating and (self._whole is None or len(self.masked) < self._whole)
            sent, seconds, encoding = self._phones.call("step", phone, stage, given, whole)
            up, down = (_size((*record, *record.values())) for record in (sent, given))
            content = RecordDict({RECORD_KEY_CONFIGS: ConfigRecord(sent)})
            if whole:
                self.masked.add(phone)
                shared, self.vector_bytes = content, up
            if updating:
                assert shared is not None
                content = _fitted(content if whole else shared)
            self._meter.add(phone, "encoding", encoding)
            sends, gets = KINDS[stage]
            self._meter.add(phone, sends, seconds, up)
            self._meter.add(phone, gets, down=down)
            replies.append(Message(content, reply_to=message))
        self.seconds += time.process_time() - began
        return replies


def _fitted(content: Any) -> Any:
    """A reply to the request for an update: the masked one, and Flower's own record without weights."""
    full = compat.fitres_to_recorddict(FitRes(Status(Code.OK, "Success"), NONE, EXAMPLES, {}), True)
    full.config_records[RECORD_KEY_CONFIGS] = content.config_records[RECORD_KEY_CONFIGS]
    return full


def _size(values: Iterable[Any]) -> int:
    """Bytes of what a message carries, a number being 8, as Flower counts them."""
    return sum(
        len(value) if isinstance(value, bytes | str) else _size(value) if isinstance(value, list | tuple) else 8
        for value in values
    )


def _weights(job: MaskedJob) -> list[Any]:
    return [array for name, array in load_tensors(Path(job.base)).items() if name != CHECKSUM]


def _context(phones: int, found: list[Any]) -> Any:
    """What the stages ask of a server: a strategy that picks all phones and keeps the results, and an empty model."""
    proxies = [SimpleNamespace(node_id=phone) for phone in range(1, phones + 1)]
    state = RecordDict(
        {
            constant.MAIN_CONFIGS_RECORD: ConfigRecord({constant.Key.CURRENT_ROUND: 1}),
            constant.MAIN_PARAMS_RECORD: ArrayRecord(),
        }
    )
    return SimpleNamespace(
        state=state,
        client_manager=SimpleNamespace(num_available=lambda: phones),
        strategy=SimpleNamespace(
            configure_fit=lambda *_: [(proxy, FitIns(NONE, {})) for proxy in proxies],
            aggregate_fit=lambda _round, results, _failures: (found.append(results[0][1].parameters), {}),
        ),
    )


def run(job: MaskedJob) -> Mapping[str, Any]:
    """See MaskedJob. job.settings: `whole`, the largest cohort of which every phone masks the model.

    In larger ones a single phone does, its update is added once for each, and of the masks a few are removed.
    """
    # A message needs a run, node and task; any ids do, because none is sent.
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    baseline = peak_rss_bytes()
    whole = job.phones <= job.settings["whole"]
    alive = job.phones - job.dead
    meter, seconds, found = Meter(), defaultdict[str, float](float), list[Any]()
    server, state = workflow.SecAggPlusWorkflow(1.0, THRESHOLD), workflow.WorkflowState()
    with Beside(FlowerPhones, job) as phones:
        grid = BesideGrid(phones, meter, set(range(alive + 1, job.phones + 1)), None if whole else 1)
        context = _context(job.phones, found)

        def stage(kind: str, step: Callable[..., bool]) -> None:
            before = grid.seconds
            with spent(seconds, kind):
                if not step(grid, context, state):
                    raise RuntimeError(f"SecAgg+ stopped: {kind}")
            seconds[kind] -= grid.seconds - before

        stage("messages", server.setup_stage)
        stage("messages", server.share_keys_stage)
        stage("adding", server.collect_masked_vectors_stage)
        sampled = [] if whole else _sample()
        stage("unmasking", server.unmask_stage)
        seconds["unmasking"] += sum(one.missing_seconds for one in sampled)
    own = peak_rss_bytes() - baseline
    return {
        **meter.medians(sorted(grid.masked)),
        "server_seconds": dict(seconds),
        "own_rss_bytes": own if whole else own + (alive - 1) * grid.vector_bytes,
        "phones_run": len(grid.masked),
        "difference": _difference(job, found[0]) if whole else None,
        "tolerance": 2 * server.clipping_range / server.quantization_range,
        "counted": [] if whole else ["unmasking", "memory"],
        "versions": version_of("flwr", "numpy"),
    }


def _sample() -> list[Sampled]:
    """Let the workflow make and remove a few masks, and skip the others."""
    sampled = [
        Sampled(workflow.pseudo_rand_gen, MASKS, lambda last, *_: last),
        Sampled(workflow.parameters_addition, MASKS, lambda _last, total, _mask: total),
        Sampled(workflow.parameters_subtraction, MASKS, lambda _last, total, _mask: total),
    ]
    workflow.pseudo_rand_gen, workflow.parameters_addition, workflow.parameters_subtraction = sampled
    return sampled


def _difference(job: MaskedJob, average: Any) -> float:
    pairs = zip(parameters_to_ndarrays(average), _weights(job), strict=True)
    return max(float(np.abs(one - other).max()) for one, other in pairs)
