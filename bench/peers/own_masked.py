"""phonograd's masked round at a server, without HTTP and ledger: the native phones, cohort and sum."""

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np

from phonograd.bench.environment import version_of
from phonograd.bench.measuring import peak_rss_bytes, rss_bytes
from phonograd.bench.peers.cohort import Beside, Meter, add_seconds
from phonograd.bench.synthetic import STEP
from phonograd.bench.worker import MaskedJob
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.masked.cohort import MaskedCohort, MaskedSum
from phonograd.device_runtime.masked.phone import MaskedPhone, PhoneMasking, Request, new_identity
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update
from phonograd.server_agg.masked.stages import STAGES, Facts
from phonograd.server_agg.settings.masked import FEWEST, MaskedSettings
from phonograd.server_agg.storage.tables import MessageKind

ROUND = 1
ENCODINGS = 3  # times that the update is written; their median is each phone's


class OwnPhones:
    """All phones of a cohort. They trained the same, so that one update is written for all."""

    def __init__(self, job: MaskedJob, settings: str):
        self._folder, self._grid = Path(job.folder), Path(job.folder) / "grid"
        self._phones: dict[str, MaskedPhone] = {}
        self._seconds = [defaultdict[str, float](float) for _ in range(ENCODINGS)]
        random = np.random.default_rng(1)
        with TensorFile(Path(job.base)) as base:
            moves = {name: STEP * random.standard_normal(spec.shape, np.float32) for name, spec in base.specs.items()}
            trained = {name: base.read(name) + move for name, move in moves.items()}
            info = UpdateInfo(base.sha256(), ROUND, 1000, "rows-f32", 0)
            for seconds in self._seconds:
                with add_seconds(seconds, "encoding"):
                    write_update(self._grid, base, trained, info, settings)

    def encoded_update(self) -> tuple[Path, float]:
        """The update that all mask, and the CPU seconds of writing it."""
        return self._grid, statistics.median(seconds["encoding"] for seconds in self._seconds)

    def step(self, name: str, reply: str | None) -> tuple[Request, float]:
        """Give a phone what it was answered, nothing at first. Returns what it sends next, and its CPU seconds."""
        key, first = self._folder / f"{name}.key", name not in self._phones
        if first:
            new_identity(key)
        began = time.process_time()
        if first:
            masking = PhoneMasking(state=self._folder / name, identity=key, min_cohort=FEWEST)
            self._phones[name] = MaskedPhone(masking, name, self._grid, ROUND)
        else:
            self._phones[name].take(reply)
        return self._phones[name].request(), time.process_time() - began


class OwnRound:
    """The server's side of one round, stage by stage."""

    def __init__(self, job: MaskedJob, phones: Beside, settings: MaskedSettings):
        with TensorFile(Path(job.base)) as base:
            self._about = settings.about(base)
        self.names = [f"phone{number:04}" for number in range(job.phones)]
        self.alive = self.names[: job.phones - job.dead]
        self.meter, self.seconds = Meter(), defaultdict[str, float](float)
        self._phones, self._kinds = phones, dict[str, str]()
        cohort = MaskedCohort(ROUND, sha256_of_file(Path(job.base)), settings.text, None)
        self._facts = Facts(settings, True, cohort, {kind: {} for kind in get_args(MessageKind)}, set())
        self._sum = MaskedSum(self._about.values, self._about.width)

    def run(self) -> tuple[int, int]:
        """All stages. Returns the peak memory, and the largest difference of the sum from that of the codes."""
        facts, kinds = self._facts, [stage.kind for stage in STAGES]
        while (stage := facts.stage).name != "over":
            for name in self.names if stage.kind in ("keys", "draws", "shares") else self.alive:
                with add_seconds(self.seconds, "messages"):
                    reply = facts.answer(kinds[facts.place - 1], name) if facts.place else None
                request = self._step(name, reply)
                if stage.kind == "list":
                    self._take("members", name, request)
                    self._add(name, self._step(name, {}).file)
                    self._step(name)
                    continue
                self._take(stage.kind, name, request)
            with add_seconds(self.seconds, "messages"):
                facts.fix()
            facts.place += 1
        for name in self.alive:
            self._step(name, {})
        return self._unmask()

    def _take(self, kind: MessageKind, name: str, request: Request) -> None:
        unsaid = ("round",) if kind == "keys" else ("round", "phone")
        with add_seconds(self.seconds, "messages"):
            message = {key: value for key, value in json.loads(request.body).items() if key not in unsaid}
            self._facts.check(kind, name, message)
        self._facts.messages[kind][name] = message

    def _add(self, name: str, update: Path) -> None:
        """Add and remove an update, before the next one is masked."""
        with add_seconds(self.seconds, "adding"):
            self._sum.add(self._facts.cohort, update)
        update.unlink()
        self._facts.alive.add(name)

    def _unmask(self) -> tuple[int, int]:
        cohort = self._facts.cohort
        with add_seconds(self.seconds, "unmasking"):
            unmasked = self._sum.unmask(cohort, self._facts.messages["answer"])
        peak = peak_rss_bytes()
        path, _ = self._phones.call("encoded_update")
        with TensorFile(path) as grid:
            plain = np.append(grid.read("codes").astype(np.int32), 1) * len(self.alive)
        difference = int(np.abs(self._sum.values() - plain).max())
        del plain
        with add_seconds(self.seconds, "unmasking"):
            self._sum.decode(cohort, float(unmasked.weight), self._about.elements)
        return max(peak, rss_bytes()), difference  # the comparison's memory is not counted

    def _step(self, name: str, reply: Mapping[str, Any] | None = None) -> Request:
        """A phone's next request after `reply`, which is charged to what it sent before."""
        body = None if reply is None else json.dumps(reply, separators=(",", ":"))
        request: Request
        request, seconds = self._phones.call("step", name, body)
        upload = request.action == "upload"
        if body is not None:
            self.meter.add(name, self._kinds[name], down=len(body))
        stage = "update" if upload else request.path.rpartition("/")[2]
        kinds = {"keys": "keys", "draws": "keys", "shares": "shares", "members": "shares", "update": "update"}
        kind = self._kinds[name] = kinds.get(stage, "unmasking")
        self.meter.add(name, kind, seconds, request.file.stat().st_size if upload else len(request.body))
        return request


def run(job: MaskedJob) -> Mapping[str, Any]:
    """See MaskedJob. job.settings: those of a server that are not its defaults, but for the cohort."""
    settings = MaskedSettings(cohort=job.phones, min_cohort=FEWEST, **job.settings)
    baseline = peak_rss_bytes()
    with Beside(OwnPhones, job, settings.text) as phones:
        round_ = OwnRound(job, phones, settings)
        _, encoding = phones.call("encoded_update")
        for name in round_.alive:
            round_.meter.add(name, "encoding", encoding)
        peak, difference = round_.run()
    return {
        **round_.meter.medians(round_.alive),
        "server_seconds": round_.seconds,
        "own_rss_bytes": max(0, peak - baseline),
        "phones_run": len(round_.alive),
        "difference": difference,
        "tolerance": 0,
        "counted": [],
        "versions": version_of("phonograd"),
    }
