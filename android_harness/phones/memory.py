"""A phone's memory and free storage."""

import re

_FREE = re.compile(r"[0-9]{1,15}\s+[0-9]{1,15}\s+([0-9]{1,15})\s+[0-9]{1,3}%\s+/")


def parse_meminfo(text: str, name: str) -> int | None:
    """Bytes of one line of /proc/meminfo, such as MemTotal."""
    match = re.search(rf"^{name}:\s*([0-9]{{1,15}}) kB\s*$", text, re.MULTILINE)
    return None if match is None else int(match[1]) << 10


def parse_df(text: str) -> int | None:
    """Bytes free of `df -k PATH`; busybox breaks the line after a long device's name."""
    match = _FREE.search(text)
    return None if match is None else int(match[1]) << 10
