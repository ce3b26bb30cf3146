"""Updates in codecs of one's own, as a server reads them: decoded in a process of its own, then read natively."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

from phonograd.device_runtime.base.errors import StorageError, UpdateError, WeightsError
from phonograd.device_runtime.base.files import storage_errors
from phonograd.device_runtime.formats.frozen import trained_specs
from phonograd.device_runtime.formats.tensor_file import TensorFile, check_specs, spec_of
from phonograd.device_runtime.update.codecs import DEFAULT_CODEC
from phonograd.device_runtime.update.own_codec import OWN, PAYLOAD, SETTINGS, OwnCodecError, made
from phonograd.device_runtime.update.update_file import (
    FORMAT,
    VERSION,
    OfModel,
    UpdateFile,
    UpdateInfo,
    write_update,
)

DECODE_SECONDS = 300.0
ROOM_BYTES = 256 << 20  # of memory that decoding may take, and so many times the model, half of them for the codec
ROOM_MODELS = 8
# Its path is this process's, in which the codec was found.
_CHILD = (
    "import sys; sys.path[:] = sys.argv[1:]\n"
    "from phonograd.device_runtime.update.own_update import main; sys.exit(main())"
)
_NUMBER = re.compile(r"[0-9]{1,18}")


class OwnUpdate(OfModel):
    """An update in a codec of one's own, open for reading. One thread at a time.

    info: its metadata; settings: its codec's, as JSON. Raises WeightsError or UpdateError for a damaged file or a
    codec that is not loaded.
    """

    def __init__(self, path: Path):
        self.path = path
        with contextlib.ExitStack() as opened:
            self._file = opened.enter_context(TensorFile(path))
            self._file.take_checksum()
            self.info = _info_of(self._file)
            self.settings = self._file.metadata.get(SETTINGS, "")
            opened.pop_all()

    def __enter__(self) -> "OwnUpdate":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextlib.contextmanager
    def decoded(self, base: TensorFile) -> Iterator[UpdateFile]:
        """It as a native update of the same path and metadata, on the model that it was made from.

        Its file has no name any more, and takes as much of the temporary folder as the changed rows. Raises
        OwnCodecError, StorageError for a full disk or a process that was killed.
        """
        with storage_errors(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "update"
            _decode_apart(self.path, base.path, out, self.info.codec)
            native = UpdateFile(out)
        with native:
            native.path, native.info = self.path, self.info
            yield native

    def write_decoded(self, base: TensorFile, out: Path) -> None:
        """Decode it in this process, and write it natively. Raises UpdateError or WeightsError for what does not fit
        the model, and whatever the codec does.
        """
        specs = trained_specs(base)
        payload = self._file.read(PAYLOAD).tobytes()
        try:
            codec = made(self.info.codec, self.settings)
        except (ValueError, TypeError) as error:
            raise UpdateError(f"{self.path}: {SETTINGS}: {error}") from error
        deltas = dict(codec.decode(payload, {spec.name: spec.shape for spec in specs}, self.info.seed))
        check_specs("delta", {name: spec_of(name, delta) for name, delta in deltas.items()}, specs)
        trained = {name: base.read(name) for name in base.specs}
        with np.errstate(all="ignore"):  # write_update says which is not finite
            for name, delta in deltas.items():
                weights = trained[name]
                moved = weights + delta
                trained[name] = np.where(moved == weights, weights, moved)
        write_update(out, base, trained, msgspec.structs.replace(self.info, codec=DEFAULT_CODEC))


def open_update(path: Path) -> UpdateFile | OwnUpdate:
    """Open an update, of whichever codec. Raises UpdateError."""
    if OWN.by_name and _in_own_codec(path):
        return _own_update(path)
    try:
        return UpdateFile(path)
    except UpdateError:
        if not OWN.by_name and _in_own_codec(path):
            return _own_update(path)  # which says that its codec is not loaded
        raise


def _in_own_codec(path: Path) -> bool:
    with contextlib.suppress(WeightsError), TensorFile(path) as file:
        return ":" in file.metadata.get("codec", "")
    return False


def _own_update(path: Path) -> OwnUpdate:
    try:
        return OwnUpdate(path)
    except WeightsError as error:
        raise UpdateError(str(error)) from error


@contextlib.contextmanager
def native_update(path: Path, base: TensorFile, base_sha256: str) -> Iterator[UpdateFile]:
    """An update of whichever codec as a native one, all of it held against its model.

    Raises UpdateError (another base model, parts that disagree), what OwnUpdate.decoded raises.
    """
    with open_update(path) as update:
        update.check_base(base_sha256)
        with update.decoded(base) as native:
            native.check(base, base_sha256)
            yield native


def _info_of(file: TensorFile) -> UpdateInfo:
    told, path, specs = file.metadata, file.path, list(file.specs.values())
    for key, expected in (("format", FORMAT), ("version", VERSION), ("steps", "1")):
        if (found := told.get(key, "1" if key == "steps" else "")) != expected:
            raise UpdateError(f"{path}: {key} {expected} expected, found {found[:80]!r}; send it again")
    for key in ("round", "tokens", "seed"):
        if not _NUMBER.fullmatch(found := told.get(key, "")) or (key == "tokens" and not int(found)):
            raise UpdateError(f"{path}: {key}: a whole number expected, found {found[:80]!r}; send it again")
    if (codec := told["codec"]) not in OWN.by_name:
        loaded = ", ".join(sorted(OWN.by_name)) or "none"
        raise UpdateError(f"{path}: codec {codec[:80]!r} is unknown; expected one that was named as `codec`: {loaded}")
    if [(spec.name, spec.dtype, len(spec.shape)) for spec in specs] != [(PAYLOAD, "U8", 1)]:
        raise UpdateError(f"{path}: tensor {PAYLOAD} U8 expected, found {', '.join(map(str, specs))[:200] or 'none'}")
    number, tokens, seed = (int(told[key]) for key in ("round", "tokens", "seed"))
    return UpdateInfo(told.get("base_sha256", ""), number, tokens, codec, seed, 1 if "steps" in told else None)


def _decode_apart(update: Path, base: Path, out: Path, codec: str) -> None:
    """`write_decoded` in a process of its own, which may fail, hang or die. Raises as OwnUpdate.decoded."""
    job = json.dumps({"update": str(update), "base": str(base), "out": str(out), "codec": codec})
    line = [sys.executable, "-c", _CHILD, *filter(None, sys.path)]
    code, said = 0, ""
    try:
        done = subprocess.run(
            line, input=job, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=DECODE_SECONDS,
            check=False, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        code, said = done.returncode, (done.stderr.strip().splitlines() or [""])[-1]
    except subprocess.TimeoutExpired:
        code, said = 1, f"took longer than {DECODE_SECONDS:g} seconds"
    if code in (-signal.SIGKILL, -signal.SIGTERM):
        raise StorageError(f"codec {codec}: its process was killed, most likely for lack of memory; send it again")
    if code == StorageError.exit_code:
        raise StorageError(said)
    if code in (UpdateError.exit_code, WeightsError.exit_code):
        raise OwnCodecError(f"codec {codec}: decode: {said}")
    if code or not out.exists():
        fault = f"ended by {signal.Signals(-code).name}" if code < 0 else said or f"ended with {code}"
        raise OwnCodecError(f"codec {codec}: decode: {fault}", f"codec {codec}: it failed on the update")


def main() -> int:
    """The process: a job on stdin. What is wrong with the update is one line on stderr, a fault a traceback."""
    for number in (signal.SIGINT, signal.SIGTERM):  # what ends the server lets it go on for what is decided
        signal.signal(number, signal.SIG_IGN)
    job = json.load(sys.stdin)
    OWN.load(job["codec"])
    try:
        with TensorFile(Path(job["base"])) as base, OwnUpdate(Path(job["update"])) as update:
            _bound(ROOM_BYTES + ROOM_MODELS * base.nbytes)
            update.write_decoded(base, Path(job["out"]))
    except (UpdateError, WeightsError, StorageError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)  # noqa: T201 - that is how it answers
        return error.exit_code
    return 0


def _bound(nbytes: int) -> None:
    """Let this process take so much memory more, on Linux; more is a MemoryError."""
    if sys.platform == "linux":
        import resource

        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        with contextlib.suppress(ValueError):  # less is allowed already
            resource.setrlimit(resource.RLIMIT_AS, (held + nbytes, hard))
