"""Programs of the system that a benchmark needs."""

import shutil

from phonograd.device_runtime.base.errors import UnsupportedError


def find_tool(names: str, package: str) -> str:
    """The first of `names` (by blanks) that is installed. Raises UnsupportedError naming the package."""
    for name in names.split():
        if found := shutil.which(name):
            return found
    raise UnsupportedError(f"bench: {names.split(maxsplit=1)[0]} not found; install {package}")
