"""A simulation as a table: its measured rounds, and the bytes until each."""

from itertools import accumulate
from typing import Any

from phonograd.simulation.records import Quality, SimulationRecord

MB = 1e6


def rows_of(record: SimulationRecord) -> list[dict[str, Any]]:
    """A row for the model before the first round, and for each round whose model was measured."""
    up = [0, *accumulate(ended.bytes_up for ended in record.rounds)]
    down = [0, *accumulate(ended.bytes_down for ended in record.rounds)]
    rows = [_row(0, record.before, None, 0, 0, 0) | {"link, MB": None, "left out, %": None}]
    for ended in record.rounds:
        if ended.quality is not None:
            number = ended.number
            row = _row(number, ended.quality, ended.loss_last, ended.accepted, up[number] / MB, down[number] / MB)
            link = None if ended.link_bytes is None else ended.link_bytes / MB
            left_out = None if ended.left_out is None else 100 * ended.left_out
            rows.append(row | {"link, MB": link, "left out, %": left_out})
    return rows


def _row(number: int, quality: Quality, loss: float | None, accepted: int, up: float, down: float) -> dict[str, Any]:
    general, users = quality.general, quality.users
    row: dict[str, Any] = {"round": number, "accepted": accepted, "loss": loss}
    if general is not None:
        row |= {"general perplexity": general.perplexity, "with unknown words": general.perplexity_with_unknown}
        row |= {} if general.kss is None else {"general KSS, %": 100 * general.kss}
    if users is not None:
        spread = users.perplexity
        row |= {"users' perplexity": spread.mean, "p10": spread.p10, "p90": spread.p90}
        row |= {"users' with unknown words": users.perplexity_with_unknown.mean}
        row |= {"users' top-1, %": 100 * users.top1.mean}
        row |= {} if users.kss is None else {"users' KSS, %": 100 * users.kss.mean}
    return row | {"MB up": up, "MB down": down}
