"""The tables that `phonograd phone-round` ends with."""

from collections.abc import Sequence

from phonograd.android_harness.rounds.result import PhoneRound, RoundReport
from phonograd.console import Rows, figures

MIB = 1 << 20
# Stages that take long; of a masked round, masking in place of the last two.
WORK = {"push": "pushing", "train": "training", "mask": "masking", "pull": "pulling", "upload": "uploading"}
PLAIN, MASKED = ("push", "train", "pull", "upload"), ("push", "train", "mask")
MESSAGES = ("keys", "shares", "unmasking")  # of masked rounds


def tables_of(report: RoundReport) -> list[tuple[str, Rows]]:
    """Titles and rows: the phones, those that dropped out, and the round."""
    dropped_out = [("Dropped out", [_drop_out_row(phone) for phone in report.dropped_out])]
    return [
        ("Phones", _phone_rows(report)),
        *(dropped_out if report.dropped_out else ()),
        (f"Round {report.round}", _round_rows(report)),
    ]


def _phone_rows(report: RoundReport) -> Rows:
    stages = MASKED if report.masked else PLAIN
    return [
        {
            "phone": phone.name,
            "model": phone.model,
            "pushed MB": None if phone.pushed_bytes is None else phone.pushed_bytes / 1e6,
            f"{' + '.join(stages)}, s": _stages(phone, stages),
            "steps": phone.training.steps if phone.training else None,
            "loss": f"{phone.training.loss_first:.3f} to {phone.training.loss_last:.3f}" if phone.training else None,
            "update bytes": phone.update.nbytes if phone.update else None,
            "all sent": _wire(report, phone.name),
            "update": "out: " + phone.drop_out.stage if phone.drop_out else "accepted",
        }
        for phone in report.phones
    ]


def _stages(phone: PhoneRound, stages: Sequence[str]) -> str | None:
    seconds = [phone.seconds.get(stage) for stage in stages]
    return " + ".join("-" if value is None else f"{value:.1f}" for value in seconds) if phone.seconds else None


def _drop_out_row(phone: PhoneRound) -> dict[str, object]:
    assert phone.drop_out is not None
    return {
        "phone": phone.name,
        "while": phone.drop_out.stage,
        "code": phone.drop_out.exit_code,
        "because": phone.drop_out.message,
    }


def _round_rows(report: RoundReport) -> Rows:
    from phonograd.server_agg.report.text import size

    states = {True: "closed", False: "open: it waits for more phones", None: "not asked, or no answer"}
    cells: dict[str, object] = {
        "round is": states[report.closed],
        "model before": report.model_before[:12],
        "model after": report.model_after[:12] if report.model_after else None,
        "updates accepted": f"{len(report.uploaded)} of these phones, {report.clients_per_round} close a round",
        "uploaded": size(report.update_bytes),
        "a phone": size(report.update_bytes / len(report.uploaded)) if report.uploaded else None,
        "the whole model": size(report.model_bytes),
        "a phone in paper P": size(report.paper_mib_per_phone * MIB),
    }
    if report.ledger is not None:
        cells["whole round, by the server"] = size(report.ledger.round["up_body_bytes"])
        cells["of it useful"] = size(report.ledger.round["useful_bytes"])
        cells |= {kind: size(report.ledger.round[f"{kind}_up_bytes"]) for kind in MESSAGES if report.masked}
    else:
        cells["server's own report"] = report.ledger_missing
    return figures(cells)


def _wire(report: RoundReport, name: str) -> int | None:
    """All bytes the phone sent, as the server counted them at the connection."""
    for entry in report.ledger.phones if report.ledger else ():
        if entry["phone"] == name:
            return int(entry["up_body_bytes"]) + int(entry["up_header_bytes"])
    return None
