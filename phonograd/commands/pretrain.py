"""`phonograd pretrain`: a general model to send to phones."""

import dataclasses
from typing import Any

import click

from phonograd.api.pretraining import pretrain as pretrain_model
from phonograd.commands.fitting import warn_of_misfit
from phonograd.commands.model_options import SHAPE
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import CLIP_NORM, COUNT, FROM_0, POSITIVE, THREADS, FiniteRange, Options, opt, refuse
from phonograd.commands.paths import INPUT, OUT_FOLDER, OUTPUT
from phonograd.commands.stopping import stop_signals
from phonograd.console import Console, figures, output_options
from phonograd.export.pretrain_config import ONLY, PretrainConfig, PretrainProgress
from phonograd.export.vocabulary_import import load_vocabulary

CONFIG = Options(
    PretrainConfig,
    epochs=opt(kind=COUNT),
    max_steps=opt("Stop after this many steps in total.", COUNT),
    minibatch=opt(kind=COUNT),
    bptt=opt("Time steps a window.", COUNT),
    learning_rate=opt(kind=POSITIVE, name="--lr"),
    decay=opt(kind=FiniteRange(1)),
    decay_after=opt("Epochs, or parts of one, before the learning rate falls.", FiniteRange(0)),
    clip_norm=CLIP_NORM,
    dropout=opt(kind=FiniteRange(0, 1, max_open=True)),
    seed=opt(kind=FROM_0),
    backend="What trains: the native engine, or PyTorch, which trains on GPUs too.",
    precision=opt(),
    threads=opt("CPU threads (native).  [default: one a core]", THREADS),
    output_sample=opt(
        "Train the softmax over the words of each part of the text and about N others, drawn at random (native); "
        "0: over all words.",
        FROM_0,
        metavar="N",
        callback=lambda _context, _parameter, words: words or None,
    ),
    evaluate_every=opt(
        "Parts, of 100 steps, from one evaluation to the next (native).  [default: only after each epoch]", COUNT
    ),
    device=opt("Where PyTorch trains."),
)


MODEL = Options(
    pretrain_model,
    vocabulary=opt("vocab.txt; the model has as many words.", INPUT, name="--vocab"),
    texts=opt("General text; may be repeated.", INPUT, name="--text", multiple=True),
    validation=opt("Validation text.  [default: the last 5 % of the messages]", INPUT, name="--valid"),
    state=opt("Folder to save the run's state in; the same command resumes from it.", OUT_FOLDER),
    out=opt("Where to write the best weights (safetensors, in the artifacts' layout).", OUTPUT),
)


@click.command()
@SHAPE
@MODEL
@CONFIG
@output_options
def pretrain(console: Console, **options: Any) -> None:
    """Pre-train a model on general text (Zaremba's medium recipe, as paper P's server does).

    Give its shape by --preset, or by --cell, --layers and --hidden. With --state, SIGTERM and SIGINT stop it with exit
    codes 143 and 130, and the same command goes on to the same bits.
    """
    native = options["backend"] == "native"
    other = "torch" if native else "native"
    refuse(f"expected with --backend {other}", *ONLY[other])
    shape = SHAPE.take(options)
    shape.require()
    config = CONFIG.take(options)
    vocabulary = load_vocabulary(options.pop("vocabulary"))
    warn_of_misfit(console, vocabulary)
    model = shape.config(len(vocabulary))
    if native:
        build_on_first_use(console)
    with console.progress("pre-training") as show, stop_signals() as stop:

        def report(seen: PretrainProgress) -> None:
            if seen.validation_perplexity is not None:
                found, with_unknown = seen.validation_perplexity, seen.validation_perplexity_with_unknown
                console.say(
                    f"epoch {seen.epoch}, step {seen.step} of {seen.steps}: validation perplexity {found:.1f}, with "
                    f"unknown words {with_unknown:.1f}"
                )
            else:
                done, total = (seen.epoch - 1) * seen.steps + seen.step, seen.epochs * seen.steps
                if config.max_steps is not None:
                    total = min(total, config.max_steps)
                show(done, total, f"{seen.loss:.3f} nats/token, {seen.tokens_per_second:,.0f} tokens/s")

        result = pretrain_model(model, vocabulary, **options, config=config, progress=report, stop=stop)
    document = dataclasses.asdict(result)
    shown = {name: value for name, value in document.items() if name != "curve"}
    console.result(document, ("Pre-training", figures(shown)))
