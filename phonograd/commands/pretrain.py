"""`phonograd pretrain`: a general model to send to phones."""

import dataclasses
from pathlib import Path
from typing import Any, get_args

import click

from phonograd.commands.fitting import warn_of_misfit
from phonograd.commands.model_options import DeclaredShape, shape_options
from phonograd.commands.options import COUNT, FROM_0, POSITIVE, FiniteRange
from phonograd.commands.paths import INPUT, OUT_FOLDER, OUTPUT
from phonograd.console import Console, output_options
from phonograd.export.pretrain_config import Device, Precision, PretrainConfig, PretrainProgress

DEFAULTS = PretrainConfig()


@click.command()
@shape_options
@click.option("--vocab", type=INPUT, required=True, help="vocab.txt; the model has as many words.")
@click.option("--text", "texts", type=INPUT, required=True, multiple=True, help="General text; may be repeated.")
@click.option("--valid", type=INPUT, help="Validation text.  [default: the last 5 % of the messages]")
@click.option("--epochs", type=COUNT, default=DEFAULTS.epochs)
@click.option("--max-steps", type=COUNT, help="Stop after this many steps in total.")
@click.option("--minibatch", type=COUNT, default=DEFAULTS.minibatch)
@click.option("--bptt", type=COUNT, default=DEFAULTS.bptt, help="Time steps a window.")
@click.option("--lr", "learning_rate", type=POSITIVE, default=DEFAULTS.learning_rate)
@click.option("--decay", type=FiniteRange(1), default=DEFAULTS.decay)
@click.option("--decay-after", type=FROM_0, default=DEFAULTS.decay_after, help="Epochs.")
@click.option("--clip-norm", type=FiniteRange(0), default=DEFAULTS.clip_norm, help="0: no clipping.")
@click.option("--dropout", type=FiniteRange(0, 1, max_open=True), default=DEFAULTS.dropout)
@click.option("--seed", type=FROM_0, default=DEFAULTS.seed)
@click.option("--device", type=click.Choice(get_args(Device)), default=DEFAULTS.device)
@click.option("--precision", type=click.Choice(get_args(Precision)), default=DEFAULTS.precision)
@click.option("--state", type=OUT_FOLDER, help="Folder to save the run's state in; the same command resumes from it.")
@click.option("--out", type=OUTPUT, required=True, help="Where to write the best weights (safetensors, torch layout).")
@output_options
def pretrain(
    console: Console,
    shape: DeclaredShape,
    vocab: Path,
    texts: tuple[Path, ...],
    valid: Path | None,
    clip_norm: float,
    state: Path | None,
    out: Path,
    **settings: Any,
) -> None:
    """Pre-train a model on general text (Zaremba's medium recipe, as paper P's server does).

    Give its shape by --preset, or by --cell, --layers and --hidden.
    """
    from phonograd.api.pretraining import pretrain as pretrain_model
    from phonograd.export.vocabulary_import import load_vocabulary

    shape.require()
    config = PretrainConfig(clip_norm=clip_norm or None, **settings)
    vocabulary = load_vocabulary(vocab)
    warn_of_misfit(console, vocabulary)
    model = shape.config(len(vocabulary))
    with console.progress("pre-training") as show:

        def report(seen: PretrainProgress) -> None:
            if seen.validation_perplexity is not None:
                found, with_unknown = seen.validation_perplexity, seen.validation_perplexity_with_unknown
                console.say(
                    f"epoch {seen.epoch}: validation perplexity {found:.1f}, with unknown words {with_unknown:.1f}"
                )
            else:
                done, total = (seen.epoch - 1) * seen.steps + seen.step, seen.epochs * seen.steps
                if config.max_steps is not None:
                    total = min(total, config.max_steps)
                show(done, total, f"{seen.loss:.3f} nats/token")

        result = pretrain_model(
            model, vocabulary, texts, out, config=config, validation=valid, state=state, progress=report
        )
    document = dataclasses.asdict(result)
    console.result(document, ("Pre-training", [{"figure": key, "value": value} for key, value in document.items()]))
