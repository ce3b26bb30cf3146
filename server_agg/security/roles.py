"""Whom each path asks for. A path of no operation asks for an administrator, so that none is open by mistake."""

from collections.abc import Iterable, Mapping

from starlette.routing import compile_path

from phonograd.server_agg.http.operations import Access, Operation

_STRICTNESS: Mapping[Access, int] = {"open": 0, "phone": 1, "admin": 2}


class Roles:
    """What the declarations of `operations` say; a path's methods all ask for the strictest of them."""

    def __init__(self, operations: Iterable[Operation]):
        declared = {(one.path, one.access) for one in operations}
        self._patterns = [(compile_path(path)[0], access) for path, access in declared]

    def access_of(self, path: str) -> Access:
        """Whom `path`, decoded as the router sees it, asks for: the strictest of the entries that it fits."""
        fitting = [access for pattern, access in self._patterns if pattern.match(path)]
        return max(fitting, key=lambda access: _STRICTNESS[access], default="admin")
