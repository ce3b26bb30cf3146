"""Flower: its ServerApps average by phonograd's strategies, its ClientApps train as phones do and send updates."""

import os

from phonograd.device_runtime.base.errors import MissingExtraError, how_to_install

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # read when flwr is imported: nothing is sent to Flower's makers

try:
    from phonograd.adapters.flower.client import train_reply
    from phonograd.adapters.flower.strategy import UpdateStrategy
except ImportError as error:
    raise MissingExtraError(f"this needs flwr ({error}); {how_to_install('flower')}") from error

__all__ = ["UpdateStrategy", "train_reply"]
