"""Records of finished simulations, written by hand."""

import hashlib

from msgspec.structs import replace

import phonograd
from phonograd.device_runtime.text.evaluation import Evaluation
from phonograd.simulation.folder import job_of
from phonograd.simulation.quality import Quality
from phonograd.simulation.records import RoundRecord, SimulationRecord, Users

SIMULATION = {"rounds": 4, "evaluate_every": 2, "text_bytes": 500}
SHA256 = "0" * 64


def evaluation(perplexity: float, tokens: int = 100) -> Evaluation:
    return Evaluation(
        tokens=tokens,
        unknown_tokens=10,
        words=80,
        characters=300,
        perplexity=perplexity,
        perplexity_with_unknown=perplexity,
        top1=0.2,
        top1_with_unknown=0.2,
        kss=0.6,
        perplexity_error=1.0,
        perplexity_with_unknown_error=1.0,
        top1_error=0.01,
        top1_with_unknown_error=0.01,
        kss_error=0.02,
    )


def quality(perplexity: float) -> Quality:
    """Quality of general text, and of users whose perplexities differ around it."""
    return Quality(evaluation(perplexity), tuple(evaluation(perplexity * factor) for factor in (0.5, 1.0, 2.0)))


def round_record(number: int) -> RoundRecord:
    counts = dict.fromkeys(("drop_outs", "late", "refused", "repeated", "diverged", "repeated_texts"), 0)
    return RoundRecord(
        number=number,
        base_sha256=SHA256,
        model_sha256=SHA256,
        outcome="closed",
        phones=2,
        accepted=2,
        bytes_up=10**6,
        bytes_down=2 * 10**6,
        tokens=100,
        loss_first=1.0,
        loss_last=0.9,
        seconds=1.0,
        train_seconds=1.0,
        epsilon=None,
        quality=None if number % 2 else quality(20.0 - number),
        **counts,
    )


def record(rounds: int = 4, rehearsal: bool = True, **changed: object) -> SimulationRecord:
    """Record of a simulation with SIMULATION's settings and those in `changed`."""
    settings = replace(phonograd.SimulationSettings(**SIMULATION), **changed)  # type: ignore[arg-type]
    job = job_of(settings, rehearsal=SHA256 if rehearsal else hashlib.sha256().hexdigest())
    return SimulationRecord(job, Users(9, 5, 0), quality(20.0), tuple(map(round_record, range(1, rounds + 1))))
