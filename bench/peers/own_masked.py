"""phonograd's masked round at a server, without HTTP and ledger: the native phones, cohort and sum."""

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.environment import version_of
from phonograd.bench.measuring import peak_rss_bytes, rss_bytes
from phonograd.bench.peers.cohort import Beside, Meter, spent
from phonograd.bench.synthetic import STEP
from phonograd.bench.worker import MaskedJob
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.masked.cohort import MaskedCohort, MaskedSum
from phonograd.device_runtime.masked.phone import MaskedPhone, PhoneMasking, Request, new_identity
from phonograd.device_runtime.update.update_file import UpdateInfo, write_update
from phonograd.server_agg.settings.masked import FEWEST

Document = Mapping[str, Any]
ROUND = 1
# Of a masked round (FORMAT.md): what a server has by default, but for the cohort.
SETTINGS = {"bits": 8, "clip": 15.0, "weight_cap": 1, "min_cohort": FEWEST, "curious": 0.1, "dropouts": 0.3, "noise": 0}
ENCODINGS = 3  # times that the update is written; their median is each phone's


class OwnPhones:
    """All phones of a cohort. They trained the same update, so that one is written for all."""

    def __init__(self, job: MaskedJob, settings: str):
        self._folder, self._grid = Path(job.folder), Path(job.folder) / "grid"
        self._phones: dict[str, MaskedPhone] = {}
        self.seconds = []
        random = np.random.default_rng(1)
        with TensorFile(Path(job.base)) as base:
            moved = {
                name: base.read(name) + STEP * random.standard_normal(spec.shape, np.float32)
                for name, spec in base.specs.items()
            }
            info = UpdateInfo(base.sha256(), ROUND, 1000, "rows-f32", 0)
            for _ in range(ENCODINGS):
                began = time.process_time()
                write_update(self._grid, base, moved, info, settings)
                self.seconds.append(time.process_time() - began)

    def encoding_seconds(self) -> float:
        """Of one phone's update."""
        return float(np.median(self.seconds))

    def codes_path(self) -> Path:
        """The update that every phone masks."""
        return self._grid

    def step(self, name: str, reply: str | None) -> tuple[Request, float]:
        """Give a phone what it was answered, nothing at first. Returns what it sends next, and its CPU seconds."""
        phone = self._phones.get(name)
        if phone is None:
            new_identity(self._folder / f"{name}.key")
        began = time.process_time()
        if phone is None:
            masking = PhoneMasking(self._folder / name, self._folder / f"{name}.key", min_cohort=FEWEST)
            phone = self._phones[name] = MaskedPhone(masking, name, self._grid, ROUND)
        else:
            phone.take(reply)
        return phone.request(), time.process_time() - began


class OwnRound:
    """The server's side of one round, stage by stage, as phonograd.server_agg.masked does it."""

    def __init__(self, job: MaskedJob, phones: Beside, settings: str):
        with TensorFile(Path(job.base)) as base:
            parameters = sum(spec.elements for spec in base.specs.values())
        self.names = [f"phone{number:04}" for number in range(job.phones)]
        self.alive = self.names[: job.phones - job.dead]
        self.meter, self.seconds = Meter(), defaultdict[str, float](float)
        self._phones = phones
        self._cohort = MaskedCohort(ROUND, sha256_of_file(Path(job.base)), settings, None)
        self._about = self._cohort.about(parameters)
        self._sum = MaskedSum(self._about.values, self._about.width)
        self._sent: dict[str, Request] = {}

    def run(self) -> tuple[int, int]:
        """All stages. Returns the peak memory, and the largest difference of the sum from that of the codes."""
        keys = self._share()
        self._add(keys)
        answers = self._agree()
        with spent(self.seconds, "unmasking"):
            for name, answer in answers.items():
                self._cohort.check_answer(name, answer)
            unmasked = self._sum.unmask(self._cohort, answers)
        peak = peak_rss_bytes()
        difference = self._difference()
        with spent(self.seconds, "unmasking"):
            self._sum.decode(self._cohort, float(unmasked.weight), self._about.elements)
        return max(peak, rss_bytes()), difference  # without the copy that was compared

    def _share(self) -> dict[str, Document]:
        for name in self.names:
            self._step(name, "keys", None)
        keys = {name: _message(self._sent[name], "keys") for name in self.names}
        with spent(self.seconds, "messages"):
            for message in keys.values():
                self._cohort.check_keys(message)
            self._cohort.fix(list(keys.values()))
        for name in self.names:
            self._step(name, "shares", {"cohort": list(keys.values())}, answers="keys")
        shares = {name: _message(self._sent[name], "shares") for name in self.names}
        with spent(self.seconds, "messages"):
            for name, message in shares.items():
                self._cohort.check_shares(name, message)
            self._draws = {name: message["draw"] for name, message in shares.items()}
            self._cohort.members(self._draws)
        return shares

    def _add(self, shares: Mapping[str, Document]) -> None:
        """Each update is masked, added and removed before the next."""
        for name in self.alive:
            sealed = {sender: sent["shares"][name] for sender, sent in shares.items() if name in sent["shares"]}
            self._step(name, "update", {"members": self._draws, "shares": sealed}, answers="shares")
            path = self._sent[name].file
            with spent(self.seconds, "adding"):
                self._sum.check(self._cohort, path)
                self._sum.add(self._cohort, path)
            path.unlink()
            self._step(name, "unmasking", None)

    def _agree(self) -> dict[str, Document]:
        with spent(self.seconds, "messages"):
            self._cohort.list(self.alive)
        for name in self.alive:
            self._step(name, "unmasking", {"alive": self.alive})
        signatures = {name: _message(self._sent[name], "agreement")["signature"] for name in self.alive}
        with spent(self.seconds, "messages"):
            for name, signature in signatures.items():
                self._cohort.check_agreement(name, signature)
        for name in self.alive:
            self._step(name, "unmasking", {"signatures": signatures})
        answers = {name: _message(self._sent[name], "answer") for name in self.alive}
        for name in self.alive:
            self._step(name, "unmasking", {})
        return answers

    def _step(self, name: str, kind: str, reply: Document | None, answers: str | None = None) -> None:
        """A phone's next request after `reply`. answers: the kind of message that the reply is to."""
        body = None if reply is None else json.dumps(reply, separators=(",", ":"))
        request, seconds = self._phones.call("step", name, body)
        up = request.file.stat().st_size if request.action == "upload" else len(request.body)
        self.meter.add(name, kind, seconds, up)
        self.meter.add(name, answers or kind, down=0 if body is None else len(body))
        self._sent[name] = request

    def _difference(self) -> int:
        with TensorFile(self._phones.call("codes_path")) as grid:
            plain = np.append(grid.read("codes").astype(np.int32), 1) * len(self.alive)
        return int(np.abs(self._sum.values() - plain).max())


def _message(request: Request, stage: str) -> dict[str, Any]:
    """What a phone said, as the cohort takes it."""
    found = request.path.rpartition("/")[2]
    if found != stage:
        raise RuntimeError(f"a phone's message of its {stage} expected, found {found or request.action}")
    document: dict[str, Any] = json.loads(request.body)
    return {key: value for key, value in document.items() if key != "round" and (stage == "keys" or key != "phone")}


def run(job: MaskedJob) -> Mapping[str, Any]:
    """See MaskedJob. job.settings: what SETTINGS lacks, but for the cohort."""
    settings = json.dumps({**SETTINGS, "cohort": job.phones, **job.settings}, separators=(",", ":"))
    baseline = peak_rss_bytes()
    with Beside(OwnPhones, job, settings) as phones:
        round_ = OwnRound(job, phones, settings)
        encoding = phones.call("encoding_seconds")
        for name in round_.alive:
            round_.meter.add(name, "encoding", encoding)
        peak, difference = round_.run()
    return {
        **round_.meter.medians(round_.alive),
        "server_seconds": dict(round_.seconds),
        "own_rss_bytes": peak - baseline,
        "phones_run": len(round_.alive),
        "difference": difference,
        "tolerance": 0,
        "counted": [],
        "versions": version_of("phonograd"),
    }
