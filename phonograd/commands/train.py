"""`phonograd train` and `phonograd eval`: what a phone does, on this machine."""

import dataclasses
import statistics
from pathlib import Path

import click

from device_runtime.backends import BACKENDS, DEFAULT_BACKEND, Backend
from device_runtime.backends.base import PRECISIONS, BackendOptions, Precision
from device_runtime.codecs import CODECS, DEFAULT_CODEC
from device_runtime.manifest import VOCABULARY, WEIGHTS, Artifacts, TrainingConfig, open_artifacts
from phonograd.console import Console, output_options
from phonograd.native_engine import build_on_first_use

PATH = click.Path(path_type=Path)
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
@click.option(
    "--seed", type=click.IntRange(0), default=BackendOptions.seed, show_default=True, help="Of the rehearsal draw."
)
@click.option("--out", type=PATH, help="Write the trained weights here.")
@click.option("--update", "update_path", type=PATH, help="Write the update for the server here.")
@click.option("--codec", type=click.Choice(list(CODECS)), default=DEFAULT_CODEC, show_default=True, help="Of --update.")
@click.option(
    "--round", "round_number", type=click.IntRange(1), default=1, show_default=True, help="The server's round."
)
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
    seed: int,
    out: Path | None,
    update_path: Path | None,
    codec: str,
    round_number: int,
) -> None:
    """Train one epoch on a user's text, as a phone does.

    With --rehearsal, general messages are mixed in at random until the user's share of the tokens is λ (paper P).
    """
    from device_runtime.files import require_place, sha256_of_file
    from device_runtime.rehearsal import mix
    from device_runtime.tensor_file import TensorFile, check_finite, save_tensors
    from device_runtime.text import read_messages
    from device_runtime.trainer import train_epoch
    from device_runtime.update_file import UpdateInfo, write_update
    from device_runtime.vocabulary import Vocabulary

    if user_share is not None and rehearsal is None:
        raise click.UsageError("--user-share needs --rehearsal, the general text to mix in")
    for path in filter(None, (out, update_path)):
        require_place(path)
    share = 1.0 if rehearsal is None else TrainingConfig.user_share if user_share is None else user_share
    folder = open_artifacts(artifacts)
    vocabulary = Vocabulary.load(folder.path(VOCABULARY), folder.manifest.model.vocabulary)
    text = mix(read_messages(user), read_messages(rehearsal) if rehearsal else [], share, vocabulary, seed)
    engine = _start(console, backend, folder, weights, BackendOptions(threads, seed, pin_threads, precision))
    with console.progress("training") as show:
        report = train_epoch(
            engine,
            folder.manifest.training,
            text,
            lr,
            lambda done, total, loss: show(done, total, f"{loss:.3f} nats/token"),
        )
    document = {
        "backend": backend,
        "threads": threads,
        "precision": precision,
        **dataclasses.asdict(report),
        "seconds_per_step_median": statistics.median(report.step_seconds),
        "loss_first": report.losses[0],
        "loss_last": report.losses[-1],
    }
    if out or update_path:
        trained = engine.weights()
        for name, values in trained.items():
            check_finite("trained weights", name, values)
        if out:
            document["weights"] = {"path": str(out), **dataclasses.asdict(save_tensors(out, trained))}
        if update_path:
            base = weights or folder.path(WEIGHTS)
            base_sha256 = sha256_of_file(weights) if weights else folder.weights_sha256
            info = UpdateInfo(base_sha256, round_number, report.tokens, codec, seed)
            with TensorFile(base) as base_file:
                written = write_update(update_path, base_file, trained, info)
            document["update"] = {"path": str(update_path), "codec": codec, **dataclasses.asdict(written)}
    engine.close()
    hidden = ("losses", "step_seconds", "weights", "update")
    rows = [{"figure": key, "value": value} for key, value in document.items() if key not in hidden]
    files = [{"file": kind, **document[kind]} for kind in ("weights", "update") if kind in document]
    console.result(document, ("One epoch", rows), *([("Written", files)] if files else []))


@click.command("eval")
@click.argument("artifacts", type=PATH)
@click.option("--text", "texts", type=PATH, required=True, multiple=True, help="Text to measure on; may be repeated.")
@weights_option
@click.option("--kss", is_flag=True, help="Also keystroke savings.")
@backend_option
@threads_option
@output_options
def evaluate(
    console: Console,
    artifacts: Path,
    texts: tuple[Path, ...],
    weights: Path | None,
    kss: bool,
    backend: str,
    threads: int,
) -> None:
    """Perplexity, top-1 accuracy and keystroke savings of a model on texts."""
    from device_runtime.text import read_messages

    folder = open_artifacts(artifacts)
    messages = {path: read_messages(path) for path in texts}
    engine = _start(console, backend, folder, weights, BackendOptions(threads))
    rows = [{"text": str(path), **_evaluation(console, folder, engine, lines, kss)} for path, lines in messages.items()]
    engine.close()
    console.result(rows, ("Evaluation", rows))


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
