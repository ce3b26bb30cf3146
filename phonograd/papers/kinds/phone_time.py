"""The seconds of paper P's epoch on a phone: projected for each core, and measured by those who have a phone."""

from pathlib import Path

from phonograd.android_harness.report.document import read_report
from phonograd.android_harness.report.summary import is_paper_workload, summaries
from phonograd.bench.results import FOLDER
from phonograd.device_runtime.base.documents import Record, parse
from phonograd.device_runtime.base.errors import StateError
from phonograd.papers.experiment import Rows
from phonograd.papers.run import Context, Outcome

# Reports of phone-bench, one file a phone; CONTRIBUTING.md says how they come here.
PHONES = Path(__file__).parents[1] / "phones"
FULL, SAMPLED = "epoch, s", "epoch with a sampled output layer, s"


class Settings(Record, frozen=True):
    """None: the projections are those of `bench phone-cost`."""


def run(settings: Settings, context: Context) -> Outcome:
    """Read both; nothing is drawn at random. Raises StateError for a report of other work than the paper's."""
    del settings, context
    saved = parse((FOLDER / "phone.json").read_bytes())
    words = max(one["output_words"] for one in saved["projections"])
    rows: dict[str, dict[str, float]] = {}
    for one in saved["projections"]:
        figure = FULL if one["output_words"] == words else SAMPLED
        rows.setdefault(f"{one['cpu']}, {one['precision']}, projected", {})[figure] = one["all_epoch_seconds"]
    measured = [_read_phone(path) for path in sorted(PHONES.glob("*.json"))]
    facts = {"cores of the projection": saved["phone"]["cores"], "GHz": saved["phone"]["ghz"], "phones": len(measured)}
    return Outcome({**rows, **{row: figures for one in measured for row, figures in one.items()}}, facts)


def _read_phone(path: Path) -> Rows:
    """The median epochs of a report's phone. Its row is named after the file, as two phones may be of one model."""
    report = read_report(path)
    figures = {
        FULL if one.output_layer.kind == "full" else SAMPLED: one.epoch_seconds.median
        for _, one in summaries(report)
        if one.output_layer and one.epoch_seconds
    }
    if len(report.phones) != 1 or not figures or not is_paper_workload(report.workload):
        work = report.workload
        raise StateError(
            f"{path}: a report of one phone that timed paper P's epoch expected (preset popov-2x650, 3,500 to 4,500 "
            f"tokens), found phones: {len(report.phones)}, timed output layers: {len(figures)}, {work.model}, "
            f"{work.tokens:,} tokens; run phone-bench again"
        )
    return {f"{path.stem}, measured": figures}
