"""What the peers that were written for one kind of model refuse."""

from phonograd.bench.worker import UnavailableError
from phonograd.device_runtime.formats.manifest import Manifest


def require_untied_lstm(manifest: Manifest) -> None:
    """Raises UnavailableError unless the artifacts train an untied LSTM with ce, without dropout."""
    model, training = manifest.model, manifest.training
    if model.cell != "lstm" or model.tied or training.loss != "ce" or training.dropout:
        raise UnavailableError("this peer trains an untied LSTM with ce and without dropout only")
