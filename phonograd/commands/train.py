"""`phonograd train`: what a phone does, on this machine."""

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from phonograd.api.rounds import JoinedRound, join_round, phone_masking
from phonograd.api.training import ResumableState
from phonograd.api.training import train as train_on
from phonograd.commands.connecting import closing_notice, connection_options, model_cache_option
from phonograd.commands.fitting import warn_of_unknown
from phonograd.commands.native import PRECISION, build_on_first_use, chosen_precision
from phonograd.commands.options import COUNT, POSITIVE, SHARE, THREADS, Options, opt, refuse
from phonograd.commands.paths import INPUT, OUT_FOLDER, OUTPUT
from phonograd.commands.shared_options import (
    BACKEND,
    CODEC,
    MIN_COHORT,
    PHONE,
    REHEARSAL,
    SEED,
    VENDOR,
    WEIGHTS,
    refuse_share_alone,
)
from phonograd.commands.stopping import stop_signals
from phonograd.console import Console, Rows, figures, output_options
from phonograd.device_runtime.base.files import require_writable
from phonograd.device_runtime.client.server_client import Connection, UploadReceipt
from phonograd.device_runtime.engine import BACKENDS, DEFAULT_BACKEND
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig, open_artifacts
from phonograd.device_runtime.masked.phone import require_new_model
from phonograd.device_runtime.training.round import SAVE_EVERY
from phonograd.device_runtime.update.update_file import MAX_COUNT

if TYPE_CHECKING:
    from phonograd.device_runtime.text.rehearsal import TextShares

ENGINE = Options(
    BackendOptions,
    threads=opt("CPU threads.", THREADS),
    pin_threads="Pin each thread to one CPU (native).",
    precision=PRECISION,
)
TRAINING = Options(
    train_on,
    user=opt("The user's text, one message a line.", INPUT),
    rehearsal=REHEARSAL,
    user_share=opt(
        f"λ, the user's share of the tokens; with --rehearsal only.  [default: {TrainingConfig().user_share}]", SHARE
    ),
    weights=opt(WEIGHTS, INPUT),
    backend=opt(BACKEND, click.Choice(BACKENDS)),
    epochs=opt("Passes over the text.", COUNT),
    steps=opt(
        "Take a single step, with the gradient of the whole text (FedSGD).  [default: one for each window]",
        int,
        metavar="1",
    ),
    learning_rate=opt("Learning rate.  [default: the artifacts']", POSITIVE, name="--lr"),
    output_sample=opt(
        "Train the softmax over the text's own words and about N random others, not the whole vocabulary: "
        "several times faster.",
        COUNT,
        metavar="N",
    ),
    sample_seed=opt(
        "Seed of --output-sample, for repeats and tests; keep it secret.  [default: random]",
        click.IntRange(0, (1 << 64) - 1),
    ),
    max_unknown=opt("Largest share of the user's words that the vocabulary may lack, for an update to be made.", SHARE),
    phone=PHONE,
    seed=SEED,
    codec=CODEC,
    duty=opt("Share of the time that steps take; below 1, rests between them keep the device cooler.", SHARE),
    out=opt("Write the trained weights here.", OUTPUT),
    update=opt("Write the update for the server here.", OUTPUT),
    round_number=opt(
        "The server's round, without --server.  [default: 1]",
        click.IntRange(1, MAX_COUNT),
        name="--round",
        default=None,
    ),
)


MASKING = Options(
    phone_masking,
    identity=opt("In masked rounds: file of the phone's key.  [default: one made in the user's state folder]", INPUT),
    certificate=opt("The vendor's certificate of the phone's name and key: see phonograd keys sign."),
    vendor=VENDOR,
    min_cohort=MIN_COHORT,
)


STATE = Options(
    ResumableState,
    folder=opt(
        "Folder to save resumable state in, and to resume from (native).", OUT_FOLDER, name="--state", required=False
    ),
    save_every=opt(f"Save --state after N steps, or 5 seconds.  [default: {SAVE_EVERY}]", COUNT, default=None),
    restart="Discard the state saved in --state.",
)


@click.command()
@click.argument("artifacts", type=INPUT)
@TRAINING
@ENGINE
@MASKING
@connection_options(required=False, uploads=True, downloads=True)
@model_cache_option
@STATE
@output_options
def train(
    console: Console, artifacts: Path, connection: Connection | None, model_cache: Path | None, **options: Any
) -> None:
    """Train on a user's text, as a phone does.

    The seed is derived from model, round and --phone; without --phone it is random, and reported. With --rehearsal,
    random general messages are added until the user's share of the tokens is λ (paper P). With --server, the command
    fetches the open round's model, trains it and sends the update. With --state, a killed run can be resumed with the
    same bits; SIGTERM and SIGINT stop it after the current step and a save, with exit codes 143 and 130.
    """
    refuse_share_alone(options)
    if options["phone"] is not None:
        refuse("expected without --phone, from which it follows", "seed")
    if options["output_sample"] is None:
        refuse("expected with --output-sample, the number of words to draw", "sample_seed")
    if options["update"] is None and connection is None:
        refuse("expected with --update or --server, which make an update", "codec")
    if options["folder"] is None:
        refuse("expected with --state, the folder that it is about", "save_every", "restart")
    options["save_every"] = options["save_every"] or SAVE_EVERY
    masking = _masking(options, connection)
    engine, state, training = ENGINE.take(options), STATE.take(options), TRAINING.values(options)
    for path in filter(None, (training["out"], training["update"])):
        require_writable(path)  # before a round is joined
    folder = open_artifacts(artifacts)
    joined, asked_for = None, training["update"]
    if connection is not None:
        if training["weights"] or training["round_number"]:
            raise click.UsageError("--server says which --weights and --round; leave them out")
        joined = _join(console, connection, folder, training, masking, model_cache)
        training |= {"weights": joined.weights, "update": asked_for or joined.update_path()}
        training |= {"masked": joined.opened.masked, "run": joined.opened.run}
        training["run_history"] = joined.run_history_path()
    training["round_number"] = joined.opened.round if joined else training["round_number"] or 1
    if training["backend"] == DEFAULT_BACKEND:
        build_on_first_use(console)
        precision = chosen_precision(console, engine.precision, engine.threads)
        engine = dataclasses.replace(engine, precision=precision)
    with console.progress("training") as show:
        trained = train_on(
            folder,
            **training,
            options=engine,
            state=state if state.folder else None,
            stop=stop_signals if state.folder else None,
            progress=lambda done, total, loss: show(done, total, f"{loss:.3f} nats/token"),
            on_text=lambda shares: _warn_of(console, shares, training["user"], training["rehearsal"]),
        )
    report, update = trained.report, training["update"]
    document: dict[str, Any] = {
        "backend": training["backend"],
        "threads": engine.threads,
        "precision": engine.precision,
        "seed": trained.seed,
        **dataclasses.asdict(report),
        "seconds_per_step_median": trained.seconds_per_step,
        "loss_first": report.losses[0],
        "loss_last": report.losses[-1],
    }
    if trained.weights is not None:
        document["weights"] = {"path": str(training["out"]), **dataclasses.asdict(trained.weights)}
    if trained.update is not None:
        codec = "masked" if joined is not None and joined.opened.masked else training["codec"]
        document["update"] = {"path": str(update), "codec": codec, **dataclasses.asdict(trained.update)}
    if joined is not None:
        receipt = _send(console, joined, update, masking, keep=asked_for is not None)
        if asked_for is None:
            document["update"]["path"] = None
        document["receipt"] = receipt and dataclasses.asdict(receipt)
    _show(console, document)


def _join(
    console: Console,
    connection: Connection,
    folder: Artifacts,
    training: dict[str, Any],
    masking: dict[str, Any],
    cache: Path | None,
) -> JoinedRound:
    # Whoever has a key for masked rounds sends no update that a server could read, whatever it says of the round.
    masked_only = any(masking[name] is not None for name in ("identity", "certificate", "vendor"))
    named = {name: training[name] for name in ("phone", "codec", "steps")}
    waiting = closing_notice(console)
    joined = join_round(connection, folder, **named, waiting=waiting, cache=cache, masked_only=masked_only)
    if joined.opened.masked is not None:
        of_phone = phone_masking(joined.server, joined.phone, **masking)
        require_new_model(of_phone, joined.opened.base_sha256, joined.opened.round)
    return joined


def _masking(options: dict[str, Any], connection: Connection | None) -> dict[str, Any]:
    if connection is None:
        refuse("expected with --server, whose rounds may be masked", *MASKING)
    return MASKING.values(options)


def _send(
    console: Console, joined: JoinedRound, update: Path, masking: dict[str, Any], keep: bool
) -> UploadReceipt | None:
    with console.progress("uploading") as show, contextlib.ExitStack() as after:
        if joined.opened.masked is None:
            receipt = joined.send(update, lambda done, total: show(done, total, "bytes"))
            if not keep:
                update.unlink()
            return receipt
        if not keep:  # also after an error: it never leaves this machine, and is not sent later
            after.callback(update.unlink)
        return joined.take_part(
            update,
            phone_masking(joined.server, joined.phone, **masking),
            lambda done, total: show(done, total, "bytes"),
            lambda stage, _seconds: show(0, 0, f"waiting: {stage}"),
        )


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
    shown = document | {"output_layer": f"{layer['kind']} softmax over {layer['words']:,} words"}
    tables: list[tuple[str, Rows]] = [
        ("Training", figures({key: value for key, value in shown.items() if key not in hidden}))
    ]
    if files := [{"file": kind, **document[kind]} for kind in ("weights", "update") if kind in document]:
        tables.append(("Written", files))
    if receipt := document.get("receipt"):
        tables.append(("Accepted", figures(receipt)))
    console.result(document, *tables)
