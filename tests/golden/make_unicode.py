"""Writes tests/golden/unicode from Debian's package unicode-data: run `python -m tests.golden.make_unicode`.

Comments but the first, which has the copyright, and columns that NFC does not need are left out.
"""

import bz2
import gzip
from pathlib import Path

from phonograd.device_runtime.native_build.unicode_tables import SOURCE

FOLDER = Path(__file__).with_name("unicode")


def pack(name: str, text: str, columns: int) -> None:
    """Write a file's lines with so many columns."""
    head = text.split("\n#\n", 1)[0].splitlines()
    rows = (line.split("#", 1)[0].split(";")[:columns] for line in text.splitlines() if line[:1] not in "#@")
    content = "\n".join([*head, *(";".join(row).strip() for row in rows if "".join(row).strip())]) + "\n"
    (FOLDER / f"{name}.gz").write_bytes(gzip.compress(content.encode(), 9, mtime=0))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    pack("WordBreakTest.txt", (SOURCE / "auxiliary/WordBreakTest.txt").read_text("utf-8"), 1)
    pack("NormalizationTest.txt", bz2.decompress((SOURCE / "NormalizationTest.txt.bz2").read_bytes()).decode(), 3)
