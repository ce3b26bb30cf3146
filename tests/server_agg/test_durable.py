"""What was acknowledged survives a power cut: the order in which the disk is asked, and how SQLite commits."""

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine.default import DefaultDialect

from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.server_agg.aggregation.privacy.noise import KEY_BYTES
from phonograd.server_agg.rounds.aggregator import RoundAggregator
from phonograd.server_agg.rounds.uploads import UploadMetadata
from phonograd.server_agg.storage.noise_keys import NoiseKeys
from tests.server_agg.coordinators import open_coordinator
from tests.server_agg.workshop import Workshop, settings_with
from tests.support.disk_diary import DiskDiary


class LedgerDiary(DiskDiary):
    """Notes `accepted` and `round N open` too, when the ledger first says so to another process."""

    def __init__(self, patch: pytest.MonkeyPatch, root: Path):
        super().__init__(patch, root)
        self._known: set[str] = set()
        commit = DefaultDialect.do_commit

        def committing(dialect: DefaultDialect, connection: Any) -> None:
            commit(dialect, connection)
            for line in sorted(said_by(root / "ledger.sqlite") - self._known):
                self._known.add(line)
                self.note(line)

        patch.setattr(DefaultDialect, "do_commit", committing)


def said_by(path: Path) -> set[str]:
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        accepted = ledger.execute("SELECT COUNT(*) FROM updates WHERE state = 'accepted'").fetchone()[0]
        (number,) = ledger.execute("SELECT number FROM rounds WHERE closed_at IS NULL").fetchone()
    return {f"round {number} open"} | ({"accepted"} if accepted else set())


@pytest.mark.parametrize("ahead", [True, False], ids=["measured_ahead", "in_its_turn"])
def test_accepted_means_durable(workshop: Workshop, state: Path, monkeypatch: pytest.MonkeyPatch, ahead: bool) -> None:
    """Bytes, their second name, the row; then the first name goes. The model before the round's end, that before the
    answer."""
    update = workshop.update(1)
    if not ahead:
        monkeypatch.setattr(RoundAggregator, "measured_ahead", lambda *_: contextlib.nullcontext())
    with (
        open_coordinator(workshop, state, settings_with(clients_per_round=1)) as coordinator,
        monkeypatch.context() as patch,
    ):
        upload = coordinator.create_upload(UploadMetadata("phone1", update.stat().st_size))
        arrived = coordinator.folder.upload(upload.id)
        arrived.write_bytes(update.read_bytes())
        sha256 = sha256_of_file(update)
        diary = LedgerDiary(patch, state)
        model = coordinator.ingest(upload.id, sha256, 0).model_sha256
        diary.note("answer")
    stored, first = f"updates/{sha256}.safetensors", f"incoming/{upload.id}"
    assert diary.order_of(f"fsync {first}", "accepted", f"unlink {first}", "answer")
    assert diary.order_of(f"link {stored}", "fsync updates", "accepted")
    assert diary.order_of("accepted", f"replace models/{model}.safetensors", "fsync models", "round 2 open", "answer")
    assert diary.order_of("round 2 open", f"unlink {stored}")


def test_a_noise_key_is_overwritten_on_disk_before_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = NoiseKeys(tmp_path)
    keys.get_or_create(1)
    os.link(tmp_path / "1", tmp_path / "recovered")
    diary = DiskDiary(monkeypatch, tmp_path)
    keys.delete_all_except(2)
    assert diary.lines == ["fsync 1", "unlink 1", "fsync ."]
    assert (tmp_path / "recovered").read_bytes() == bytes(KEY_BYTES)


def test_a_committed_row_is_on_disk(workshop: Workshop, tmp_path: Path) -> None:
    with open_coordinator(workshop, tmp_path / "state") as coordinator:
        for session_of in (coordinator.ledger.reading, coordinator.ledger.writing):
            with session_of() as session:
                found = [session.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "synchronous")]
            assert found == ["wal", 2]  # 2: FULL, the log is synced at each commit


def test_the_state_folder_is_its_owners_alone(workshop: Workshop, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with open_coordinator(workshop, tmp_path / "state"):
            assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
