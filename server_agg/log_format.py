"""Log lines as text, or as JSON for log collectors.

A log call for a documented event names it: `log.info("...", extra=event("round_closed", round=3))`.
"""

import json
import logging
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import partial
from typing import Literal, TextIO

from phonograd.device_runtime.base.visible import visible, with_options

LogFormat = Literal["text", "json"]
DEFAULT_FORMAT: LogFormat = "text"
# Attributes of every record; all others were passed as `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time (UTC), level, logger, event, message, then the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line of JSON; an exception adds the field `traceback`."""
        at = datetime.fromtimestamp(record.created, timezone.utc)
        fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        document: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": fields.pop("event", "log"),
            "message": record.getMessage(),
            **{name: value for name, value in fields.items() if value is not None},
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


class TextFormatter(logging.Formatter):
    """One line, and a bug's traceback; on a terminal, perhaps."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as text, its control characters shown."""
        return visible(super().format(record))


def event(name: str, **fields: object) -> dict[str, object]:
    """The `extra` of a log call: the event's name and fields. Fields that are None are left out."""
    return {"event": name, **fields}


def _name_options(record: logging.LogRecord, options: Mapping[str, str]) -> bool:
    if "`" in (message := record.getMessage()):
        record.msg, record.args = with_options(message, options), ()
    return True


def configure(stream: TextIO, level: int, log_format: LogFormat, options: Mapping[str, str] | None = None) -> None:
    """Send the process's log lines of `level` and above to `stream`. options: a command's, by the settings they set."""
    handler = logging.StreamHandler(stream)
    if options is not None:
        handler.addFilter(partial(_name_options, options=options))
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
        logging.captureWarnings(True)
    else:
        handler.setFormatter(TextFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    logging.getLogger("alembic").setLevel(logging.WARNING)  # it tells each step of a new ledger
