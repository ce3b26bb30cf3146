"""The update of a model that a backend has trained."""

from pathlib import Path

from phonograd.device_runtime.base.errors import TrainingError, WeightsError
from phonograd.device_runtime.engine.backend import Backend
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.tensor_file import Array, TensorFile, WrittenFile, check_finite
from phonograd.device_runtime.update.update_file import UpdateInfo, require_counts, write_update


def write_trained_update(path: Path, base: TensorFile, engine: Backend, info: UpdateInfo) -> WrittenFile:
    """Write the update of the engine's weights, which it started from `base`, atomically: the bytes of `write_update`.

    The native engine writes them itself, without a copy of the model. Raises TrainingError if a weight is not finite,
    and else what `write_update` raises.
    """
    if not isinstance(engine, NativeBackend):
        return write_update(path, base, finite_weights(engine), info)
    require_counts(info)
    base.require_unchanged()
    return engine.write_update(
        path,
        base_sha256=info.base_sha256,
        round=info.round,
        tokens=info.tokens,
        codec=info.codec,
        seed=info.seed,
        one_step=info.steps == 1,
    )


def finite_weights(engine: Backend) -> dict[str, Array]:
    """A copy of the engine's weights. Raises TrainingError if one is not finite."""
    trained = engine.weights()
    try:
        for name, values in trained.items():
            check_finite("trained weights", name, values)
    except WeightsError as error:
        raise TrainingError(f"{error}; lower the learning rate or export with a smaller `clip_norm`") from error
    return trained
