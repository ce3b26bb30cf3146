"""The headers that a source file includes, so that an edited header recompiles only its users."""

import re
from pathlib import Path

from phonograd.device_runtime.base.errors import BuildError
from phonograd.device_runtime.native_build.targets import INCLUDE_FOLDERS

# Headers in angle brackets are the compiler's own, and change only with its version.
INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[ \t]*(?:<[^>\n]*>|\"([^\"\n]*)\"|(.*))", re.MULTILINE)

# The same in Zig; a name without a dot is a library of the compiler's.
IMPORT = re.compile(r'@(?:import|embedFile)\("([^"]+\.[^"]+)"\)')


class Includes:
    """The includes of a source tree; each file is read once. One thread at a time."""

    def __init__(self, root: Path):
        self._places = tuple(root / folder for folder in INCLUDE_FOLDERS)
        self._direct: dict[Path, tuple[Path, ...]] = {}

    def of(self, source: Path) -> tuple[Path, ...]:
        """The headers that `source` includes, directly or not, sorted.

        Ignores preprocessor conditions, so it may list a header that the compiler skips, but never misses one. Searches
        like the compiler: the including file's folder, then the include folders. The compiler reports missing headers.
        Raises BuildError for an include of a macro instead of a file name.
        """
        files: set[Path] = set()
        unread = [source]
        while unread:
            new = set(self._direct_includes(unread.pop())) - files
            files |= new
            unread += new
        return tuple(sorted(files))

    def _direct_includes(self, file: Path) -> tuple[Path, ...]:
        if file not in self._direct:
            places = (file.parent, *self._places)
            paths = (
                [place / name for place in places if (place / name).is_file()][:1] for name in _quoted_includes(file)
            )
            self._direct[file] = tuple(path for found in paths for path in found)
        return self._direct[file]


def _quoted_includes(file: Path) -> list[str]:
    if file.suffix == ".zig":
        return IMPORT.findall(file.read_text("utf-8", "replace"))
    names = []
    for match in INCLUDE.finditer(file.read_text("utf-8", "replace")):
        if match[2] is not None:
            raise BuildError(f"{file}: an include of a file name expected, found {match[0].strip()!r}")
        if match[1] is not None:
            names.append(match[1])
    return names
