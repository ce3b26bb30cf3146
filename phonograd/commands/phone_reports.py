"""What `phonograd phone-bench` leaves: tables, its JSON document, a page, and the comparison with an earlier one."""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
from phonograd.config.phone_bench import PhoneBenching
from phonograd.console import Console
from phonograd.device_runtime.base.errors import MissingExtraError, UsageError, how_to_install
from phonograd.device_runtime.base.files import require_writable


@dataclass
class Outputs:
    """Files for the result, checked before the first phone is touched.

    config: what the result says of how it was made.
    """

    command: PhoneBenching
    config: Mapping[str, Any]
    old: PhoneBenchReport | None
    max_slowdown: float | None
    comparison: Comparison | None = None

    @classmethod
    def from_command(cls, command: PhoneBenching, settings: PhoneBenchSettings, config: Mapping[str, Any]) -> "Outputs":
        """Check the command's outputs.

        Raises UsageError, StorageError for places that can't be written, ReportError for an earlier result that is
        none, MissingExtraError where a page has nothing to plot with.
        """
        if command.max_slowdown is not None and command.compare is None:
            raise UsageError("`max_slowdown` needs `compare`, the earlier result")
        if command.fail_unsure and command.max_slowdown is None:
            raise UsageError("`fail_unsure` needs `max_slowdown`")
        allowed = None if command.max_slowdown is None else parse_max_slowdown(command.max_slowdown)
        for place in filter(None, (command.out, command.html, command.trace)):
            require_writable(place)
        if command.html is not None and importlib.util.find_spec("matplotlib") is None:
            raise MissingExtraError(f"`html` needs matplotlib for its plots; {how_to_install('plots')}")
        earlier = None if command.compare is None else read_report(command.compare)
        if earlier is not None and allowed is not None:
            require_epochs(earlier, settings.epochs)
            require_comparable(earlier, settings_document(settings))
        return cls(command, config, earlier, allowed)

    def write(self, console: Console, report: PhoneBenchReport) -> None:
        """The document, then tables or JSON on stdout, then the page and the trace. Raises StorageError."""
        from phonograd.android_harness.report.page import write_page
        from phonograd.android_harness.report.table import comparison_tables, tables
        from phonograd.android_harness.report.trace import write_trace

        out, html, trace = self.command.out, self.command.html, self.command.trace
        if self.old is not None:
            self.comparison = compare(self.old, report)
        if out is not None:
            write_report(out, report, self.comparison, self.config)
        compared = comparison_tables(self.comparison, self.max_slowdown) if self.comparison else ()
        console.result(to_document(report, self.comparison, self.config), *tables(report), *compared)
        if trace is not None:
            write_trace(trace, report)
        if html is not None:
            write_page(html, report, self.comparison, self.max_slowdown)

    def judge(self) -> None:
        """Raise RegressionError if a phone is slower than `max_slowdown` allows, or may be with
        `fail_unsure`, ReportError if none was judged."""
        if self.comparison is not None and self.max_slowdown is not None:
            require_no_regression(self.comparison, self.max_slowdown, self.command.fail_unsure)
