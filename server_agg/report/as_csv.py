"""The report as CSV (RFC 4180): a header line, then a line a round, or a line a phone of one round."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from phonograd.server_agg.report.records import PhoneCost, RoundReport


def report_csv(report: Mapping[str, Any]) -> str:
    """A line a round.

    Codecs are `name:updates:bytes`, links sent `name:requests:bytes`, by space.
    """
    return _csv(RoundReport.__struct_fields__, map(_flat, report["rounds"]))


def phones_csv(phones: Iterable[Mapping[str, Any]]) -> str:
    """A line a phone."""
    return _csv(PhoneCost.__struct_fields__, phones)


def _flat(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    codecs = (f"{name}:{part['updates']}:{part['bytes']}" for name, part in entry["codecs"].items())
    links = (f"{name}:{part['requests']}:{part['bytes']}" for name, part in entry["sent_links"].items())
    quality = (f"{metric}:{value}" for metric, value in entry["quality"].items())
    return {**entry, "codecs": " ".join(codecs), "sent_links": " ".join(links), "quality": " ".join(quality)}


def _csv(columns: Sequence[str], lines: Iterable[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=columns)
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()
