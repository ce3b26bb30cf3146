"""Rounds that never were, as rows of a ledger: what a dashboard has to show after days of work."""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from sqlalchemy.orm import Session

from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.tables import Model, Quality, Round, Traffic, Update
from tests.server_agg.workshop import Workshop, settings_with

MIB = 1 << 20
CODECS = {"rows-f32": 110 * MIB, "rot-q4": 14 * MIB, "top-rows": 2 * MIB}
REFUSALS = (("rejected", "nan, expected a finite number"), ("late", "the round is over"))


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def write_history(
    workshop: Workshop,
    state: Path,
    rounds: int,
    phones: int = 10,
    metrics: Sequence[str] = ("perplexity general", "perplexity users"),
    codecs: Mapping[str, int] = CODECS,
) -> None:
    """A state folder whose ledger has `rounds` closed rounds of `phones` phones each, and one open."""
    Coordinator(workshop.artifacts, state, settings_with(clients_per_round=phones)).close()
    rng, ledger = np.random.default_rng(rounds), Ledger(state / "ledger.sqlite")
    with ledger.writing() as session:
        first = queries.open_round(session)
        assert first is not None
        base, opened = workshop.base_sha256, ledger.clock() - 700 * rounds
        shared = {"rules": first.rules, "strategy": first.strategy, "population": 0}
        for number in range(1, rounds + 1):
            row = first if number == 1 else Round(number=number, base_sha256=base, **shared)
            result, closed = sha256_of(f"model of round {number}"), opened + float(rng.uniform(400, 650))
            session.add(Model(sha256=result, round=number, parent_sha256=base, bytes=183_000_000, created_at=closed))
            session.flush()
            row.opened_at, row.closed_at, row.result_sha256 = opened, closed, result
            row.ending = "deadline" if number % 7 == 0 else "full"
            row.epsilon = 0.35 * number**0.5
            session.add(row)
            session.flush()
            _add_phones(session, rng, number, phones, opened, codecs)
            for place, metric in enumerate(metrics if number % 3 == 1 else ()):
                value = (160 + 60 * np.exp(-number / 40), 417 * number**-0.2)[place % 2] * rng.uniform(0.995, 1.005)
                session.add(Quality(sha256=result, metric=metric, value=float(value), reported_at=closed + 60))
            base, opened = result, closed
        if rounds:
            session.add(Round(number=rounds + 1, base_sha256=base, opened_at=opened, **shared))
    ledger.close()
    if rounds:
        shutil.copy(workshop.base_path, state / "models" / f"{base}.safetensors")


def _add_phones(
    session: Session, rng: np.random.Generator, number: int, phones: int, opened: float, codecs: Mapping[str, int]
) -> None:
    names = list(codecs)
    for place in range(phones):
        phone = f"phone-{(number * phones + place) % 3000:04d}"
        usual = min(len(names) - 1, number // 100)
        codec = names[usual if rng.uniform() < 0.8 else int(rng.integers(len(names)))]
        length = int(codecs[codec] * rng.uniform(0.95, 1.05))
        again = int(length * rng.uniform(0, 0.3)) if rng.uniform() < 0.15 else 0
        update = Update(
            id=sha256_of(f"{number} {place}")[:32], round=number, phone=phone, state="accepted", length=length,
            sha256=sha256_of(f"update {number} {place}"), received_bytes=length + again,
            requests=2 if again else 1, created_at=opened + float(rng.uniform(5, 300)), settled_at=opened + 330,
            codec=codec, tokens=4000, weight=4000, status=201, reason="",
        )  # fmt: skip
        session.add(update)
        _add_traffic(session, number, phone, length + again)
    if rng.uniform() < 0.4:
        state, reason = REFUSALS[int(rng.integers(len(REFUSALS)))]
        length = min(codecs.values())
        update = Update(
            id=sha256_of(f"{number} refused")[:32], round=number, phone=f"stray-{number}", state=state, length=length,
            received_bytes=length, requests=1, created_at=opened + 9, settled_at=opened + 20,
            codec=None, status=422, reason=reason,
        )  # fmt: skip
        session.add(update)
        _add_traffic(session, number, f"stray-{number}", length)


def _add_traffic(session: Session, number: int, phone: str, up: int) -> None:
    for kind, up_body, down_body in (("upload", up, 300), ("model", 0, 183_000_000), ("round", 0, 400)):
        row = Traffic(
            round=number, phone=phone, kind=kind, requests=1, up_header_bytes=412, up_body_bytes=up_body,
            down_header_bytes=180, down_body_bytes=down_body,
        )  # fmt: skip
        session.add(row)
