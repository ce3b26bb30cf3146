"""What codecs do to the norm of an update: that of the decoded delta, which a server measures and clips, by the exact
one's.
"""

import math
import statistics
from functools import partial
from pathlib import Path

import phonograd
from phonograd.device_runtime.formats.tensor_file import TensorFile
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateFile
from phonograd.papers.kinds.uploads import Phone, Settings, encode, train_phones
from phonograd.papers.run import Context, Outcome

__all__ = ["Settings", "run"]
EXACT = "full-f32"


def run(settings: Settings, context: Context) -> Outcome:
    """Train the phones with each output layer, and encode what each trained with all codecs."""
    artifacts = phonograd.open_artifacts(context.input("artifacts"))
    rows: dict[str, dict[str, float]] = {}
    facts: dict[str, float] = {"phones": settings.phones}
    for layer in settings.layers:
        norms: list[dict[str, float]] = []
        for phone in train_phones(settings, context, artifacts, layer):
            measure = partial(_norms, settings.codecs, artifacts, phone, context.work / "update")
            norms.append(context.measure_once(f"norms {phone.name} {layer}", measure))
        for codec in settings.codecs:
            rows[f"{codec}, {layer}"] = _figures([one[codec] / one[EXACT] for one in norms])
        facts[f"{layer}: exact norm, mean"] = statistics.fmean(one[EXACT] for one in norms)
    return Outcome(rows, facts)


def _norms(codecs: tuple[str, ...], artifacts: phonograd.Artifacts, phone: Phone, path: Path) -> dict[str, float]:
    """The L2 norm of a phone's delta by codec, as a server measures it."""
    norms = {}
    for codec in dict.fromkeys((EXACT, *codecs)):
        encode(phone, artifacts, path, codec)
        with (
            TensorFile(artifacts.path("weights.safetensors")) as base,
            UpdateFile(path) as update,
            DecodedUpdate(update, base) as decoded,
        ):
            norms[codec] = math.hypot(*decoded.norms().values())
    path.unlink()
    return norms


def _figures(ratios: list[float]) -> dict[str, float]:
    return {
        "decoded norm / exact norm": statistics.fmean(ratios),
        "standard deviation": statistics.stdev(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
    }
