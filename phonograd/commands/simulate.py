"""`phonograd simulate`: federated rounds of virtual phones."""

from collections.abc import Iterator
from pathlib import Path

import click

from phonograd.api.simulating import simulate as run_simulation
from phonograd.commands.configured import config_options
from phonograd.commands.paths import OUT_FOLDER, OUTPUT
from phonograd.commands.stopping import stop_signals
from phonograd.commands.study import simulation_from
from phonograd.config.simulate import SIMULATE, Output, Study
from phonograd.config.values import Config
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.base.errors import UsageError
from phonograd.server_agg.settings.noise import CoveringNoise
from phonograd.simulation.folder import read_record
from phonograd.simulation.records import SimulationRecord, deployed_number, tables_of


@click.command()
@config_options(SIMULATE, out=OUT_FOLDER, page=OUTPUT)
@output_options
def simulate(console: Console, config: Config) -> None:
    """Simulate federated rounds of virtual phones with the model in ARTIFACTS.

    In each round some users' phones train on their next text; the server's own aggregation makes the next model. The
    model is evaluated on general text and on texts of users who never train. OUT/simulation.json has all figures.
    Larger --rounds continue a simulation.
    """
    study, out = config.take(Study), config.take(Output).out
    if config.on_command_line("compare") and study.page is None:
        raise UsageError("--compare needs --page")
    settings = simulation_from(console, config, study)

    def tell(noise: CoveringNoise) -> None:
        if not study.accept_noise:
            noise.require_less()
        console.say(f"phonograd: {'warning: ' if noise.covers else ''}{noise}")

    with console.progress("simulating", "phones") as show, stop_signals() as stop:
        record = run_simulation(
            study.artifacts,
            study.users,
            out,
            settings,
            rehearsal=study.rehearsal,
            general_test=study.general_test,
            workers=study.workers,
            engine=study.engine,
            config=config.document(),
            on_noise=tell,
            progress=show,
            stop=stop,
        )
    if record.users.training < settings.clients_per_round and not settings.strategy.private:
        console.say(
            f"phonograd: warning: --clients-per-round {settings.clients_per_round}: only {record.users.training} users "
            "train; all of them took part in each round"
        )
    for remark in _remarks(record, settings.deploy_every):
        console.say(f"phonograd: {remark}")
    if study.page is not None:
        _show(study.page, out, study.compare)
        console.say(f"wrote {study.page}")
    console.result(document_of(record), *tables_of(record).items())


def _remarks(record: SimulationRecord, deploy_every: int) -> Iterator[str]:
    """What the table does not tell: failed rounds, and models that phones did not get."""
    rounds, last = record.rounds, deployed_number(record.rounds)
    if failed := sum(ended.outcome == "failed" for ended in rounds):
        yield f"warning: {failed} of {len(rounds)} rounds failed: too few updates arrived, and the model stayed"
    if done := sum(ended.outcome == "closed" for ended in rounds[last:]):
        phones = f"phones have the model of round {last}" if last else "phones never got a model"
        yield f"{phones}: the next one comes after {deploy_every} rounds (rounds.deploy_every), {done} are done"


def _show(page: Path, out: Path, compare: tuple[Path, ...]) -> None:
    from phonograd.simulation.page import write_page

    folders = (out, *compare)
    names = [folder.name for folder in folders]
    write_page(page, {one.name if names.count(one.name) == 1 else str(one): read_record(one) for one in folders})
