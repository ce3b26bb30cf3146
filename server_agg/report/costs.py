"""What the bytes of a report cost at a price, and whether phones stayed within a limit."""

from collections.abc import Mapping
from typing import Any

from phonograd.device_runtime.base.errors import UploadLimitError
from phonograd.server_agg.report.text import size

GB, MB = 10**9, 10**6


def paid_bytes(entry: Mapping[str, Any], direction: str) -> int:
    """The bytes of a round, or of all, in a direction: TCP's, TLS included, where they are known, else HTTP's."""
    of_tcp = entry[f"{direction}_tcp_bytes"]
    nbytes = entry[f"{direction}_body_bytes"] + entry[f"{direction}_header_bytes"] if of_tcp is None else of_tcp
    return int(nbytes)


def priced(report: Mapping[str, Any], per_gb: float, projected: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What the rounds of a report, all of them, and a projection cost at `per_gb` for 10^9 bytes, up or down."""
    costs: dict[str, Any] = {
        "per_gb": per_gb,
        "rounds": [{"round": entry["round"], **_cost(entry, per_gb)} for entry in report["rounds"]],
        "totals": _cost(report["totals"], per_gb),
    }
    if projected is not None:
        up, down = projected["up_bytes"], projected["down_bytes"]
        costs["projection"] = _cost_of(up, down, per_gb)
        if (links := projected["down_link_bytes"]) is not None:
            costs["projection_with_links"] = _cost_of(up, links, per_gb)
    return costs


def check_uploads(report: Mapping[str, Any], most: float) -> None:
    """Raise UploadLimitError if a phone sent more than `most` bytes in a round, headers and retries included.

    Looks at all phones that sent some of an update, whatever became of it: somebody paid for those bytes too.
    """
    above = [entry for entry in report["rounds"] if (entry["phone_up_max_bytes"] or 0) > most]
    if above:
        worst = max(above, key=lambda entry: int(entry["phone_up_max_bytes"]))
        rounds = f"{len(above)} of {len(report['rounds'])} rounds exceed it"
        raise UploadLimitError(
            f"round {worst['round']}: a phone sent {size(worst['phone_up_max_bytes'])}, expected at most {size(most)} "
            f"(`max_upload_mb`); {rounds}; `phonograd report --round {worst['round']}` shows each phone"
        )


def _cost(entry: Mapping[str, Any], per_gb: float) -> dict[str, float]:
    return _cost_of(paid_bytes(entry, "up"), paid_bytes(entry, "down"), per_gb)


def _cost_of(up: int, down: int, per_gb: float) -> dict[str, float]:
    return {
        "up_bytes": up,
        "down_bytes": down,
        "up": up / GB * per_gb,
        "down": down / GB * per_gb,
        "both": (up + down) / GB * per_gb,
    }
