"""A Ray cluster for one job: the one that RAY_ADDRESS names, or a new one on this machine that ends with the job."""

import contextlib
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from phonograd.device_runtime.base.errors import OutOfMemoryError, PhonogradError, ServerUnreachableError

# How often Ray repeats work whose worker was killed, before it gives up.
RETRIES = 10
# The least that Ray accepts is 75 MiB.
LEAST_STORE_BYTES = 80 << 20
STARTS = 3
CONNECT_SECONDS = 10.0
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}


@contextlib.contextmanager
def cluster(workers: int, store_bytes: int = 0) -> Iterator[None]:
    """A cluster of `workers` processes with an object store of `store_bytes`; or that of RAY_ADDRESS, as it is.

    All its machines must find the same files at the same paths. A cluster of our own has no dashboard, keeps its files
    in a temporary folder, and its processes end with this one, even if it is killed. Raises ServerUnreachableError.
    """
    on_sigterm = signal.getsignal(signal.SIGTERM)
    with contextlib.ExitStack() as resources:
        if address := os.environ.get("RAY_ADDRESS"):
            _join(address)
        else:
            # A short name: the paths of Ray's sockets must fit 107 bytes.
            folder = resources.enter_context(tempfile.TemporaryDirectory(prefix="pg-ray-", ignore_cleanup_errors=True))
            _start(workers, max(LEAST_STORE_BYTES, store_bytes), folder)
        resources.callback(ray.shutdown)
        # Ray's own handler would end this process, and what it has begun.
        signal.signal(signal.SIGTERM, on_sigterm)
        yield


def _join(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        if port.isdigit() and "//" not in host:  # else Ray tries for minutes
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        ray.init(address, **QUIET)
    except Exception as error:  # Ray raises many kinds
        raise ServerUnreachableError(
            f"RAY_ADDRESS {address}: a Ray cluster expected, found none ({error}); start it with `ray start --head`, "
            "or unset RAY_ADDRESS to run on this machine alone"
        ) from error


def _start(workers: int, store_bytes: int, folder: str) -> None:
    for attempt in range(1, STARTS + 1):
        try:
            ray.init(
                "local",
                num_cpus=workers,
                object_store_memory=store_bytes,
                include_dashboard=False,
                _temp_dir=folder,
                **QUIET,
            )
            return
        except Exception as error:  # Ray raises many kinds; on a busy machine it gives up after 30 seconds
            ray.shutdown()
            if attempt == STARTS:
                raise ServerUnreachableError(
                    f"Ray did not start in {STARTS} attempts ({error}); stop other programs and run the same command "
                    "again, or use `--engine local`"
                ) from error


def result(reference: Any) -> Any:
    """What a task returned. Raises the PhonogradError that it raised, OutOfMemoryError if its workers were killed."""
    try:
        return ray.get(reference)
    except RayError as error:
        cause = error.cause if isinstance(error, RayTaskError) else error
        if isinstance(cause, PhonogradError):
            raise cause from None
        if not isinstance(cause, RayError):
            raise
        raise OutOfMemoryError(
            f"Ray gave up after its workers were killed {RETRIES + 1} times, most likely for lack of memory; "
            "use fewer `workers`"
        ) from error
