"""Which version of phonograd this is."""

from importlib.metadata import PackageNotFoundError, version


def _version() -> str:
    try:
        return version("phonograd")
    except PackageNotFoundError:  # a checkout that is not installed
        return "unknown"


VERSION = _version()
