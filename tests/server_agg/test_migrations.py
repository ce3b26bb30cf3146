"""A ledger that an earlier release wrote goes on; one that a later release wrote is left alone."""

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from phonograd.device_runtime.base.errors import StorageError
from phonograd.server_agg.report.document import read_report
from phonograd.server_agg.rounds.coordinator import Coordinator
from phonograd.server_agg.storage.ledger import Ledger
from phonograd.server_agg.storage.migrations import FIRST_VERSION, VERSION, VERSION_TABLE
from tests.server_agg.workshop import Workshop, settings_with

# What 0.1.0 wrote, as it wrote it: never brought up to date.
VERSION_2 = """
CREATE TABLE models (
    sha256 VARCHAR(64) NOT NULL, round INTEGER NOT NULL, parent_sha256 VARCHAR(64), optimizer_sha256 VARCHAR(64),
    bytes INTEGER NOT NULL, created_at DOUBLE NOT NULL, PRIMARY KEY (sha256));
CREATE TABLE phones (
    id INTEGER NOT NULL, name VARCHAR(64) NOT NULL, role VARCHAR(16) NOT NULL, created_at DOUBLE NOT NULL,
    revoked_at DOUBLE, PRIMARY KEY (id), UNIQUE (name));
CREATE TABLE audit (
    id INTEGER NOT NULL, at DOUBLE NOT NULL, actor VARCHAR NOT NULL, action VARCHAR NOT NULL, subject VARCHAR NOT NULL,
    outcome VARCHAR NOT NULL, detail VARCHAR NOT NULL, PRIMARY KEY (id));
CREATE INDEX ix_audit_outcome ON audit (outcome);
CREATE TABLE rounds (
    number INTEGER NOT NULL, base_sha256 VARCHAR(64) NOT NULL, result_sha256 VARCHAR(64), rules VARCHAR NOT NULL,
    strategy VARCHAR NOT NULL, population INTEGER NOT NULL, noise_key BLOB, opened_at DOUBLE NOT NULL, closed_at DOUBLE,
    epsilon DOUBLE, epsilon_rdp DOUBLE, ending VARCHAR(16), rolled_back_at DOUBLE, PRIMARY KEY (number),
    FOREIGN KEY(base_sha256) REFERENCES models (sha256), FOREIGN KEY(result_sha256) REFERENCES models (sha256));
CREATE TABLE quality (
    sha256 VARCHAR(64) NOT NULL, metric VARCHAR(64) NOT NULL, value DOUBLE NOT NULL, reported_at DOUBLE NOT NULL,
    PRIMARY KEY (sha256, metric), FOREIGN KEY(sha256) REFERENCES models (sha256));
CREATE TABLE tokens (
    id VARCHAR(16) NOT NULL, sha256 VARCHAR(64) NOT NULL, phone INTEGER NOT NULL, created_at DOUBLE NOT NULL,
    expires_at DOUBLE, revoked_at DOUBLE, last_used_at DOUBLE, PRIMARY KEY (id),
    FOREIGN KEY(phone) REFERENCES phones (id));
CREATE INDEX ix_tokens_phone ON tokens (phone);
CREATE TABLE selected (
    round INTEGER NOT NULL, phone VARCHAR(64) NOT NULL, PRIMARY KEY (round, phone),
    FOREIGN KEY(round) REFERENCES rounds (number));
CREATE TABLE updates (
    id VARCHAR(32) NOT NULL, round INTEGER NOT NULL, phone VARCHAR(64) NOT NULL, state VARCHAR(16) NOT NULL,
    length INTEGER NOT NULL, sha256 VARCHAR(64), resumable BOOLEAN NOT NULL, received_bytes INTEGER NOT NULL,
    requests INTEGER NOT NULL, created_at DOUBLE NOT NULL, settled_at DOUBLE, codec VARCHAR, tokens INTEGER,
    weight INTEGER, measures VARCHAR, base_sha256 VARCHAR(64), status INTEGER, reason VARCHAR, PRIMARY KEY (id),
    FOREIGN KEY(round) REFERENCES rounds (number));
CREATE UNIQUE INDEX one_accepted_update_per_phone ON updates (round, phone) WHERE state = 'accepted';
CREATE INDEX ix_updates_round ON updates (round);
CREATE INDEX ix_updates_state ON updates (state);
CREATE TABLE traffic (
    round INTEGER NOT NULL, phone VARCHAR(64) NOT NULL, kind VARCHAR(16) NOT NULL, requests INTEGER NOT NULL,
    up_header_bytes INTEGER NOT NULL, up_body_bytes INTEGER NOT NULL, down_header_bytes INTEGER NOT NULL,
    down_body_bytes INTEGER NOT NULL, PRIMARY KEY (round, phone, kind),
    FOREIGN KEY(round) REFERENCES rounds (number));
PRAGMA user_version = 2;
"""
# The JSON that 0.1.0 kept with a round.
RULES = '{"clients_per_round": 3, "deadline_seconds": null, "late": "drop", "max_clients": null, "min_clients": 1}'
STRATEGY = (
    '{"adam_epsilon": 0.001, "attention_noise": 0.0, "attention_norm": "2", "attention_step": 1.2, "beta1": 0.9, '
    '"beta2": 0.99, "clip_norm": 15.0, "delta": 1e-09, "epsilon_budget": null, "estimator": "fixed", '
    '"krum_byzantine": 1, "krum_selected": 0, "max_tokens": 10000000, "mean_weight": 1.0, "min_share": 0.5, '
    '"momentum": 0.9, "noise_multiplier": 1.0, "norm_bound": 15.0, "per_layer": false, "sampling": 0.01, '
    '"server_lr": 1.0, "server_optimizer": "none", "strategy": "fedavg", "token_cap": null, "trim_share": 0.1, '
    '"weighting": "tokens"}'
)


def write_version_2(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        ledger.executescript(VERSION_2)


def columns(path: Path) -> dict[str, set[tuple[str, str, bool, int]]]:
    """By table: name, type, NOT NULL and place in the primary key of each column; and the indices, by name."""
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        names = [name for (name,) in ledger.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {
            table: {(row[1], row[2], bool(row[3]), row[5]) for row in ledger.execute(f"PRAGMA table_info({table})")}
            for table in names
        }
        found["indices"] = {
            (name, table, False, 0)
            for name, table in ledger.execute("SELECT name, tbl_name FROM sqlite_master WHERE sql LIKE '%INDEX%'")
        }
        return found


def test_a_migrated_ledger_has_the_columns_of_a_new_one(tmp_path: Path) -> None:
    old, new = tmp_path / "old.sqlite", tmp_path / "new.sqlite"
    write_version_2(old)
    for path in (old, new):
        Ledger(path).close()
    assert columns(old) == columns(new)
    with contextlib.closing(sqlite3.connect(old)) as ledger:
        assert ledger.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall() == [(str(VERSION),)]
        assert ledger.execute("PRAGMA user_version").fetchone() == (VERSION,)  # releases before 8 refuse it by this
    Ledger(old, create=False).close()


def test_a_state_folder_of_0_1_0_goes_on_in_its_round(workshop: Workshop, tmp_path: Path) -> None:
    state, sha256 = tmp_path / "state", workshop.base_sha256
    state.mkdir(mode=0o700)
    (state / "models").mkdir()
    shutil.copy(workshop.base_path, state / "models" / f"{sha256}.safetensors")
    write_version_2(state / "ledger.sqlite")
    with contextlib.closing(sqlite3.connect(state / "ledger.sqlite")) as ledger:
        ledger.execute(
            "INSERT INTO models VALUES (?, 0, NULL, NULL, ?, 1.0)", (sha256, workshop.base_path.stat().st_size)
        )
        closed = (sha256, sha256, RULES, STRATEGY)
        ledger.execute("INSERT INTO rounds VALUES (1, ?, ?, ?, ?, 0, NULL, 1, 2, NULL, NULL, 'full', NULL)", closed)
        open_ = (sha256, RULES, STRATEGY)
        ledger.execute("INSERT INTO rounds VALUES (2, ?, NULL, ?, ?, 0, x'00', 2, NULL, NULL, NULL, NULL, NULL)", open_)
        ledger.execute("INSERT INTO phones VALUES (1, 'a', 'phone', 1.0, NULL)")
        ledger.commit()
    with contextlib.closing(Coordinator(workshop.artifacts, state, settings_with(clients_per_round=3))) as coordinator:
        assert (coordinator.current.round, coordinator.current.base_sha256) == (2, sha256)


def test_no_key_is_left_in_a_ledger_of_0_1_0(tmp_path: Path) -> None:
    path, key = tmp_path / "ledger.sqlite", bytes(range(100, 132))
    write_version_2(path)
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        ledger.execute("INSERT INTO models VALUES ('base', 0, NULL, NULL, 5000, 1.0)")
        row = "INSERT INTO rounds VALUES (1, 'base', NULL, ?, ?, 0, ?, 1, NULL, NULL, NULL, NULL, NULL)"
        ledger.execute(row, (RULES, STRATEGY, key))
        ledger.commit()
    assert key in path.read_bytes()
    with contextlib.closing(Ledger(path)):
        assert not [found.name for found in tmp_path.iterdir() if key in found.read_bytes()]


def test_bytes_that_a_kill_kept_from_0_1_0_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    write_version_2(path)
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        ledger.execute("INSERT INTO models VALUES ('base', 0, NULL, NULL, 5000, 1.0)")
        rounds = "INSERT INTO rounds VALUES (1, 'base', 'base', ?, ?, 0, NULL, 1, 2, 9e999, 9e999, 'full', NULL)"
        ledger.execute(rounds, (RULES, STRATEGY))
        for phone, received, on_wire in (("a", 100, 100), ("b", 1300, 1400), ("c", 1000, None)):
            ledger.execute(
                "INSERT INTO updates (id, round, phone, state, length, resumable, received_bytes, requests, created_at)"
                " VALUES (?, 1, ?, 'accepted', 1000, TRUE, ?, 1, 1.0)", (phone, phone, received),
            )  # fmt: skip
            if on_wire is not None:
                ledger.execute("INSERT INTO traffic VALUES (1, ?, 'upload', 1, 50, ?, 50, 50)", (phone, on_wire))
        ledger.commit()
    (entry,) = read_report(tmp_path)["rounds"]
    assert (entry["useful_bytes"], entry["retried_bytes"], entry["up_body_bytes"]) == (3000, 400, 3400)
    assert (entry["up_tcp_bytes"], entry["down_tcp_bytes"]) == (None, None)  # nobody looked
    assert (entry["up_header_bytes"], entry["epsilon"], entry["epsilon_infinite_phones"]) == (100, None, 3)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (VERSION + 1, f"expected ledger version {VERSION} or earlier, found {VERSION + 1}, written by a newer"),
        (FIRST_VERSION - 1, f"expected ledger version {FIRST_VERSION} to {VERSION}, found 1; choose an empty `state`"),
    ],
)
def test_a_ledger_of_an_unknown_version_is_refused_unchanged(tmp_path: Path, found: int, message: str) -> None:
    path = tmp_path / "ledger.sqlite"
    write_version_2(path)
    with contextlib.closing(sqlite3.connect(path)) as ledger:
        ledger.execute(f"PRAGMA user_version = {found}")
    before = columns(path)
    with pytest.raises(StorageError, match=message):
        Ledger(path)
    assert columns(path) == before


def test_a_file_that_is_no_ledger_is_refused_where_none_may_be_made(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "ledger.sqlite").close()
    with pytest.raises(StorageError, match="ledger version 2 to"):
        Ledger(tmp_path / "ledger.sqlite", create=False)
