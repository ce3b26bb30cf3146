"""Ray: simulated phones and folds on its workers."""

import os

from phonograd.device_runtime.base.errors import MissingExtraError, how_to_install

# Read when ray is imported or started: nothing is sent to Ray's makers, and no warning about GPUs is printed.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

try:
    import ray  # noqa: F401  # the modules here import it
except ImportError as error:
    raise MissingExtraError(f"engine ray needs ray ({error}); {how_to_install('ray')}") from error
