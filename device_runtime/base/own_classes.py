"""Users' classes, outside phonograd: loaded by name, with settings that are a dataclass."""

import dataclasses
import difflib
import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from phonograd.device_runtime.base.errors import UsageError

OWN_NAME = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")  # MODULE:CLASS
_NO_SETTINGS = dataclasses.make_dataclass("NoSettings", (), frozen=True)

Own = TypeVar("Own")


class OwnClasses(Generic[Own]):
    """Users' classes of one kind that this process has loaded.

    setting: the setting that names one, such as `strategy`
    group: the group of their entry points
    base: the class of phonograd's API that they derive from
    known: phonograd's own names for the setting
    prepare: turns a class into what `find` returns
    """

    def __init__(
        self,
        setting: str,
        group: str,
        base: type[Own],
        known: Sequence[str],
        prepare: Callable[[str, type[Own]], type[Own]],
    ):
        self._setting, self._group, self._base, self._known, self._prepare = setting, group, base, known, prepare
        self.by_name: dict[str, type[Own]] = {}  # MODULE:CLASS

    def load(self, own: str | type[Own]) -> str:
        """Load a class and return its name, MODULE:CLASS; from then on `find` finds it.

        own: such a name, whose module is also looked for in the current folder; the name of an entry point; or the
        class itself, which another process needs by name. This runs the module's code. Raises UsageError, saying what
        was expected.
        """
        if isinstance(own, str):
            name = own if ":" in own else self._entry_point(own)
            if name in self.by_name:
                return name
            own = self._import_class(name)
        else:
            name = f"{own.__module__}:{own.__qualname__}"
        self.by_name[name] = self._prepare(name, self._check_class(name, own))
        return name

    def find(self, name: str) -> type[Own]:
        """Return a loaded class. Raises UsageError if it is not loaded."""
        if name not in self.by_name:
            raise UsageError(
                f"`{self._setting}` {name}: expected to be loaded, as a round was opened with it; start with it as "
                f"`{self._setting}`"
            )
        return self.by_name[name]

    def make_settings(self, name: str, values: Mapping[str, Any]) -> Any:
        """The settings of a loaded class; values must have the types of their fields. Raises ValueError for others."""
        kind = settings_of(self.find(name))
        known = [field.name for field in dataclasses.fields(kind)]
        for key in values:
            if key not in known:
                meant = "".join(f"; did you mean {one}?" for one in difflib.get_close_matches(key, known, n=1))
                raise ValueError(f"{key}: {name} has no such setting{meant}")
        try:
            return msgspec.convert(values, kind)
        except msgspec.ValidationError as error:
            raise ValueError(str(error.__cause__ or error).replace("$.", "")) from error

    def _entry_point(self, name: str) -> str:
        found = {point.name: point.value for point in entry_points(group=self._group)}
        if name not in found:
            expected = ", ".join([*self._known, *sorted(found)])
            raise UsageError(f"`{self._setting}` is {name!r}, expected one of {expected}, or MODULE:CLASS of your own")
        return found[name]

    def _import_class(self, name: str) -> Any:
        if not OWN_NAME.fullmatch(name):
            raise UsageError(f"`{self._setting}` is {name!r}, expected MODULE:CLASS, such as my_package.module:Mine")
        module, _, path = name.partition(":")
        here = str(Path.cwd())
        if here not in sys.path:
            sys.path.append(here)  # last: it must not hide what is installed
        try:
            found: Any = importlib.import_module(module)
            for part in path.split("."):
                found = getattr(found, part)
        except Exception as error:  # whatever a foreign module raises
            raise UsageError(
                f"`{self._setting}` {name}: cannot be imported: {type(error).__name__}: {error}"
            ) from error
        return found

    def _check_class(self, name: str, own: Any) -> type[Own]:
        which = f"`{self._setting}` {name}"
        if not (isinstance(own, type) and issubclass(own, self._base)):
            raise UsageError(f"{which}: expected a subclass of phonograd.{self._base.__name__}, found {own!r}")
        declared = settings_of(own)
        if not dataclasses.is_dataclass(declared):
            raise UsageError(f"{which}: `Settings` expected to be a dataclass, found {declared!r}")
        for field in dataclasses.fields(declared):
            if field.default is dataclasses.MISSING:
                raise UsageError(f"{which}: setting {field.name!r}: a default expected, found none")
        return own


def settings_of(own: type) -> type[Any]:
    """Return the dataclass `Settings` of a user's class; one without fields if it has none."""
    found: type[Any] = getattr(own, "Settings", _NO_SETTINGS)
    return found
