"""`phonograd simulate`: federated rounds of virtual phones."""

import re
from pathlib import Path
from typing import Any, get_args

import click

from phonograd.commands.codec_options import codec_options
from phonograd.commands.native import build_on_first_use
from phonograd.commands.serve_options import strategy_from, strategy_options
from phonograd.commands.stopping import stop_signals
from phonograd.console import Console, output_options
from phonograd.device_runtime.engine.backend import PRECISIONS
from phonograd.server_agg.settings.rules import Late
from phonograd.simulation.settings import SimulationSettings

PATH = click.Path(path_type=Path)
CHANCE = click.FloatRange(0, 1)
DEFAULTS = SimulationSettings()
OWN = (
    *("rounds", "clients_per_round", "seed", "text_bytes", "user_share", "codec", "epochs", "learning_rate"),
    *("output_sample", "precision", "drop_outs", "late_phones", "late", "duplicates", "test_users", "evaluate_every"),
    "kss",
)


@click.command()
@click.argument("artifacts", type=PATH)
@click.option(
    "--users", type=PATH, required=True, help='JSONL lines {"user": NAME, "text": TEXT}, or a folder of NAME.txt files.'
)
@click.option("--out", type=PATH, required=True, help="The simulation's folder; the same command resumes from it.")
@click.option("--rounds", type=click.IntRange(1), default=DEFAULTS.rounds, show_default=True)
@click.option("--clients-per-round", type=click.IntRange(1), default=DEFAULTS.clients_per_round, show_default=True)
@click.option("--rehearsal", type=PATH, help="General text to draw rehearsal messages from.")
@click.option(
    "--user-share",
    type=click.FloatRange(0, 1, min_open=True),
    default=DEFAULTS.user_share,
    show_default=True,
    help="λ, the user's share of the tokens, with --rehearsal.",
)
@click.option(
    "--text-bytes",
    type=click.IntRange(1),
    default=DEFAULTS.text_bytes,
    show_default=True,
    help="Bytes of a user's text per round.",
)
@click.option("--general-test", type=PATH, help="General text to evaluate on.")
@click.option(
    "--test-users",
    type=click.IntRange(0),
    default=DEFAULTS.test_users,
    show_default=True,
    help="Users who never train; the model is evaluated on their texts.",
)
@click.option(
    "--evaluate-every", type=click.IntRange(1), default=DEFAULTS.evaluate_every, show_default=True, help="Rounds."
)
@click.option("--kss", is_flag=True, help="Also measure keystroke savings.")
@click.option("--epochs", type=click.IntRange(1), default=DEFAULTS.epochs, show_default=True)
@click.option(
    "--lr", "learning_rate", type=click.FloatRange(0, min_open=True), help="Learning rate.  [default: the artifacts']"
)
@click.option("--output-sample", type=click.IntRange(1), metavar="N", help="As in phonograd train.")
@click.option("--precision", type=click.Choice(PRECISIONS), default=DEFAULTS.precision, show_default=True)
@codec_options
@click.option(
    "--drop-outs",
    type=CHANCE,
    default=DEFAULTS.drop_outs,
    show_default=True,
    help="Chance that an update never arrives.",
)
@click.option(
    "--late-phones",
    type=CHANCE,
    default=DEFAULTS.late_phones,
    show_default=True,
    help="Chance that an update arrives one round later.",
)
@click.option(
    "--late",
    type=click.Choice(get_args(Late)),
    default=DEFAULTS.late,
    show_default=True,
    help="What to do with late updates.",
)
@click.option(
    "--duplicates",
    type=CHANCE,
    default=DEFAULTS.duplicates,
    show_default=True,
    help="Chance that an update is sent twice.",
)
@click.option("--seed", type=click.IntRange(0, (1 << 64) - 1), default=DEFAULTS.seed, show_default=True)
@strategy_options
@click.option("--workers", type=click.IntRange(1), help="Processes that train, one thread each.  [default: one a core]")
@click.option("--page", type=PATH, help="Write an HTML page with plots here.")
@click.option(
    "--compare", type=PATH, multiple=True, help="Another simulation's folder, to show on the page; may be repeated."
)
@output_options
def simulate(
    console: Console,
    artifacts: Path,
    users: Path,
    out: Path,
    rehearsal: Path | None,
    general_test: Path | None,
    workers: int | None,
    page: Path | None,
    compare: tuple[Path, ...],
    **options: Any,
) -> None:
    """Simulate federated rounds of virtual phones.

    In each round some users' phones train on their next text; the server's own aggregation makes the next model. The
    model is evaluated on general text and on texts of users who never train. OUT/simulation.json has all figures.
    Larger --rounds continue a simulation.
    """
    from phonograd.api.simulating import simulate as run_simulation
    from phonograd.device_runtime.base.documents import written
    from phonograd.simulation.table import rows_of

    try:
        settings = SimulationSettings(**{name: options[name] for name in OWN}, strategy=strategy_from(options))
    except ValueError as error:
        raise click.UsageError(re.sub(r"\w+_\w+|^\w+", lambda found: _flag(found[0]), str(error))) from error
    if compare and page is None:
        raise click.UsageError("--compare needs --page")
    build_on_first_use(console)
    with console.progress("rounds") as show, stop_signals() as stop:
        record = run_simulation(
            artifacts,
            users,
            out,
            settings,
            rehearsal=rehearsal,
            general_test=general_test,
            workers=workers,
            progress=show,
            stop=stop,
        )
    if page is not None:
        _write_page(page, {folder.name: folder for folder in (out, *compare)})
        console.say(f"wrote {page}")
    console.result(written(record), ("Simulated rounds", rows_of(record)))


def _flag(setting: str) -> str:
    return f"--{setting.replace('_', '-')}" if setting in OWN else setting


def _write_page(page: Path, folders: dict[str, Path]) -> None:
    from phonograd.simulation.folder import read_record
    from phonograd.simulation.page import write_page

    write_page(page, {name: read_record(folder) for name, folder in folders.items()})
