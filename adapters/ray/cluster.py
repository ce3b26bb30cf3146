"""A Ray cluster for one job: the one that RAY_ADDRESS names, or a new one on this machine that ends with the job."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from phonograd.device_runtime.base.errors import OutOfMemoryError, PhonogradError

# How often Ray repeats work whose worker was killed, before it gives up.
RETRIES = 10
# The least that Ray accepts is 75 MiB.
LEAST_STORE_BYTES = 80 << 20


@contextlib.contextmanager
def cluster(workers: int, store_bytes: int = 0) -> Iterator[None]:
    """A cluster of `workers` processes with an object store of `store_bytes`; or that of RAY_ADDRESS, as it is.

    All its machines must find the same files at the same paths. A cluster of our own has no dashboard, keeps its files
    in a temporary folder, and its processes end with this one, even if it is killed.
    """
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
    on_sigterm = signal.getsignal(signal.SIGTERM)
    with contextlib.ExitStack() as kept:
        if address := os.environ.get("RAY_ADDRESS"):
            ray.init(address, log_to_driver=False, logging_level="ERROR")
        else:
            # A short name: the paths of Ray's sockets must fit 107 bytes.
            folder = kept.enter_context(tempfile.TemporaryDirectory(prefix="pg-ray-", ignore_cleanup_errors=True))
            store = max(LEAST_STORE_BYTES, store_bytes)
            ray.init("local", num_cpus=workers, object_store_memory=store, _temp_dir=folder, **quiet)
        kept.callback(ray.shutdown)
        # Ray's own handler would end this process, and what it has begun.
        signal.signal(signal.SIGTERM, on_sigterm)
        yield


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
