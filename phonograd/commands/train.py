"""`phonograd train` and `phonograd eval`: what a phone does, on this machine."""

import contextlib
import dataclasses
import math
import statistics
from pathlib import Path

import click

from device_runtime.backends import BACKENDS, DEFAULT_BACKEND, Backend
from device_runtime.backends.base import PRECISIONS, BackendOptions, Precision
from device_runtime.codecs import CODECS, DEFAULT_CODEC
from device_runtime.errors import TrainingError, UsageError, WeightsError
from device_runtime.manifest import VOCABULARY, WEIGHTS, Artifacts, TrainingConfig, open_artifacts
from device_runtime.server_client import Connection
from device_runtime.training_state import SAVE_EVERY, saved_seed
from phonograd.commands.seeding import chosen_seed, seed_options
from phonograd.commands.update import round_option
from phonograd.connecting import connection_options
from phonograd.console import Console, output_options
from phonograd.native_engine import build_on_first_use

PATH = click.Path(path_type=Path)
# Figures of an Evaluation that --server reports, and what the server calls them.
QUALITY = {"perplexity": "perplexity", "top1": "top-1", "kss": "keystrokes saved"}
backend_option = click.option(
    "--backend", type=click.Choice(BACKENDS), default=DEFAULT_BACKEND, show_default=True, help="What runs the graph."
)
threads_option = click.option(
    "--threads", type=click.IntRange(1), default=BackendOptions.threads, show_default=True, help="CPU threads."
)
weights_option = click.option(
    "--weights", type=PATH, help="Start from this tensor file (a later round's model), not from the folder's weights."
)


@click.command()
@click.argument("artifacts", type=PATH)
@click.option("--user", type=PATH, required=True, help="The user's text, one message a line.")
@click.option("--rehearsal", type=PATH, help="General text to draw rehearsal messages from.")
@click.option(
    "--user-share",
    type=click.FloatRange(0, 1, min_open=True),
    default=None,
    help=f"λ, the user's share of the tokens; with --rehearsal only.  [default: {TrainingConfig.user_share}]",
)
@weights_option
@backend_option
@threads_option
@click.option(
    "--pin-threads", is_flag=True, default=BackendOptions.pin_threads, help="Keep each thread on one CPU (native)."
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default=BackendOptions.precision,
    show_default=True,
    help="Of the products (native): bf16 where the CPU has it, bf16-emulated anywhere, slowly.",
)
@click.option("--lr", type=click.FloatRange(0, min_open=True), help="Learning rate.  [default: the artifacts']")
@seed_options
@click.option("--out", type=PATH, help="Write the trained weights here.")
@click.option("--update", "update_path", type=PATH, help="Write the update for the server here.")
@click.option("--codec", type=click.Choice(list(CODECS)), default=DEFAULT_CODEC, show_default=True, help="Of --update.")
@round_option
@click.option("--state", type=PATH, help="Keep resumable state in this folder, and go on from it (native).")
@click.option(
    "--save-every",
    type=click.IntRange(1),
    help=f"Steps from one save of --state to the next.  [default: {SAVE_EVERY}]",
)
@click.option("--restart", is_flag=True, help="Discard what --state holds.")
@output_options
def train(  # click passes options by name
    console: Console,
    artifacts: Path,
    user: Path,
    rehearsal: Path | None,
    user_share: float | None,
    weights: Path | None,
    backend: str,
    threads: int,
    pin_threads: bool,
    precision: Precision,
    lr: float | None,
    phone: str | None,
    seed: int | None,
    out: Path | None,
    update_path: Path | None,
    codec: str,
    round_number: int,
    state: Path | None,
    save_every: int | None,
    restart: bool,
) -> None:
    """Train one epoch on a user's text, as a phone does.

    The seed of all that is random follows from model, round and --phone; without a name it is random, and reported.
    With --rehearsal, general messages are mixed in at random until the user's share of the tokens is λ (paper P).
    With --state, a run that was killed goes on where it was, to the same bits; SIGTERM and SIGINT end it after the
    step that is running, saved, with exit code 143 and 130.
    """
    from device_runtime.files import require_place, sha256_of_file
    from device_runtime.rehearsal import mix
    from device_runtime.text import read_messages
    from device_runtime.trainer import train_epoch
    from device_runtime.training_state import TrainingState
    from device_runtime.vocabulary import Vocabulary
    from phonograd.stopping import stop_signals

    if user_share is not None and rehearsal is None:
        raise click.UsageError("--user-share needs --rehearsal, the general text to mix in")
    if state is None and (restart or save_every is not None):
        raise click.UsageError("--save-every and --restart need --state, the folder they are about")
    for path in filter(None, (out, update_path)):
        require_place(path)
    share = 1.0 if rehearsal is None else TrainingConfig.user_share if user_share is None else user_share
    folder = open_artifacts(artifacts)
    saved = None if state is None or restart else saved_seed(state)
    base_sha256 = (lambda: sha256_of_file(weights)) if weights else (lambda: folder.weights_sha256)
    seed = chosen_seed(seed, phone, base_sha256, round_number, saved)
    outputs = Outputs(weights, out, update_path, codec, round_number, seed)
    vocabulary = Vocabulary.load(folder.path(VOCABULARY), folder.manifest.model.vocabulary)
    text = mix(read_messages(user), read_messages(rehearsal) if rehearsal else [], share, vocabulary, seed)
    engine = _start(console, backend, folder, weights, BackendOptions(threads, seed, pin_threads, precision))
    rate = folder.manifest.training.learning_rate if lr is None else lr
    with contextlib.ExitStack() as kept:
        resumable, stop = None, None
        if state is not None:
            outputs.require_base_kept(folder)
            stop = kept.enter_context(stop_signals())
            resumable = kept.enter_context(TrainingState(engine, state, text.stream, rate, restart))
        with console.progress("training") as show:
            report = train_epoch(
                engine,
                folder.manifest.training,
                text,
                rate,
                lambda done, total, loss: show(done, total, f"{loss:.3f} nats/token"),
                resumable,
                save_every or SAVE_EVERY,
                stop,
            )
        document = {
            "backend": backend,
            "threads": threads,
            "precision": precision,
            "seed": seed,
            **dataclasses.asdict(report),
            "seconds_per_step_median": statistics.median(report.step_seconds),
            "loss_first": report.losses[0],
            "loss_last": report.losses[-1],
            **outputs.write(folder, engine, report.tokens),
        }
        hidden = ("losses", "step_seconds", "weights", "update")
        rows = [{"figure": key, "value": value} for key, value in document.items() if key not in hidden]
        files = [{"file": kind, **document[kind]} for kind in ("weights", "update") if kind in document]
        console.result(document, ("One epoch", rows), *([("Written", files)] if files else []))
        if resumable is not None:
            resumable.discard()  # last: a kill before this is a resume that ends in the same files
    engine.close()


@dataclasses.dataclass(frozen=True)
class Outputs:
    """What `train` leaves, and what an update says of itself. base: the weights trained from, None for the folder's."""

    base: Path | None
    weights: Path | None
    update: Path | None
    codec: str
    round_number: int
    seed: int

    def require_base_kept(self, folder: Artifacts) -> None:
        """Raise UsageError if an output is the base itself: a run killed after writing it could not be resumed."""
        base = self.base or folder.path(WEIGHTS)
        for path in filter(None, (self.weights, self.update)):
            if path.exists() and base.exists() and path.samefile(base):
                raise UsageError(
                    f"{path}: these are the weights that training starts from; with --state they must stay"
                )

    def write(self, folder: Artifacts, engine: Backend, tokens: int) -> dict[str, dict[str, object]]:
        """Write what was asked for and describe it. Raises TrainingError if a weight is not finite, StorageError."""
        from device_runtime.files import sha256_of_file
        from device_runtime.tensor_file import TensorFile, check_finite, save_tensors
        from device_runtime.update_file import UpdateInfo, write_update

        if not (self.weights or self.update):
            return {}
        trained = engine.weights()
        try:
            for name, values in trained.items():
                check_finite("trained weights", name, values)
        except WeightsError as error:
            raise TrainingError(f"{error}; lower the learning rate or clip (export --clip-norm)") from error
        written: dict[str, dict[str, object]] = {}
        if self.weights:
            written["weights"] = {"path": str(self.weights), **dataclasses.asdict(save_tensors(self.weights, trained))}
        if self.update:
            base_sha256 = sha256_of_file(self.base) if self.base else folder.weights_sha256
            info = UpdateInfo(base_sha256, self.round_number, tokens, self.codec, self.seed)
            with TensorFile(self.base or folder.path(WEIGHTS)) as base_file:
                file = write_update(self.update, base_file, trained, info)
            written["update"] = {"path": str(self.update), "codec": self.codec, **dataclasses.asdict(file)}
        return written


@click.command("eval")
@click.argument("artifacts", type=PATH)
@click.option("--text", "texts", type=PATH, required=True, multiple=True, help="Text to measure on; may be repeated.")
@weights_option
@click.option("--kss", is_flag=True, help="Also keystroke savings.")
@backend_option
@threads_option
@connection_options(required=False, owner=True)
@output_options
def evaluate(
    console: Console,
    artifacts: Path,
    texts: tuple[Path, ...],
    weights: Path | None,
    kss: bool,
    backend: str,
    threads: int,
    connection: Connection | None,
) -> None:
    """Perplexity, top-1 accuracy and keystroke savings of a model on texts.

    With --server, an administrator's token reports what was found to the server, for the model of these weights.
    """
    from device_runtime.text import read_messages

    if connection is not None and len({path.stem for path in texts}) < len(texts):
        raise click.UsageError("--server: texts of different names expected, the figures are told apart by them")
    folder = open_artifacts(artifacts)
    messages = {path: read_messages(path) for path in texts}
    engine = _start(console, backend, folder, weights, BackendOptions(threads))
    rows = [{"text": str(path), **_evaluation(console, folder, engine, lines, kss)} for path, lines in messages.items()]
    engine.close()
    console.result(rows, ("Evaluation", rows))
    if connection is not None:
        _report_quality(console, connection, folder, weights, rows)


def _report_quality(
    console: Console, connection: Connection, folder: Artifacts, weights: Path | None, rows: list[dict[str, object]]
) -> None:
    """Tell the server what was measured of the model; a figure that is not finite is left out."""
    from device_runtime.files import sha256_of_file
    from device_runtime.server_client import report_quality

    sha256 = sha256_of_file(weights) if weights else folder.weights_sha256
    for row in rows:
        for name, title in QUALITY.items():
            value = row[name]
            if isinstance(value, float) and math.isfinite(value):
                report_quality(connection, sha256, f"{title} {Path(str(row['text'])).stem}", value)
    console.say(f"reported to {connection} for model {sha256[:12]}")


def _start(console: Console, name: str, folder: Artifacts, weights: Path | None, options: BackendOptions) -> Backend:
    from device_runtime.backends import load_backend

    if name == "native":
        build_on_first_use(console)
    return load_backend(name, folder, weights, options)


def _evaluation(
    console: Console, folder: Artifacts, engine: Backend, messages: list[bytes], kss: bool
) -> dict[str, object]:
    from device_runtime.evaluation import evaluate as evaluate_text
    from device_runtime.vocabulary import Vocabulary

    vocabulary = Vocabulary.load(folder.path(VOCABULARY), folder.manifest.model.vocabulary)
    training = folder.manifest.training
    with console.progress("evaluating") as show:
        result = evaluate_text(
            engine,
            vocabulary,
            messages,
            training.minibatch,
            training.bptt,
            kss,
            lambda done, total: show(done, total, ""),
        )
    return dataclasses.asdict(result)
