"""What runs the workers of a simulation or a fold: processes of this machine, or Ray's."""

from typing import Literal, get_args

from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.system import usable_cores

Engine = Literal["local", "ray"]
ENGINES: tuple[Engine, ...] = get_args(Engine)


def require_engine(engine: Engine) -> None:
    """Raise UsageError for a name that is no engine's."""
    if engine not in ENGINES:
        raise UsageError(f"engine {engine!r}: expected {' or '.join(ENGINES)}")


def workers_of(workers: int | None) -> int:
    """As many workers as were asked for, else one a core."""
    return workers or usable_cores()
