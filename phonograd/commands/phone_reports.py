"""What `phonograd phone-bench` leaves: tables, its JSON document, a page, and the comparison with an earlier one."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from phonograd.android_harness.report.compare import (
    Comparison,
    compare,
    parse_max_slowdown,
    require_comparable,
    require_epochs,
    require_no_regression,
)
from phonograd.android_harness.report.document import read_report, to_document, write_report
from phonograd.android_harness.result import PhoneBenchReport
from phonograd.android_harness.timing.settings import PhoneBenchSettings, settings_document
from phonograd.console import Console
from phonograd.device_runtime.base.errors import MissingExtraError, UsageError
from phonograd.device_runtime.base.files import require_writable


@dataclass
class Outputs:
    """Where the result goes; all of it was looked at before the first phone was touched."""

    out: Path | None
    html: Path | None
    trace: Path | None
    old: PhoneBenchReport | None
    max_slowdown: float | None
    fail_unsure: bool = False
    comparison: Comparison | None = None

    @classmethod
    def checked(
        cls,
        out: Path | None,
        html: Path | None,
        trace: Path | None,
        old: Path | None,
        max_slowdown: str | None,
        settings: PhoneBenchSettings,
        fail_unsure: bool = False,
    ) -> "Outputs":
        """From the command's options.

        Raises UsageError, StorageError for places that can't be written, ReportError for an earlier result that is
        none, MissingExtraError where --html has nothing to plot with.
        """
        if max_slowdown is not None and old is None:
            raise UsageError("--max-slowdown needs --compare, the earlier result")
        if fail_unsure and max_slowdown is None:
            raise UsageError("--fail-unsure needs --max-slowdown")
        allowed = None if max_slowdown is None else parse_max_slowdown(max_slowdown)
        for place in filter(None, (out, html, trace)):
            require_writable(place)
        if html is not None and importlib.util.find_spec("matplotlib") is None:
            raise MissingExtraError("--html needs matplotlib for its plots: pip install 'phonograd[plots]'")
        earlier = None if old is None else read_report(old)
        if earlier is not None and allowed is not None:
            require_epochs(earlier, settings.epochs)
            require_comparable(earlier, settings_document(settings))
        return cls(out, html, trace, earlier, allowed, fail_unsure)

    def write(self, console: Console, report: PhoneBenchReport) -> None:
        """The document, then tables or JSON on stdout, then the page and the trace. Raises StorageError."""
        from phonograd.android_harness.report.page import write_page
        from phonograd.android_harness.report.table import comparison_tables, tables
        from phonograd.android_harness.report.trace import write_trace

        if self.old is not None:
            self.comparison = compare(self.old, report)
        if self.out is not None:
            write_report(self.out, report, self.comparison)
        compared = comparison_tables(self.comparison, self.max_slowdown) if self.comparison else ()
        console.result(to_document(report, self.comparison), *tables(report), *compared)
        if self.trace is not None:
            write_trace(self.trace, report)
        if self.html is not None:
            write_page(self.html, report, self.comparison, self.max_slowdown)

    def judge(self) -> None:
        """Raise RegressionError if a phone is slower than --max-slowdown allows, or may be with
        --fail-unsure, ReportError if none was judged."""
        if self.comparison is not None and self.max_slowdown is not None:
            require_no_regression(self.comparison, self.max_slowdown, self.fail_unsure)
