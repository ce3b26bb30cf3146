"""Log lines: for people, or as JSON for programs that collect them.

A call that means an event says so: `log.info("...", extra=event("round_closed", round=3))`.
"""

import json
import logging
from datetime import datetime, timezone
from typing import Literal, TextIO

LogFormat = Literal["text", "json"]
DEFAULT_FORMAT: LogFormat = "text"
# What every record has; the rest was given by the call.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, event, message, then what the call gave."""

    def format(self, record: logging.LogRecord) -> str:
        """The record's line; an exception's traceback is one of its fields."""
        at = datetime.fromtimestamp(record.created, timezone.utc)
        given = {name: value for name, value in vars(record).items() if name not in _STANDARD}
        document: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": given.pop("event", "log"),
            "message": record.getMessage(),
            **{name: value for name, value in given.items() if value is not None},
        }
        if record.exc_info:
            document["traceback"] = self.formatException(record.exc_info)
        return json.dumps(document, default=str)


def event(name: str, **fields: object) -> dict[str, object]:
    """The `extra` of a log call: what happened, and its facts beside the text; None: does not apply."""
    return {"event": name, **fields}


def configure(stream: TextIO, level: int, log_format: LogFormat) -> None:
    """Send the process's log lines of `level` and above to `stream`."""
    handler = logging.StreamHandler(stream)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
