"""Which paths ask for whom. A path that is not listed asks for an administrator, so that none is open by mistake."""

from collections.abc import Mapping
from typing import Literal

from starlette.routing import compile_path

# open: anyone. phone: any valid token. admin: an administrator's.
Access = Literal["open", "phone", "admin"]

# Paths as the routes write them, whatever the method. Every route is listed here; a test sees to it.
ACCESS: Mapping[str, Access] = {
    "/healthz": "open",
    "/openapi.json": "open",
    "/static/{name}": "open",
    "/admin": "open",  # it has the admin link's key, or is refused
    "/v1/round": "phone",
    "/v1/model": "phone",
    "/v1/models/{sha256}": "phone",
    "/v1/updates": "phone",
    "/v1/uploads": "phone",
    "/v1/uploads/{id}": "phone",
    "/v1/models": "admin",
    "/v1/report/rounds/{number:int}": "admin",
    "/v1/rollback": "admin",
    "/v1/discard": "admin",
    "/v1/report": "admin",
    "/v1/report.csv": "admin",
    "/v1/phones": "admin",
    "/v1/phones/{name}": "admin",
    "/v1/phones/{name}/tokens": "admin",
    "/v1/audit": "admin",
    "/v1/models/{sha256}/quality": "admin",
    "/metrics": "admin",
    "/": "admin",
    "/dashboard/live": "admin",
    "/dashboard/rounds": "admin",
    "/dashboard/rounds/{number}": "admin",
    "/dashboard/models": "admin",
}

_STRICTNESS: Mapping[Access, int] = {"open": 0, "phone": 1, "admin": 2}
_PATTERNS = tuple((compile_path(path)[0], access) for path, access in ACCESS.items())


def access_of(path: str) -> Access:
    """Whom `path`, decoded as the router sees it, asks for: the strictest of the entries that it fits."""
    fitting = [access for pattern, access in _PATTERNS if pattern.match(path)]
    return max(fitting, key=lambda access: _STRICTNESS[access], default="admin")
