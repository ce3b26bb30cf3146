"""Codecs of one's own: a class outside phonograd says what a phone sends of its delta. docs/updates.md, FORMAT.md."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from phonograd.device_runtime.base.errors import UpdateError
from phonograd.device_runtime.base.own_classes import OwnClasses, settings_of
from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import Array, Floats, TensorFile, WrittenFile, save_tensors
from phonograd.device_runtime.update.codecs import CODECS, DEFAULT_CODEC
from phonograd.device_runtime.update.update_file import FORMAT, VERSION, UpdateFile, UpdateInfo, write_update

PAYLOAD = "payload"  # U8[n], what the codec made
SETTINGS = "codec_settings"  # metadata key: those that it was made with, as JSON
LARGEST_DELTA = np.float32(2.0**100)  # FORMAT.md, "Updates"


class OwnCodecError(UpdateError):
    """A codec of one's own failed: it raised an error, or returned what is no bytes or no delta of the model.

    told: what a phone may know of it; the message says more, about the server's own code.
    """

    exit_code = 32

    def __init__(self, message: str, told: str = ""):
        super().__init__(message)
        self.told = told or message


class Codec:
    """What to derive a codec from. own: its settings, of the dataclass `Settings` within it, if it has one.

    A phone makes one and encodes with it; the server makes another one for each update, from the settings that came
    with it, and decodes in a process of its own.
    """

    def __init__(self, own: Any):
        self.own = own

    def encode(self, deltas: Mapping[str, Floats], seed: int) -> bytes:
        """What to send of `deltas`, float32 by tensor, in the model's order: trained - base, finite.

        seed: the update's, which `decode` is given too; each phone and round has another one.
        """
        raise NotImplementedError

    def decode(self, payload: bytes, shapes: Mapping[str, tuple[int, ...]], seed: int) -> Mapping[str, Floats]:
        """The deltas that `payload` stands for: of each of `shapes` float32 and finite. The same bits each time.

        payload comes from a stranger. Raise UpdateError for one that is damaged; its message is told to the phone.
        """
        raise NotImplementedError


OWN: OwnClasses[Codec] = OwnClasses("codec", "phonograd.codecs", Codec, CODECS)


def own_codec(own: str | type[Codec], **settings: Any) -> str:
    """A codec of one's own, with `settings` of its dataclass: the `codec` of `train`, `join_round`, SimulationSettings.

    own: its class, or what `OWN.load` takes. It is MODULE:CLASS, behind which are the settings, if it has some. Raises
    UsageError, ValueError for a setting that it refuses.
    """
    name = OWN.load(own)
    values = dataclasses.asdict(OWN.settings_class(name)(**settings))
    return f"{name} {json.dumps(values, sort_keys=True)}" if values else name


def name_of(codec: str) -> str:
    """The name of a codec, as updates have it: MODULE:CLASS of one of one's own, without its settings."""
    return codec.partition(" ")[0]


def native_codec(codec: str) -> str:
    """What the native library writes for `recode`: that codec itself, or the default for one of one's own.

    Raises UsageError, ValueError for one of one's own that cannot be loaded, or its settings.
    """
    if ":" not in codec:
        return codec
    name, _, settings = codec.partition(" ")
    made(OWN.load(name), settings)
    return DEFAULT_CODEC


def made(name: str, settings: str) -> Codec:
    """A loaded codec with its settings, a JSON object or "". Raises whatever its dataclass does."""
    own = OWN.loaded(name)
    return own(settings_of(own)(**json.loads(settings or "{}")))


def write_encoded(path: Path, base: TensorFile, trained: Mapping[str, Array], info: UpdateInfo) -> WrittenFile:
    """As `write_update`, also in a codec of one's own, with its settings. Raises OwnCodecError, UsageError too."""
    written = write_update(path, base, trained, msgspec.structs.replace(info, codec=native_codec(info.codec)))
    return recode(path, base.path, info.codec) or written


def recode(update: Path, base: Path, codec: str) -> WrittenFile | None:
    """Replace an update by one in a codec of one's own, atomically; None, with nothing changed, for other codecs.

    update: as the native library wrote it, by a lossless codec; base: the model that it was made from. All of the model
    is in memory. If it fails, there is no update. Raises OwnCodecError, WeightsError, UpdateError, StorageError.
    """
    if ":" not in codec:
        return None
    try:
        return _recoded(update, base, codec)
    except BaseException:
        update.unlink(missing_ok=True)
        raise


def _recoded(update: Path, base: Path, codec: str) -> WrittenFile:
    name, _, settings = codec.partition(" ")
    with TensorFile(base) as model, UpdateFile(update) as native:
        deltas, info = native.weights(model), msgspec.structs.asdict(native.info)
        for tensor, delta in deltas.items():
            np.clip(delta - model.read(tensor), -LARGEST_DELTA, LARGEST_DELTA, out=delta)
        deltas = {spec.name: deltas[spec.name] for spec in trained_specs(model)}
    try:
        payload = made(name, settings).encode(deltas, info["seed"])
    except Exception as error:  # whatever foreign code raises
        raise OwnCodecError(f"codec {name}: encode: {type(error).__name__}: {error}") from error
    if not isinstance(payload, bytes):
        raise OwnCodecError(f"codec {name}: encode: bytes expected, found {type(payload).__name__}")
    facts = {key: str(value) for key, value in info.items() if value is not None}
    metadata = {**facts, "format": FORMAT, "version": VERSION, "codec": name, SETTINGS: settings}
    return save_tensors(update, {PAYLOAD: np.frombuffer(payload, np.uint8)}, metadata, checksum=True)
