"""`phonograd train` and `phonograd eval`: what a phone does, on this machine."""

import dataclasses
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from phonograd.commands.connecting import closing_notice, connection_options, model_cache_option
from phonograd.commands.fitting import warn_of_misfit, warn_of_unknown
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import COUNT, POSITIVE, SHARE, refuse
from phonograd.commands.paths import INPUT, OUT_FOLDER, OUTPUT
from phonograd.commands.shared_options import codec_option, require_one_seed, seed_options
from phonograd.console import Console, Rows, output_options
from phonograd.device_runtime.client.server_client import Connection
from phonograd.device_runtime.engine import BACKENDS, DEFAULT_BACKEND, Backend
from phonograd.device_runtime.engine.backend import PRECISIONS, BackendOptions, Precision
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig, open_artifacts
from phonograd.device_runtime.text.rehearsal import MAX_UNKNOWN
from phonograd.device_runtime.training.round import SAVE_EVERY
from phonograd.device_runtime.update.update_file import MAX_COUNT

if TYPE_CHECKING:
    from phonograd.device_runtime.text.rehearsal import TextShares

# Figures of an Evaluation that --server reports, and what the server calls them.
QUALITY = {
    "perplexity": "perplexity",
    "perplexity_with_unknown": "perplexity with unknown words",
    "top1": "top-1",
    "kss": "keystrokes saved",
}
backend_option = click.option(
    "--backend", type=click.Choice(BACKENDS), default=DEFAULT_BACKEND, help="The backend that runs the graph."
)
threads_option = click.option("--threads", type=COUNT, default=BackendOptions.threads, help="CPU threads.")
weights_option = click.option(
    "--weights",
    type=INPUT,
    help="Tensor file to start from: a later round's model, or a torch state dict. [default: the folder's weights]",
)
max_unknown_option = click.option(
    "--max-unknown",
    type=SHARE,
    default=MAX_UNKNOWN,
    help="Largest share of the user's words that the vocabulary may lack, for an update to be made.",
)


@click.command()
@click.argument("artifacts", type=INPUT)
@click.option("--user", type=INPUT, required=True, help="The user's text, one message a line.")
@click.option("--rehearsal", type=INPUT, help="General text to draw rehearsal messages from.")
@click.option(
    "--user-share",
    type=SHARE,
    default=None,
    help=f"λ, the user's share of the tokens; with --rehearsal only.  [default: {TrainingConfig().user_share}]",
)
@weights_option
@backend_option
@threads_option
@click.option(
    "--pin-threads", is_flag=True, default=BackendOptions.pin_threads, help="Pin each thread to one CPU (native)."
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default=BackendOptions.precision,
    help="Precision of matrix products (native): bf16 needs CPU support; bf16-emulated runs on any CPU, slowly.",
)
@click.option("--epochs", type=COUNT, default=1, help="Passes over the text.")
@click.option(
    "--steps",
    type=int,
    metavar="1",
    help="Take a single step, with the gradient of the whole text (FedSGD).  [default: one for each window]",
)
@click.option("--lr", "learning_rate", type=POSITIVE, help="Learning rate.  [default: the artifacts']")
@click.option(
    "--output-sample",
    type=COUNT,
    metavar="N",
    help="Train the softmax over the text's own words and about N random others, not the whole vocabulary: "
    "several times faster.",
)
@click.option(
    "--sample-seed",
    type=click.IntRange(0, (1 << 64) - 1),
    help="Seed of --output-sample, for repeats and tests; keep it secret.  [default: random]",
)
@seed_options
@max_unknown_option
@click.option("--out", type=OUTPUT, help="Write the trained weights here.")
@click.option("--update", "update_path", type=OUTPUT, help="Write the update for the server here.")
@codec_option
@click.option(
    "--round",
    "round_number",
    type=click.IntRange(1, MAX_COUNT),
    help="The server's round, without --server.  [default: 1]",
)
@connection_options(required=False)
@model_cache_option
@click.option("--state", type=OUT_FOLDER, help="Folder to save resumable state in, and to resume from (native).")
@click.option("--save-every", type=COUNT, help=f"Steps between saves of --state.  [default: {SAVE_EVERY}]")
@click.option("--restart", is_flag=True, help="Discard the state saved in --state.")
@click.option(
    "--duty",
    type=SHARE,
    default=1.0,
    help="Share of the time that steps take; below 1, rests between them keep the device cooler.",
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
    epochs: int,
    steps: Literal[1] | None,
    learning_rate: float | None,
    output_sample: int | None,
    sample_seed: int | None,
    phone: str | None,
    seed: int | None,
    max_unknown: float,
    out: Path | None,
    update_path: Path | None,
    codec: str,
    round_number: int | None,
    connection: Connection | None,
    model_cache: Path | None,
    state: Path | None,
    save_every: int | None,
    restart: bool,
    duty: float,
) -> None:
    """Train on a user's text, as a phone does.

    The seed is derived from model, round and --phone; without --phone it is random, and reported. With --rehearsal,
    random general messages are added until the user's share of the tokens is λ (paper P). With --server, the command
    fetches the open round's model, trains it and sends the update. With --state, a killed run can be resumed with the
    same bits; SIGTERM and SIGINT stop it after the current step and a save, with exit codes 143 and 130.
    """
    from phonograd.api.rounds import join_round
    from phonograd.api.training import ResumableState
    from phonograd.api.training import train as train_on
    from phonograd.commands.stopping import stop_signals
    from phonograd.device_runtime.base.files import require_writable

    require_one_seed(seed, phone)
    if sample_seed is not None and output_sample is None:
        raise click.UsageError("--sample-seed needs --output-sample, the number of words to draw")
    if update_path is None and connection is None:
        refuse("expected with --update or --server, which make an update", "codec")
    _check_combination(rehearsal, user_share, state, save_every, restart, connection, weights or round_number)
    for path in filter(None, (out, update_path)):
        require_writable(path)  # before a round is joined
    folder = open_artifacts(artifacts)
    joined = (
        None
        if connection is None
        else join_round(connection, folder, phone, codec, steps, waiting=closing_notice(console), cache=model_cache)
    )
    if joined is not None:
        weights, round_number = joined.weights, joined.opened.round
    sent = joined.update_path() if joined is not None and update_path is None else update_path
    if backend == DEFAULT_BACKEND:
        build_on_first_use(console)
    with console.progress("training") as show:
        trained = train_on(
            folder,
            user,
            rehearsal=rehearsal,
            user_share=user_share,
            weights=weights,
            epochs=epochs,
            steps=steps,
            learning_rate=learning_rate,
            seed=seed,
            output_sample=output_sample,
            sample_seed=sample_seed,
            phone=phone,
            round_number=round_number or 1,
            out=out,
            update=sent,
            codec=codec,
            max_unknown=max_unknown,
            backend=backend,
            options=BackendOptions(threads, pin_threads=pin_threads, precision=precision),
            state=None if state is None else ResumableState(state, save_every or SAVE_EVERY, restart),
            duty=duty,
            stop=None if state is None else stop_signals,
            progress=lambda done, total, loss: show(done, total, f"{loss:.3f} nats/token"),
            on_text=lambda text: _warn_of(console, text, user, rehearsal),
        )
    report = trained.report
    document: dict[str, Any] = {
        "backend": backend,
        "threads": threads,
        "precision": precision,
        "seed": trained.seed,
        **dataclasses.asdict(report),
        "seconds_per_step_median": trained.seconds_per_step,
        "loss_first": report.losses[0],
        "loss_last": report.losses[-1],
    }
    if trained.weights is not None:
        document["weights"] = {"path": str(out), **dataclasses.asdict(trained.weights)}
    if trained.update is not None:
        document["update"] = {"path": str(sent), "codec": codec, **dataclasses.asdict(trained.update)}
    if joined is not None and sent is not None:
        with console.progress("uploading") as show:
            receipt = joined.send(sent, lambda done, total: show(done, total, "bytes"))
        if update_path is None:
            sent.unlink()
            document["update"]["path"] = None
        document["receipt"] = dataclasses.asdict(receipt)
    _show(console, document)


def _check_combination(
    rehearsal: Path | None,
    user_share: float | None,
    state: Path | None,
    save_every: int | None,
    restart: bool,
    connection: Connection | None,
    server_says: object,
) -> None:
    """Raise UsageError for options of `train` that do not go together."""
    if user_share is not None and rehearsal is None:
        raise click.UsageError("--user-share needs --rehearsal, the general text to mix in")
    if state is None and (restart or save_every is not None):
        raise click.UsageError("--save-every and --restart need --state, the folder they are about")
    if connection is not None and server_says:
        raise click.UsageError("--server says which --weights and --round; leave them out")


def _warn_of(console: Console, text: "TextShares", user: Path, rehearsal: Path | None) -> None:
    warn_of_unknown(console, user, text.user_unknown_share)
    warn_of_unknown(console, rehearsal, text.general_unknown_share)
    if text.user_invalid_share > 0:
        console.say(
            f"phonograd: warning: {user}: {100 * text.user_invalid_share:.2g} % of the bytes are not UTF-8; is it "
            "Latin-1 (convert it with: iconv -f LATIN1 -t UTF-8), or no text?"
        )


def _show(console: Console, document: dict[str, Any]) -> None:
    hidden = ("losses", "step_seconds", "weights", "update", "receipt")
    layer = document["output_layer"]
    figures = document | {"output_layer": f"{layer['kind']} softmax over {layer['words']:,} words"}
    rows = [{"figure": key, "value": value} for key, value in figures.items() if key not in hidden]
    tables: list[tuple[str, Rows]] = [("Training", rows)]
    if files := [{"file": kind, **document[kind]} for kind in ("weights", "update") if kind in document]:
        tables.append(("Written", files))
    if receipt := document.get("receipt"):
        tables.append(("Accepted", [{"figure": key, "value": value} for key, value in receipt.items()]))
    console.result(document, *tables)


@click.command("eval")
@click.argument("artifacts", type=INPUT)
@click.option("--text", "texts", type=INPUT, required=True, multiple=True, help="Text to evaluate on; may be repeated.")
@weights_option
@click.option("--kss", is_flag=True, help="Also measure keystroke savings.")
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
    """Measure perplexity, top-1 accuracy and keystroke savings of a model on texts.

    With --server and an administrator's token, the result is also reported to the server, for the model with these
    weights.
    """
    from phonograd.api.model import open_model
    from phonograd.device_runtime.text.messages import read_messages

    if connection is not None and len({path.stem for path in texts}) < len(texts):
        raise click.UsageError("--server: texts of different names expected, the figures are told apart by them")
    folder = open_artifacts(artifacts)
    messages = {path: read_messages(path) for path in texts}
    rows = []
    options, load = BackendOptions(threads), partial(_start, console)
    with open_model(folder, weights=weights, backend=backend, options=options, load=load) as model:
        warn_of_misfit(console, model.vocabulary)
        for path, lines in messages.items():
            with console.progress("evaluating") as show:
                result = model.evaluate(lines, kss=kss, progress=lambda *tokens, show=show: show(*tokens, ""))
            rows.append({"text": str(path), **dataclasses.asdict(result)})
        sha256 = model.sha256 if connection is not None else ""
    for row, lines in zip(rows, messages.values(), strict=True):
        warn_of_unknown(console, Path(row["text"]), row["unknown_tokens"] / (row["tokens"] - len(lines)))
    console.result(rows, ("Evaluation", rows))
    if connection is not None:
        _report_quality(console, connection, sha256, rows)


def _report_quality(console: Console, connection: Connection, sha256: str, rows: list[dict[str, Any]]) -> None:
    """Tell the server what was measured of the model; a figure that is not finite is left out."""
    from phonograd.device_runtime.client.server_client import report_quality

    for row in rows:
        for name, title in QUALITY.items():
            value = row[name]
            if isinstance(value, float) and math.isfinite(value):
                report_quality(connection, sha256, f"{title} {Path(str(row['text'])).stem}", value)
    console.say(f"reported to {connection} for model {sha256[:12]}")


def _start(console: Console, name: str, folder: Artifacts, weights: Path | None, options: BackendOptions) -> Backend:
    from phonograd.device_runtime.engine import load_backend

    if name == "native":
        build_on_first_use(console)
    return load_backend(name, folder, weights, options)
