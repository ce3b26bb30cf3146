"""Random histories of a ledger's rows."""

from random import Random

from sqlalchemy import select, update

from phonograd.server_agg.rounds.opening import add_round
from phonograd.server_agg.settings.server import ServerSettings
from phonograd.server_agg.storage import queries
from phonograd.server_agg.storage.ledger import Ledger, WireBytes
from phonograd.server_agg.storage.tables import Update
from tests.server_agg.read_from_rows import check_report

STATES = ("receiving", "accepted", "repeated", "rejected", "late", "expired", "terminated")
KINDS = ("upload", "model", "link-top-rows", "round", "keys", "refused", "asked-model")
PHONES = ("", "a", "b", "c", "d")


def change_rows(ledger: Ledger, random: Random) -> None:
    """Any change of rows that a ledger allows, in any of its rounds, most of them closed."""
    with ledger.writing() as session:
        rounds = queries.all_rounds(session)
        number, phone = random.choice(rounds).number, random.choice(PHONES)
        rows = list(session.scalars(select(Update).order_by(Update.id)))
        its = random.choice(rows) if rows else None
        match random.randrange(7):
            case 0 | 1:
                of_tcp = [random.choice((None, 7)), random.choice((0, 9))]
                wire = WireBytes(*(random.randrange(50) for _ in range(5)), *of_tcp)
                ledger.count(number, phone, random.choice(KINDS), wire)
            case 2:
                codec, at = random.choice((None, "top-rows", "full-f32")), float(random.randrange(1, 9))
                state = random.choice([state for state in STATES if state != "accepted"])
                row = {"round": number, "phone": phone, "state": state, "length": 10, "requests": 0}
                session.add(Update(id=f"{random.getrandbits(128):032x}", codec=codec, created_at=at, **row))
            case 3 if its is not None and its.state != "accepted":
                its.round, its.codec = rounds[-1].number, its.codec or "rows-f32"  # only the open one accepts
                taken = queries.has_update(session, its.round, its.phone, "accepted")
                its.state = "rejected" if taken else "accepted"
                its.received_bytes, its.requests = its.received_bytes + random.randrange(20), its.requests + 1
            case 4 if its is not None and its.state != "accepted":
                its.round, its.base_sha256 = number, random.choice((None, "b" * 64))
            case 5:
                open_ = rounds[-1]
                open_.closed_at, open_.ending = 10.0, random.choice(("full", "deadline", "failed", "rollback"))
                open_.epsilon = random.choice((None, 1.5))
                session.flush()
                add_round(session, 0.0, open_.number + 1, "a" * 64, ServerSettings())
            case 6 if random.random() < 0.5:
                session.execute(update(Update).where(Update.round == number).values(received_bytes=30))
            case 6:
                queries.delete_refused_unsent(session, number)


def check_a_history(ledger: Ledger, random: Random) -> None:
    for _ in range(random.randrange(30)):
        change_rows(ledger, random)
        if random.random() < 0.3:
            check_report(ledger)
    check_report(ledger)
    assert check_report(ledger)  # by now all that can be kept was kept
