"""Flower's SecAgg+: its workflow's stages over a grid that hands messages to phones beside, which run its client mod.

The model is left out of the messages.
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
from flwr.common import Code, FitIns, FitRes, Parameters, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS, Key, Stage
from flwr.compat.common import recorddict_compat as compat
from flwr.server.workflow import constant
from flwr.supercore.task_identity import TaskIdentity

from phonograd.bench.environment import version_of
from phonograd.bench.measuring import peak_rss_bytes
from phonograd.bench.peers.cohort import Beside, Meter, Sampled, add_seconds
from phonograd.bench.worker import MaskedJob
from phonograd.device_runtime.formats.tensor_file import CHECKSUM, load_tensors

# By name: a package has a function of its module's name. Some of their functions are replaced by Sampled ones.
mod: Any = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
workflow: Any = importlib.import_module("flwr.server.workflow.secure_aggregation.secaggplus_workflow")
EXAMPLES = 1000  # of each phone: the workflow's max_weight, so that the quantization is at its finest
SHARES, THRESHOLD = 1.0, 0.7  # of the phones: as phonograd's with 0.3 drop-outs
MASKS = 8  # that a server makes, adds and subtracts of a cohort that is not run whole
# What a phone sends and gets in each stage, by the names of phonograd's messages.
KINDS = {
    Stage.SETUP: ("keys", "keys"),
    Stage.SHARE_KEYS: ("shares", "keys"),
    Stage.COLLECT_MASKED_VECTORS: ("update", "shares"),
    Stage.UNMASK: ("unmasking", "unmasking"),
}
STEPS = {Stage.SETUP: mod._setup, Stage.SHARE_KEYS: mod._share_keys, Stage.UNMASK: mod._unmask}
NO_MODEL = Parameters([], "numpy.ndarray")


class FlowerPhones:
    """All phones, which trained the same model."""

    def __init__(self, job: MaskedJob):
        self._model = ndarrays_to_parameters(_weights(job))
        self._number = ndarrays_to_parameters([np.zeros(1, np.float32)])
        self._states: dict[int, Any] = {}
        mod.quantize = self._quantize = Sampled(mod.quantize)

    def step(self, phone: int, stage: str, given: dict[str, Any], whole: bool) -> tuple[dict[str, Any], float, float]:
        """A stage of a phone. whole: mask the model, and not a single number.

        Returns what it sends, its CPU seconds, and those of quantizing.
        """
        self._quantize.seconds.clear()
        began = time.process_time()
        state = self._states.setdefault(phone, mod.SecAggPlusState(nid=phone))
        if stage == Stage.COLLECT_MASKED_VECTORS:
            sent = mod._collect_masked_vectors(state, given, EXAMPLES, self._model if whole else self._number)
        else:
            sent = STEPS[stage](state, given)
        encoding = self._quantize.seconds["run"]
        return sent, time.process_time() - began - encoding, encoding


class BesideGrid:
    """What Flower's grid does, without a network. whole: how many phones mask the model.

    The others' updates are then the first phone's. seconds: of CPU in this process that are not the server's.
    """

    def __init__(self, phones: Beside, alive: int, whole: int):
        self._phones, self._alive, self._whole = phones, alive, whole
        self.meter, self.seconds = Meter(), defaultdict[str, float](float)
        self.masked: list[int] = []  # phones that masked the model
        self.update_bytes = 0
        self._update: Any = None  # the first one's, if others send it too

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> list[Any]:
        """The replies of those who are not dead."""
        del timeout
        with add_seconds(self.seconds, "grid"):
            return [reply for message in messages if (reply := self._reply(message)) is not None]

    def _reply(self, message: Any) -> Any:
        given = dict(message.content.config_records[RECORD_KEY_CONFIGS])
        stage, phone = given.pop(Key.STAGE), message.metadata.dst_node_id
        updating = stage == Stage.COLLECT_MASKED_VECTORS
        if updating and phone > self._alive:
            return None
        whole = updating and len(self.masked) < self._whole
        sent, seconds, encoding = self._phones.call("step", phone, stage, given, whole)
        up, down = (_size((*record, *record.values())) for record in (sent, given))
        record, content = ConfigRecord(sent), RecordDict()
        if whole:
            self.masked.append(phone)
            self.update_bytes = up
            self._update = record if self._whole < self._alive else None
        if updating:
            content = compat.fitres_to_recorddict(FitRes(Status(Code.OK, "Success"), NO_MODEL, EXAMPLES, {}), True)
            record = self._update or record
        content[RECORD_KEY_CONFIGS] = record
        sends, gets = KINDS[stage]
        self.meter.add(phone, "encoding", encoding)
        self.meter.add(phone, sends, seconds, up)
        self.meter.add(phone, gets, down=down)
        return Message(content, reply_to=message)


def _context(phones: int) -> Any:
    """What the stages ask of a server: a strategy that picks all phones, and a model, which is empty."""
    records = {
        constant.MAIN_CONFIGS_RECORD: ConfigRecord({constant.Key.CURRENT_ROUND: 1}),
        constant.MAIN_PARAMS_RECORD: ArrayRecord(),
    }
    everyone = [(SimpleNamespace(node_id=phone), FitIns(NO_MODEL, {})) for phone in range(1, phones + 1)]
    strategy = SimpleNamespace(configure_fit=lambda *_: everyone, aggregate_fit=lambda *_: (None, {}))
    manager = SimpleNamespace(num_available=lambda: phones)
    return SimpleNamespace(state=RecordDict(records), client_manager=manager, strategy=strategy)


def run(job: MaskedJob) -> Mapping[str, Any]:
    """See MaskedJob. job.settings: `whole`, the largest cohort of which every phone masks the model.

    In larger ones a single phone does, its update is added once for each, and of the masks a few are removed.
    """
    # A message needs a run, node and task; any ids do, because none is sent.
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    baseline = peak_rss_bytes()
    whole, alive = job.phones <= job.settings["whole"], job.phones - job.dead
    seconds, sampled, peak = defaultdict[str, float](float), list[Sampled](), 0
    server, state, context = (
        workflow.SecAggPlusWorkflow(SHARES, THRESHOLD),
        workflow.WorkflowState(),
        _context(job.phones),
    )
    with Beside(FlowerPhones, job) as phones:
        grid = BesideGrid(phones, alive, alive if whole else 1)
        for kind, stage in (
            ("messages", server.setup_stage),
            ("messages", server.share_keys_stage),
            ("adding", server.collect_masked_vectors_stage),
            ("unmasking", server.unmask_stage),
        ):
            if kind == "unmasking":
                # The peak so far, when all updates were there; those that came more than once are counted.
                peak = peak_rss_bytes() + (alive - len(grid.masked)) * grid.update_bytes
                sampled = [] if whole else _sample()
            with add_seconds(seconds, kind):
                if not stage(grid, context, state):
                    raise RuntimeError(f"SecAgg+ stopped: {kind}")
            seconds[kind] -= grid.seconds.pop("grid")
    peak = max(peak, peak_rss_bytes())
    seconds["unmasking"] += sum(one.missing_seconds for one in sampled)
    return {
        **grid.meter.medians(grid.masked),
        "server_seconds": seconds,
        "own_rss_bytes": max(0, peak - baseline),
        "phones_run": len(grid.masked),
        "difference": _difference(job, state.legacy_results[0][1].parameters) if whole else None,
        "tolerance": 2 * server.clipping_range / server.quantization_range,
        "counted": [] if whole else ["unmasking", "memory"],
        "versions": version_of("flwr", "numpy"),
    }


def _sample() -> list[Sampled]:
    """Let the workflow make and remove a few masks, and skip the others."""
    same: Callable[..., Any] = lambda _last, total, _mask: total  # noqa: E731
    workflow.pseudo_rand_gen = masks = Sampled(workflow.pseudo_rand_gen, MASKS, lambda last, *_: last)
    workflow.parameters_addition = plus = Sampled(workflow.parameters_addition, MASKS, same)
    workflow.parameters_subtraction = minus = Sampled(workflow.parameters_subtraction, MASKS, same)
    return [masks, plus, minus]


def _size(values: Iterable[Any]) -> int:
    """Bytes of what a message carries, a number being 8, as Flower counts them."""
    return sum(
        len(value) if isinstance(value, bytes | str) else _size(value) if isinstance(value, list | tuple) else 8
        for value in values
    )


def _weights(job: MaskedJob) -> list[Any]:
    return [array for name, array in load_tensors(Path(job.base)).items() if name != CHECKSUM]


def _difference(job: MaskedJob, average: Any) -> float:
    pairs = zip(parameters_to_ndarrays(average), _weights(job), strict=True)
    return max(float(np.abs(one - other).max()) for one, other in pairs)
