"""The operations of the HTTP API: each is declared once, by a decorator on the method that handles it.

The routes, who may use each path (security/guard.py) and /openapi.json are made from the declarations.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta
from starlette.responses import Response
from starlette.routing import Route

# Who may use an operation. open: anyone. phone: holders of a valid token. admin: administrators.
Access = Literal["open", "phone", "admin"]

JSON = "application/json"
HTML = "text/html; charset=utf-8"
OCTETS = "application/octet-stream"
# The type of a body of bytes, for its schema.
Octets = Annotated[str, Meta(extra_json_schema={"contentMediaType": OCTETS})]
Natural = Annotated[int, Meta(ge=0)]  # of any size
WholeNumber = Annotated[int, Meta(ge=0, le=999_999_999)]

H = TypeVar("H", bound=Callable[..., Response | Awaitable[Response]])
_DECLARED = "operation"


@dataclass(frozen=True)
class Parameter:
    """A parameter of the path, the query or the headers; `kind`: a type with its bounds."""

    place: Literal["path", "query", "header"]
    name: str
    kind: Any = str
    description: str = ""
    required: bool = False
    default: int | None = None


@dataclass(frozen=True)
class Body:
    """A request's body: a JSON document of type `kind`, or bytes."""

    kind: Any = Octets
    media: str = JSON
    required: bool = True


@dataclass(frozen=True)
class Header:
    """A header of an answer."""

    name: str
    kind: Any = str
    description: str = ""
    required: bool = True


RETRY_AFTER = Header("Retry-After", int, "Seconds.", required=False)


@dataclass(frozen=True)
class Answer:
    """An answer that is no refusal: a document of type `kind`, or other media; without `kind` it has no body."""

    description: str
    kind: Any = None
    media: tuple[str, ...] = (JSON,)
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True)
class Operation:
    """A method of a path: who may use it, what it takes and answers, and the statuses of its refusals.

    handler: the name of the Python method that handles it. The guard's refusals, which any path may answer with, are
    not listed.
    """

    method: str
    path: str
    access: Access
    handler: str
    summary: str
    answers: Mapping[int, Answer]
    refusals: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None


def operation(
    endpoint: str,
    access: Access,
    answers: Mapping[int, Answer],
    *,
    refuses: tuple[int, ...] = (),
    takes: tuple[Parameter, ...] = (),
    body: Body | None = None,
) -> Callable[[H], H]:
    """Declare that the decorated method handles an operation, whose summary is the first line of its docstring.

    A method that waits for nothing but the ledger and the disk is a plain one: starlette runs it in a thread.

    endpoint: such as `GET /v1/round`. refuses: the statuses of its refusals; takes: its parameters.
    """
    method, _, path = endpoint.partition(" ")

    def declare(handler: H) -> H:
        summary = (inspect.getdoc(handler) or "").partition("\n")[0]
        name = handler.__name__
        vars(handler)[_DECLARED] = Operation(method, path, access, name, summary, answers, refuses, takes, body)
        return handler

    return declare


def pattern_of(rule: re.Pattern[str]) -> str:
    r"""A rule for whole texts, which ends in `\Z`, as JSON Schema writes it."""
    return "^" + rule.pattern.replace(r"\Z", "$")


def operations_of(*apis: type) -> tuple[Operation, ...]:
    """The operations that the methods of these classes declare, in their order."""
    members = [member for api in apis for member in vars(api).values()]
    return tuple(vars(member)[_DECLARED] for member in members if _DECLARED in getattr(member, "__dict__", {}))


def routes_of(api: object) -> list[Route]:
    """The routes to the methods of `api`, an instance of such a class."""
    return [Route(one.path, getattr(api, one.handler), methods=[one.method]) for one in operations_of(type(api))]
