"""`phonograd train`: what a phone does, on this machine."""

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import click
from msgspec.structs import asdict, replace

from phonograd.api.rounds import JoinedRound, join_round, phone_masking
from phonograd.api.training import ResumableState, TrainHooks, TrainSettings
from phonograd.api.training import train as train_on
from phonograd.commands.configured import config_options
from phonograd.commands.connecting import closing_notice, connection_from, model_cache_from, token_option
from phonograd.commands.fitting import warn_of_invalid, warn_of_unknown
from phonograd.commands.grouped import GroupedCommand
from phonograd.commands.native import build_on_first_use, chosen_precision
from phonograd.commands.paths import OUT_FOLDER, OUTPUT
from phonograd.commands.stopping import stop_signals
from phonograd.config.connection import SERVER
from phonograd.config.train import TRAIN, Masked, Training
from phonograd.config.values import Config
from phonograd.console import Console, Rows, figures, output_options
from phonograd.device_runtime.base.errors import UsageError
from phonograd.device_runtime.base.files import require_writable
from phonograd.device_runtime.client.server_client import Connection, UploadReceipt
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.formats.manifest import Artifacts, open_artifacts
from phonograd.device_runtime.masked.phone import require_new_model
from phonograd.device_runtime.text.rehearsal import TextShares
from phonograd.pages import to_words

GROUPS = {
    "Text and model": ("--user", "--rehearsal", "--weights"),
    "Results": ("--out", "--update", "--codec", "--state"),
    "Phone and round": ("--phone", "--seed", "--sample-seed", "--round"),
    "Server": ("--server", "--token", "--wait"),
    "Settings": ("--config", "--set"),
}


@click.command(cls=GroupedCommand, groups=GROUPS)
@config_options(TRAIN, out=OUTPUT, update=OUTPUT, state=OUT_FOLDER, model_cache=OUT_FOLDER)
@token_option
@click.option("--sample-seed", type=int, help="Seed of the output sample, for repeats and tests; keep it secret.")
@output_options
def train(console: Console, config: Config, token: str | None, sample_seed: int | None) -> None:
    """Train the model in ARTIFACTS, a folder that `phonograd export` wrote, on a user's text, as a phone does.

    The seed is derived from model, round and --phone; without --phone it is random, and reported. With --rehearsal,
    random general messages are added until the user's share of the tokens is λ (paper P). With --server, the command
    fetches the open round's model, trains it and sends the update. With --state, a killed run can be resumed with the
    same bits, and a finished one starts again; SIGTERM and SIGINT stop it after the current step and a save, with exit
    codes 143 and 130.
    """
    given, masking = config.take(Training), config.take(Masked)
    _refuse_ignored(config)
    for path in filter(None, (given.out, given.update)):
        require_writable(path)  # before a round is joined
    settings = config.take(
        TrainSettings,
        sample_seed=sample_seed,
        state=None if given.state is None else config.take(ResumableState, folder=given.state),
        options=config.take(BackendOptions),
    )
    folder = open_artifacts(given.artifacts)
    if given.state is not None and given.state.is_dir() and not any(given.state.iterdir()):
        console.say(f"{given.state}: no run to resume: the last one is finished, or saved nothing; a new one starts")
    joined, update = None, given.update
    if (connection := connection_from(console, config, token)) is not None:
        joined = _join(console, connection, folder, settings, masking, model_cache_from(config))
        update = given.update or joined.update_path()
        settings = replace(settings, **_of_round(joined))
    build_on_first_use(console)
    precision = chosen_precision(console, given.precision, settings.options.threads)
    settings = replace(settings, options=config.take(BackendOptions, precision=precision))
    with console.progress("training", "steps") as show:
        hooks = TrainHooks(
            progress=lambda done, total, loss: show(done, total, f"{loss:.3f} nats/token"),
            on_text=lambda shares: _warn_of(console, shares, given.user, given.rehearsal),
            stop=stop_signals if given.state else None,
        )
        trained = train_on(
            folder, given.user, settings, rehearsal=given.rehearsal, out=given.out, update=update, hooks=hooks
        )
    if given.out is None and update is None:
        console.say("nothing of this training was kept: --out FILE keeps the trained weights, --update FILE the update")
    report = trained.report
    if rises(report.losses):
        rate = folder.manifest.training.learning_rate
        console.say(
            f"phonograd: warning: the loss rose while it trained; the learning rate {rate:g}, which the folder was "
            "exported with, may be too high for this model: phonograd export --set training.learning_rate=..."
        )
    document: dict[str, Any] = {
        "threads": settings.options.threads,
        "precision": settings.options.precision,
        "seed": trained.seed,
        **dataclasses.asdict(report),
        "seconds_per_step_median": trained.seconds_per_step,
        "loss_first": report.losses[0],
        "loss_last": report.losses[-1],
        "config": config.document(),
    }
    if trained.weights is not None:
        document["weights"] = {"path": str(given.out), **dataclasses.asdict(trained.weights)}
    if trained.update is not None:
        codec = "masked" if settings.masked else settings.codec
        document["update"] = {"path": str(update), "codec": codec, **dataclasses.asdict(trained.update)}
    if joined is not None and update is not None:
        receipt = _send(console, joined, update, masking, keep=given.update is not None)
        if given.update is None:
            document["update"]["path"] = None
        document["receipt"] = receipt and dataclasses.asdict(receipt)
    _show(console, document)


def _refuse_ignored(config: Config) -> None:
    alone = config.get(SERVER) is None
    if alone and config.get("update") is None and config.on_command_line("codec"):
        raise UsageError("--codec: expected with --update or --server, which make an update")
    if not alone and (config.get("weights") or config.on_command_line("round")):
        raise UsageError("--server says which --weights and --round; leave them out")


def _join(
    console: Console,
    connection: Connection,
    folder: Artifacts,
    settings: TrainSettings,
    masking: Masked,
    cache: Path | None,
) -> JoinedRound:
    joined = join_round(
        connection,
        folder,
        settings.phone,
        settings.codec,
        settings.steps,
        closing_notice(console),
        cache,
        # A phone with a key for masked rounds sends no update that a server could read, whatever it says of the round.
        masked_only=any((masking.identity, masking.certificate, masking.vendor)),
    )
    if joined.opened.masked is not None:
        of_phone = phone_masking(joined.server, joined.phone, **asdict(masking))
        require_new_model(of_phone, joined.opened.base_sha256, joined.opened.round)
    return joined


def _of_round(joined: JoinedRound) -> dict[str, Any]:
    opened = joined.opened
    return {
        "weights": joined.weights,
        "round_number": opened.round,
        "masked": opened.masked,
        "run": opened.run,
        "run_history": joined.run_history_path(),
    }


def _send(console: Console, joined: JoinedRound, update: Path, masking: Masked, keep: bool) -> UploadReceipt | None:
    with console.progress("uploading", "bytes") as show, contextlib.ExitStack() as after:
        if joined.opened.masked is None:
            receipt = joined.send(update, lambda done, total: show(done, total, ""))
            if not keep:
                _forget(update)
            return receipt
        if not keep:  # also after an error: it never leaves this machine, and is not sent later
            after.callback(_forget, update)
        return joined.take_part(
            update,
            phone_masking(joined.server, joined.phone, **asdict(masking)),
            lambda done, total: show(done, total, ""),
            lambda stage, _seconds: show(0, 0, f"waiting: {stage}"),
        )


def _forget(update: Path) -> None:
    """Remove an update that was sent, and the folders made for it if nothing else is in them."""
    update.unlink()
    with contextlib.suppress(OSError):
        update.parent.rmdir()
        update.parent.parent.rmdir()


def rises(losses: Sequence[float]) -> bool:
    """Whether the last third of an epoch's losses [steps] is a tenth above the first third, of at least 9 steps."""
    third = len(losses) // 3
    return third >= 3 and fmean(losses[-third:]) > 1.1 * fmean(losses[:third])


def _warn_of(console: Console, text: TextShares, user: Path, rehearsal: Path | None) -> None:
    warn_of_unknown(console, user, text.user_unknown_share)
    warn_of_unknown(console, rehearsal, text.general_unknown_share)
    warn_of_invalid(console, user, text.user_invalid_share)


def _show(console: Console, document: dict[str, Any]) -> None:
    hidden = ("losses", "step_seconds", "weights", "update", "receipt", "config")
    layer = document["output_layer"]
    shown = document | {
        "seed": str(document["seed"]),
        "output_layer": f"{layer['kind']} softmax over {layer['words']:,} words",
    }
    tables: list[tuple[str, Rows]] = [
        ("Training", figures({key: value for key, value in shown.items() if key not in hidden}))
    ]
    written = {kind: document.get(kind, {}) for kind in ("weights", "update")}
    if files := [to_words({"file": kind, **one}) for kind, one in written.items() if one.get("path")]:
        tables.append(("Written", files))
    if receipt := document.get("receipt"):
        tables.append(("Accepted", figures(receipt)))
    console.result(document, *tables)
