"""`phonograd report`, `models`, `rollback` and `discard`: what a server has done, and undoing it."""

from pathlib import Path
from typing import Any

import click

from phonograd.commands.connecting import place_options
from phonograd.commands.options import COUNT, FROM_0, FiniteRange, refuse
from phonograd.commands.paths import OUTPUT
from phonograd.console import Console, Rows, figures, output_options
from phonograd.device_runtime.client.server_client import Connection
from phonograd.pages import to_words
from phonograd.server_agg.settings.storage import ServerStorage

HASH_DIGITS = 7  # that a hash's beginning has at least: fewer are a round's number


@click.command()
@place_options()
@click.option("--round", "number", type=COUNT, help="Show the bytes of each phone in this round.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all figures of the rounds, or phones, as CSV on stdout.")
@click.option(
    "--project",
    type=COUNT,
    nargs=2,
    metavar="PHONES ROUNDS",
    help="Estimate the bytes of ROUNDS rounds with PHONES phones each.",
)
@click.option(
    "--price-per-gb",
    type=FiniteRange(0, 1e9),
    help="Also show what the bytes cost, up and down, if 10^9 of them cost this much.",
)
@click.option(
    "--compare",
    "other",
    metavar="OTHER",
    help="Compare each round with that of OTHER: a state folder, the URL of a server on this machine, or a file that "
    "`report --json` wrote.",
)
@click.option(
    "--max-upload-mb",
    type=FiniteRange(0, 1e9),
    help="End with exit code 28 if a phone sent more than this many MB (10^6 bytes) in a round, headers and retries "
    "included.",
)
@output_options
def report(
    console: Console,
    place: Connection | ServerStorage,
    number: int | None,
    as_csv: bool,
    project: tuple[int, int] | None,
    price_per_gb: float | None,
    other: str | None,
    max_upload_mb: float | None,
) -> None:
    """Report the bytes of each round, compared with those of Popov et al. (paper P).

    up, down: all bytes of HTTP, headers included. useful: of accepted updates; retried: sent again or lost; refused: of
    refused updates; redirected: that nginx or the store was to send; TCP: what TCP carried, TLS included. p50, p90,
    max: percentiles over the round's phones. upload starts: requests that began or resumed an upload. link error: how
    far a lossy link leads from the round's average, relative to its step. model/ours and paper/ours: how many times
    fewer bytes a phone sent than the whole model has, and than paper P's phones sent.

    --project estimates the bytes of many phones and rounds: uploads at today's rate, and one download of the model for
    each phone and round, or for each phone and rounds.deploy_every rounds. --price-per-gb goes by TCP's bytes where
    they are known. --max-upload-mb looks at every phone that sent some of an update, accepted or not.
    """
    from phonograd.api import administration
    from phonograd.server_agg.report.calculations import MB, check_uploads
    from phonograd.server_agg.report.text import phones_csv, report_csv

    alone = "expected without {}; run `phonograd report` once for each"
    if as_csv:
        refuse(alone.format("--csv"), "project", "price_per_gb", "other", "as_json")
    if number is not None:
        refuse(alone.format("--round"), "project", "price_per_gb", "other", "max_upload_mb")
    if number is not None:
        phones = administration.round_report(place, number)
        if as_csv:
            click.echo(phones_csv(phones), nl=False)
        else:
            console.result(phones, (f"Round {number}", [_phone_row(phone) for phone in phones]))
        return
    report = administration.report(place)
    if as_csv:
        click.echo(report_csv(report), nl=False)
    else:
        _show(console, report, project, price_per_gb, other)
    if max_upload_mb is not None:
        check_uploads(report, max_upload_mb * MB)


def _show(
    console: Console,
    report: dict[str, Any],
    project: tuple[int, int] | None,
    price_per_gb: float | None,
    other: str | None,
) -> None:
    from phonograd.server_agg.report.calculations import compare_reports, price_report
    from phonograd.server_agg.report.document import projection
    from phonograd.server_agg.report.text import (
        IN_BYTE_ROWS,
        byte_rows,
        comparison_rows,
        cost_rows,
        figure_rows,
        phone_rows,
        report_rows,
    )

    totals = report["totals"]
    tables: list[tuple[str, Rows]] = [
        (_title(report), report_rows(report)),
        ("Bytes", byte_rows(report)),
        ("Bytes of a phone", phone_rows(report)),
        ("Other totals", figure_rows("total", {name: totals[name] for name in totals if name not in IN_BYTE_ROWS})),
    ]
    added: dict[str, Any] = {}
    if project is not None:
        added["projection"] = projection(report, *project)
        if added["projection"] is None:
            raise click.UsageError("--project: no update has been accepted yet; there is nothing to go by")
        every = added["projection"]["deploy_every"]
        once = "the model once a phone and round" if every == 1 else f"a model once a phone and {every} rounds"
        title = f"{project[0]} phones a round, {project[1]} rounds: uploads as so far, {once}"
        tables.append((title, figure_rows("projected", added["projection"])))
    if price_per_gb is not None:
        added["price"] = price_report(report, price_per_gb, added.get("projection"))
        tables.append((f"Costs, at {price_per_gb:g} for 10^9 bytes", cost_rows(added["price"])))
    if other is not None:
        added["comparison"] = {"with": other, **compare_reports(report, _other_report(other))}
        tables.append((f"Compared with {other}", comparison_rows(added["comparison"])))
    console.result(report | added, *tables)


def _other_report(other: str) -> dict[str, Any]:
    """The report to compare with. Its server gets no token but its owner's."""
    from phonograd.api import administration
    from phonograd.api.rounds import connect
    from phonograd.device_runtime.base.files import storage_errors
    from phonograd.server_agg.report.calculations import checked_report

    if "://" in other:
        return checked_report(administration.report(connect(other, owner=True)), other)
    path = Path(other)
    if not path.is_file():
        return administration.report(path)
    with storage_errors(path):
        return checked_report(path.read_bytes(), other)


@click.command()
@place_options(store=True, downloads=True)
@click.option(
    "--fetch",
    metavar="latest|ROUND|SHA256",
    help="Fetch the open round's model, a round's result (0: the exported model), or a model by at least the first "
    f"{HASH_DIGITS} digits of its hash (with --server).",
)
@click.option("--out", type=OUTPUT, help="Where to write the fetched model; an interrupted download resumes.")
@click.option("--phone", help="The phone's name in the server's ledger.  [default: the token's]")
@output_options
def models(
    console: Console,
    place: Connection | ServerStorage,
    fetch: str | None,
    out: Path | None,
    phone: str | None,
) -> None:
    """List models and their lineage, and fetch any of them."""
    from phonograd.api.administration import models as models_of
    from phonograd.api.rounds import download

    if fetch is None:
        refuse("expected with --fetch, the model to fetch", "out", "phone")
    listed = models_of(place)
    if fetch is None:
        console.result(listed, ("Models", [_model_row(model) for model in listed]))
        return
    if isinstance(place, ServerStorage) or out is None:
        raise click.UsageError("--fetch: --server URL and --out FILE expected beside it")
    fetched = download(place, out, None if fetch == "latest" else _choose_model(listed, fetch), phone)
    document = {
        "model": str(out),
        "sha256": fetched.sha256,
        "bytes": fetched.nbytes,
        "received_bytes": fetched.received,
    }
    console.result(document, ("Fetched", [to_words(document)]))


def _choose_model(models: list[dict[str, Any]], fetch: str) -> str:
    if fetch.isdecimal() and len(fetch) < HASH_DIGITS:
        hashes = {model["sha256"] for model in models if model["round"] == int(fetch)}
    else:
        hashes = {model["sha256"] for model in models if model["sha256"].startswith(fetch)}
    if len(hashes) != 1:
        raise click.UsageError(
            f"--fetch {fetch}: latest, the number of a round that made a model, or the beginning of one model's hash "
            f"expected; {len(hashes)} fit"
        )
    return str(hashes.pop())


@click.command()
@click.argument("number", type=FROM_0)
@place_options(store=True)
@output_options
def rollback(console: Console, number: int, place: Connection | ServerStorage) -> None:
    """Return to the result of round NUMBER (0: the exported model).

    The open round ends without a result, its updates are discarded, and the next round starts from that model. --state
    is the folder of a stopped server; with --ledger and --store the servers may run, and follow within a second.
    """
    from phonograd.api.administration import rollback as roll_back

    document = roll_back(place, number)
    console.result(
        document, ("Open round", figures({name: value for name, value in document.items() if name != "codecs"}))
    )


@click.command()
@click.argument("number", type=COUNT)
@place_options(store=True)
@output_options
def discard(console: Console, number: int, place: Connection | ServerStorage) -> None:
    """Delete the updates of the failed round NUMBER, which are kept until then."""
    from phonograd.api.administration import discard as discard_updates

    document = discard_updates(place, number)
    console.result(document, ("Discarded", [to_words(document)]))


def _title(report: dict[str, Any]) -> str:
    from phonograd.server_agg.report.document import GIB, MIB
    from phonograd.server_agg.report.text import next_model_text, size

    paper = report["paper"]
    phone, round_ = size(paper["mib_per_phone"] * MIB), size(paper["gib_per_round"] * GIB)
    neighbours = next((entry["neighbours"] for entry in report["rounds"] if entry["neighbours"]), None)
    of_epsilon = f"; epsilon: {neighbours}" if neighbours else ""
    when = f"; {text}" if (text := next_model_text(report)) else ""
    return f"Rounds (paper P, Popov et al.: {phone} a phone, {round_} a round of 10{of_epsilon}){when}"


def _phone_row(phone: dict[str, Any]) -> dict[str, object]:
    from phonograd.server_agg.report.text import size

    return {
        "phone": phone["phone"] or "not named",
        "state": phone["state"],
        "codec": phone["codec"],
        "reason": phone["reason"],
        "useful": size(phone["useful_bytes"]),
        "retried": size(phone["retried_bytes"]),
        "refused": size(phone["rejected_bytes"] + phone["late_bytes"]),
        "all up": size(phone["up_body_bytes"] + phone["up_header_bytes"]),
        "all down": size(phone["down_body_bytes"] + phone["down_header_bytes"]),
        "models": size(phone["model_bytes"]),
        "links": size(phone["sent_link_bytes"]),
        "TCP up": "" if phone["up_tcp_bytes"] is None else size(phone["up_tcp_bytes"]),
        "TCP down": "" if phone["down_tcp_bytes"] is None else size(phone["down_tcp_bytes"]),
        "requests": phone["requests"],
        "upload starts": phone["upload_starts"],
    }


def _model_row(model: dict[str, Any]) -> dict[str, object]:
    from phonograd.server_agg.report.text import size

    quality = ", ".join(
        f"{metric} {value:{'.1f' if '(%)' in metric else '.4g'}}" for metric, value in model["quality"].items()
    )
    return {
        "round": model["round"],
        "model": model["sha256"][:12],
        "parent": (model["parent_sha256"] or "")[:12],
        "size": size(model["bytes"]),
        "kept": model["kept"],
        "quality": quality,
    }
