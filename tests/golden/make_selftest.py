"""Writes phonograd/selftest/golden: run `python -m tests.golden.make_selftest` after a change of the checks, or of a
file format. The portable kernels compute it, which tests/reference and PyTorch hold to what is right.
"""

import json
import shutil

from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.selftest.checks import all_checks
from phonograd.selftest.pieces import GOLDEN
from tests.golden.cases import Case
from tests.support.artifacts import exported

# Sizes that are no whole number of vectors, panels or row blocks.
V, E, H = 130, 12, 20
CASES = {
    "lstm": Case(LanguageModelConfig("lstm", V, E, H, 2), TrainingConfig(minibatch=3, bptt=7, clip_norm=0.5)),
    "gru-tied-lwf": Case(
        LanguageModelConfig("gru", V, H, H, 1, tied=True), TrainingConfig(minibatch=3, bptt=7, loss="lwf")
    ),
}

if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for name, case in CASES.items():
        shutil.copytree(exported(case.model, case.training, seed=3, spread=10).folder, GOLDEN / name)
    checks = all_checks({**load_library().cpu_info(), "kernels": ["portable"], "bf16": None})
    found = {check.golden: check.compute() for check in checks}
    (GOLDEN / "golden.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")
