"""`phonograd simulate`: federated rounds of virtual phones."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import click

from phonograd.api.simulating import simulate as run_simulation
from phonograd.commands.native import PRECISION, build_on_first_use, chosen_precision
from phonograd.commands.options import COUNT, Options, arg, opt, own_options, refuse
from phonograd.commands.own_classes import TakesOwn
from phonograd.commands.paths import INPUT, OUT_FOLDER
from phonograd.commands.serve_options import (
    MASKED_FLAG,
    SIMULATED_GRID,
    TRANSFER,
    simulated_grid_from,
    strategy_from,
    strategy_options,
    transfer_from,
    warn_of_norms,
)
from phonograd.commands.shared_options import CODEC, ENGINE, PAGE, REHEARSAL, refuse_share_alone
from phonograd.commands.stopping import stop_signals
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.documents import written
from phonograd.server_agg.settings.noise import CoveringNoise
from phonograd.simulation.folder import read_record
from phonograd.simulation.records import rows_of
from phonograd.simulation.settings import SimulationSettings

SIMULATION = (
    Options(SimulationSettings)
    .group(
        "Rounds",
        rounds="Rounds to run; more continue a simulation.",
        clients_per_round="Phones that take part in a round.",
        test_users="Users who never train; the model is evaluated on their texts.",
        evaluate_every="Rounds from one evaluation to the next.",
        evaluate_last="Rounds at the end that are all evaluated.",
        kss="Also measure keystroke savings.",
        seed="Of all that is drawn at random.",
    )
    .group(
        "Training",
        text_bytes="Bytes of a user's text per round.",
        user_share="λ, the user's share of the tokens, with --rehearsal.",
        epochs="Passes over the text.",
        steps="1: a single step with the gradient of the whole text, as in phonograd train.",
        learning_rate=opt("Learning rate.  [default: the artifacts']", name="--lr"),
        codec=CODEC,
        output_sample="As in phonograd train.",
        precision=PRECISION,
    )
    .group(
        "Publishing",
        publish="Codec of the link from a round's base to its model, as in phonograd serve.",
        publish_rows="top-rows: rows of largest change to publish.",
        publish_bits="top-rows: bits a weight, 1, 2 or 4.",
    )
    .group(
        "Phones that fail",
        drop_outs="Chance that an update never arrives.",
        late_phones="Chance that an update arrives one round later.",
        late="What to do with late updates.",
        duplicates="Chance that an update is sent twice.",
    )
)


TEXTS = Options(
    run_simulation,
    users=opt('JSONL lines {"user": NAME, "text": TEXT}, or a folder of NAME.txt files.', INPUT),
    out=opt("The simulation's folder; the same command resumes from it.", OUT_FOLDER),
    rehearsal=REHEARSAL,
    general_test=opt("General text to evaluate on.", INPUT),
    workers=opt("Processes that train, one thread each.  [default: one a core]", COUNT),
    engine=ENGINE,
)


@click.command(cls=TakesOwn)
@own_options
@TEXTS
@SIMULATION
@strategy_options
@TRANSFER
@MASKED_FLAG
@SIMULATED_GRID
@output_options
def simulate(
    console: Console,
    artifacts: Annotated[Path, arg()],
    page: Annotated[Path | None, PAGE] = None,
    compare: Annotated[tuple[Path, ...], "Another simulation's folder, to show on the page; may be repeated."] = (),
    accept_noise: Annotated[bool, "Simulate with noise of more than 10 times S, which destroys the model."] = False,
    **options: Any,
) -> None:
    """Simulate federated rounds of virtual phones.

    In each round some users' phones train on their next text; the server's own aggregation makes the next model. The
    model is evaluated on general text and on texts of users who never train. OUT/simulation.json has all figures.
    Larger --rounds continue a simulation.
    """
    refuse_share_alone(options)
    if not options["late_phones"]:
        refuse("expected with --late-phones, the chance that an update is late", "late")
    strategy, transfer = strategy_from(options), transfer_from(options)
    build_on_first_use(console)  # it has the rules of masked rounds
    masked = simulated_grid_from(options)
    if masked is not None:
        strategy = dataclasses.replace(strategy, weighting=masked.weighting)
        masked = dataclasses.replace(masked, steps=int(strategy.one_step))
    options["precision"] = chosen_precision(console, options["precision"], threads=1)
    settings = SIMULATION.take(options, strategy=strategy, transfer=transfer, masked=masked)
    if compare and page is None:
        raise click.UsageError("--compare needs --page")
    warn_of_norms(console, strategy, [settings.codec])

    def tell(noise: CoveringNoise) -> None:
        if not accept_noise:
            noise.require_less()
        console.say(f"phonograd: {'warning: ' if noise.covers else ''}{noise}")

    with console.progress("rounds") as show, stop_signals() as stop:
        record = run_simulation(artifacts, **options, settings=settings, on_noise=tell, progress=show, stop=stop)
    if record.users.training < settings.clients_per_round and not strategy.private:
        console.say(
            f"phonograd: warning: --clients-per-round {settings.clients_per_round}: only {record.users.training} users "
            "train; all of them took part in each round"
        )
    if page is not None:
        from phonograd.simulation.page import write_page

        folders = (options["out"], *compare)
        names = [folder.name for folder in folders]
        shown = {one.name if names.count(one.name) == 1 else str(one): read_record(one) for one in folders}
        write_page(page, shown)
        console.say(f"wrote {page}")
    console.result(written(record), ("Simulated rounds", rows_of(record)))
