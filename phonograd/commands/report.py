"""`phonograd report`, `models`, `rollback` and `discard`: what a server has done, and undoing it."""

from pathlib import Path
from typing import Any

import click

from phonograd.commands.connecting import place_options
from phonograd.console import Console, Rows, output_options
from phonograd.device_runtime.client.server_client import Connection

PATH = click.Path(path_type=Path)
HASH_DIGITS = 7  # that a hash's beginning has at least: fewer are a round's number


@click.command()
@place_options
@click.option("--round", "number", type=click.IntRange(1), help="Show the bytes of each phone in this round.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all figures of the rounds as CSV on stdout.")
@click.option(
    "--project",
    type=click.IntRange(1),
    nargs=2,
    metavar="PHONES ROUNDS",
    help="Estimate the bytes of ROUNDS rounds with PHONES phones each.",
)
@output_options
def report(
    console: Console,
    place: Connection | Path,
    number: int | None,
    as_csv: bool,
    project: tuple[int, int] | None,
) -> None:
    """Report the bytes of each round, compared with paper P's.

    useful: bytes of accepted updates; retried: bytes sent again or lost; refused: bytes of refused updates; setups:
    requests that began or resumed an upload. model/ours and paper/ours: how many times fewer bytes a phone sent than
    the whole model has, and than paper P's phones sent. --project estimates the bytes of many phones and rounds:
    uploads at today's rate, and one download of the model for each phone and round.
    """
    from phonograd.api import administration
    from phonograd.server_agg.report.document import projection, report_csv
    from phonograd.server_agg.report.text import figure_rows, report_rows

    if number is not None:
        phones = administration.round_report(place, number)
        console.result(phones, (f"Round {number}", [_phone_row(phone) for phone in phones]))
        return
    report = administration.report(place)
    if as_csv:
        click.echo(report_csv(report), nl=False)
        return
    tables: list[tuple[str, Rows]] = [
        (_title(report), report_rows(report)),
        ("Totals", figure_rows("total", report["totals"])),
    ]
    if project is not None:
        projected = projection(report, *project)
        if projected is None:
            raise click.UsageError("--project: no update has been accepted yet; there is nothing to go by")
        report = {**report, "projection": projected}
        title = f"{project[0]} phones a round, {project[1]} rounds: uploads as so far, the model once a phone and round"
        tables.append((title, figure_rows("projected", projected)))
    console.result(report, *tables)


@click.command()
@place_options
@click.option(
    "--fetch",
    metavar="latest|ROUND|SHA256",
    help="Fetch the open round's model, a round's result (0: the exported model), or a model by at least the first "
    f"{HASH_DIGITS} digits of its hash (with --server).",
)
@click.option("--out", type=PATH, help="Where to write the fetched model; an interrupted download resumes.")
@click.option("--phone", help="The phone's name in the server's ledger.  [default: the token's]")
@output_options
def models(
    console: Console,
    place: Connection | Path,
    fetch: str | None,
    out: Path | None,
    phone: str | None,
) -> None:
    """List models and their lineage, and fetch any of them."""
    from phonograd.api.administration import models as models_of
    from phonograd.api.rounds import download

    listed = models_of(place)
    if fetch is None:
        console.result(listed, ("Models", [_model_row(model) for model in listed]))
        return
    if isinstance(place, Path) or out is None:
        raise click.UsageError("--fetch: --server URL and --out FILE expected beside it")
    fetched = download(place, out, None if fetch == "latest" else _chosen(listed, fetch), phone)
    document = {
        "model": str(out),
        "sha256": fetched.sha256,
        "bytes": fetched.nbytes,
        "received_bytes": fetched.received,
    }
    console.result(document, ("Fetched", [document]))


def _chosen(models: list[dict[str, Any]], fetch: str) -> str:
    """The hash of the model that was asked for. Raises UsageError if none or several fit."""
    if fetch.isdecimal() and len(fetch) < HASH_DIGITS:
        found = {model["sha256"] for model in models if model["round"] == int(fetch)}
    else:
        found = {model["sha256"] for model in models if model["sha256"].startswith(fetch)}
    if len(found) != 1:
        raise click.UsageError(
            f"--fetch {fetch}: latest, the number of a round that made a model, or the beginning of one model's hash "
            f"expected; {len(found)} fit"
        )
    return str(found.pop())


@click.command()
@click.argument("number", type=click.IntRange(0))
@place_options
@output_options
def rollback(console: Console, number: int, place: Connection | Path) -> None:
    """Return to the result of round NUMBER (0: the exported model).

    The open round ends without a result, its updates are discarded, and the next round starts from that model. With
    --state it works on the folder of a stopped server.
    """
    from phonograd.api.administration import rollback as roll_back

    document = roll_back(place, number)
    console.result(document, ("Open round", _rows("figure", document)))


@click.command()
@click.argument("number", type=click.IntRange(1))
@place_options
@output_options
def discard(console: Console, number: int, place: Connection | Path) -> None:
    """Delete the updates of the failed round NUMBER, which are kept until then."""
    from phonograd.api.administration import discard as discard_updates

    document = discard_updates(place, number)
    console.result(document, ("Discarded", [document]))


def _rows(title: str, document: dict[str, Any]) -> list[dict[str, object]]:
    return [{title: key, "value": value} for key, value in document.items() if key != "codecs"]


def _title(report: dict[str, Any]) -> str:
    from phonograd.server_agg.report.document import GIB, MIB
    from phonograd.server_agg.report.text import size

    paper = report["paper"]
    phone, round_ = size(paper["mib_per_phone"] * MIB), size(paper["gib_per_round"] * GIB)
    return f"Rounds (paper P: {phone} a phone, {round_} a round of 10)"


def _phone_row(phone: dict[str, Any]) -> dict[str, object]:
    from phonograd.server_agg.report.text import size

    return {
        "phone": phone["phone"] or "not named",
        "state": phone["state"],
        "codec": phone["codec"],
        "useful": size(phone["useful_bytes"]),
        "retried": size(phone["retried_bytes"]),
        "refused": size(phone["rejected_bytes"] + phone["late_bytes"]),
        "all up": size(phone["up_body_bytes"] + phone["up_header_bytes"]),
        "all down": size(phone["down_body_bytes"] + phone["down_header_bytes"]),
        "requests": phone["requests"],
        "setups": phone["setups"],
        "reason": phone["reason"],
    }


def _model_row(model: dict[str, Any]) -> dict[str, object]:
    from phonograd.server_agg.report.text import size

    quality = ", ".join(f"{metric} {value:.4g}" for metric, value in model["quality"].items())
    return {
        "round": model["round"],
        "model": model["sha256"][:12],
        "parent": (model["parent_sha256"] or "")[:12],
        "size": size(model["bytes"]),
        "kept": model["kept"],
        "quality": quality,
    }
