"""Writes phonograd/selftest/golden: run `python -m tests.golden.make_selftest` after a change of the checks, or of a
file format. The portable kernels compute it, which tests/reference and PyTorch hold to what is right.
"""

import json
import zipfile

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
    GOLDEN.mkdir(exist_ok=True)
    with zipfile.ZipFile(GOLDEN / "artifacts.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, case in CASES.items():
            for path in sorted(exported(case.model, case.training, seed=3, spread=10).folder.iterdir()):
                # Without a time, the same artifacts are the same bytes.
                archive.writestr(zipfile.ZipInfo(f"{name}/{path.name}"), path.read_bytes(), zipfile.ZIP_DEFLATED)
    checks = all_checks({**load_library().cpu_info(), "kernels": ["portable"], "bf16": None})
    found = {check.golden: check.compute() for check in checks}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(result)}" for name, result in found.items())
    (GOLDEN / "golden.json").write_text(f"{{\n{lines}\n}}\n", "utf-8")
