"""Who may use each path. A path without an operation is for administrators, so that none is open by mistake."""

from collections.abc import Iterable, Mapping

from starlette.routing import compile_path

from phonograd.server_agg.http.operations import Access, Operation

_STRICTNESS: Mapping[Access, int] = {"open": 0, "phone": 1, "admin": 2}


class Roles:
    """Who may use the paths of `operations`: all methods of a path need what the strictest of them needs."""

    def __init__(self, operations: Iterable[Operation]):
        declared = {(one.path, one.access) for one in operations}
        self._patterns = [(compile_path(path)[0], access) for path, access in declared]

    def access_of(self, path: str) -> Access:
        """Who may use `path`, decoded as the router sees it: the strictest of all declared paths that match it."""
        fitting = [access for pattern, access in self._patterns if pattern.match(path)]
        return max(fitting, key=lambda access: _STRICTNESS[access], default="admin")
