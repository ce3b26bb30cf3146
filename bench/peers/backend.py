"""Our backends: `native` and `ort`, by the interface that `phonograd train` uses."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phonograd.bench.environment import version_of
from phonograd.bench.peers.sample import sample_of
from phonograd.bench.worker import Ids, Job
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.engine.backend import Backend, BackendOptions, Window
from phonograd.device_runtime.engine.c_abi import KERNELS, load_library
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import Artifacts, open_artifacts
from phonograd.device_runtime.formats.tensor_file import Array


class BackendContestant:
    """A Backend at the artifacts' own learning rate. The job's variant: "<backend>" or "<backend> <precision>"."""

    def __init__(self, job: Job):
        name, _, precision = job.variant.partition(" ")
        artifacts = open_artifacts(Path(job.artifacts), verify=False)
        sample = sample_of(job, artifacts)
        chosen: dict[str, Any] = {"precision": precision} if precision else {}
        options = BackendOptions(job.threads, sample=sample, **chosen)
        self._backend: Backend = (_ort if name == "ort" else NativeBackend)(artifacts, None, options)
        if isinstance(self._backend, NativeBackend):
            self.phases = self._backend.phases
        self._learning_rate = artifacts.manifest.training.learning_rate
        words = artifacts.manifest.model.vocabulary if sample is None else len(sample)
        self.about: Mapping[str, Any] = {
            "versions": version_of("numpy", "onnxruntime-training-cpu") if name == "ort" else version_of("phonograd"),
            "kernels": _kernels() if name == "native" else None,
            "output_layer": {"kind": "full" if sample is None else "sampled", "words": words},
            "factored": _factored_tensors(self._backend.plan()) if isinstance(self._backend, NativeBackend) else (),
            "libraries": {path.name: sha256_of_file(path) for path in _own_libraries()},
        }

    def step(self, tokens: Ids, targets: Ids) -> float:
        """See Contestant."""
        return self._backend.step(Window(tokens, targets), self._learning_rate)

    def weights(self) -> dict[str, Array]:
        """The tensors as they are now, for `bench parity`."""
        return self._backend.weights()


def _ort(artifacts: Artifacts, weights: Path | None, options: BackendOptions) -> Backend:
    from phonograd.device_runtime.engine.ort import OrtBackend  # noqa: PLC0415  # in its own process alone

    return OrtBackend(artifacts, weights, options)


def _kernels() -> str:
    best: str = load_library().cpu_info()["kernels"][0]
    return os.environ.get(KERNELS) or best


def _factored_tensors(plan: str) -> list[str]:
    return re.findall(r"^ +([\w.]+) \[[\d,]+\].*\bfactored\b", plan, re.MULTILINE)


def _own_libraries() -> list[Path]:
    maps = (line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text("utf-8").splitlines())
    mapped = {Path(fields[5]) for fields in maps if len(fields) == 6}
    return sorted(path for path in mapped if "phonograd" in path.name and ".so" in path.name and path.is_file())


load = BackendContestant
