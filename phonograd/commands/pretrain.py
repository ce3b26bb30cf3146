"""`phonograd pretrain`: a general model to send to phones."""

import dataclasses

import click

from phonograd.api.pretraining import pretrain as pretrain_model
from phonograd.commands.configured import config_options
from phonograd.commands.fitting import warn_of_misfit, warn_of_text
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import Choice
from phonograd.commands.paths import OUT_FOLDER, OUTPUT
from phonograd.commands.stopping import stop_signals
from phonograd.config.pretrain import PRETRAIN, Pretraining
from phonograd.config.shape import DeclaredShape
from phonograd.config.values import Config
from phonograd.console import Console, figures, output_options
from phonograd.device_runtime.text.messages import read_messages
from phonograd.export.presets import PRESETS
from phonograd.export.pretrain_config import PretrainConfig, PretrainProgress
from phonograd.export.vocabulary_import import load_vocabulary


@click.command()
@config_options(PRETRAIN, state=OUT_FOLDER, out=OUTPUT, preset=Choice([*PRESETS]))
@output_options
def pretrain(console: Console, config: Config) -> None:
    """Pre-train a model on general text (Zaremba's medium recipe, as paper P's server does).

    Give its shape by --preset, or by the keys shape.cell, shape.layers and shape.hidden. With --state, SIGTERM and
    SIGINT stop it with exit codes 143 and 130, and the same command goes on to the same bits.
    """
    shape = config.take(DeclaredShape)
    shape.require_whole()
    given, settings = config.take(Pretraining), config.take(PretrainConfig)
    vocabulary = load_vocabulary(given.vocabulary)
    warn_of_misfit(console, vocabulary)
    for text in (*given.texts, *([given.validation] if given.validation else [])):
        warn_of_text(console, vocabulary, text, read_messages(text))
    model = shape.config(len(vocabulary))
    if settings.backend == "native":
        build_on_first_use(console)
    with console.progress("pre-training", "steps") as show, stop_signals() as stop:

        def report(seen: PretrainProgress) -> None:
            if seen.diverged is not None:
                console.say(seen.diverged)
            elif seen.validation_perplexity is not None:
                found, with_unknown = seen.validation_perplexity, seen.validation_perplexity_with_unknown
                console.say(
                    f"epoch {seen.epoch}, step {seen.step} of {seen.steps}: validation perplexity {found:.1f}, with "
                    f"unknown words {with_unknown:.1f}"
                )
            else:
                done, total = (seen.epoch - 1) * seen.steps + seen.step, seen.epochs * seen.steps
                if settings.max_steps is not None:
                    total = min(total, settings.max_steps)
                show(done, total, f"{seen.loss:.3f} nats/token, {seen.tokens_per_second:,.0f} tokens/s")

        result = pretrain_model(
            model,
            vocabulary,
            given.texts,
            given.out,
            config=settings,
            teacher=given.teacher,
            validation=given.validation,
            state=given.state,
            progress=report,
            stop=stop,
        )
    document = dataclasses.asdict(result)
    shown = {name: value for name, value in document.items() if name != "curve"}
    shown["diverged"] = ", ".join(f"at step {step:,}" for step in result.diverged) or "no"
    console.result(document | {"config": config.document()}, ("Pre-training", figures(shown)))
