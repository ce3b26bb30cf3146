"""`phonograd export` and `phonograd inspect`: the artifacts folder."""

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

import click

from phonograd.api.exporting import export_artifacts
from phonograd.api.exporting import inspect as inspect_artifacts
from phonograd.commands.fitting import warn_of_unknown
from phonograd.commands.model_options import SHAPE, DeclaredShape
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import (
    CLIP_NORM,
    COUNT,
    FROM_0,
    POSITIVE,
    SHARE,
    FiniteRange,
    Options,
    arg,
    opt,
    own_options,
    refuse,
)
from phonograd.commands.paths import INPUT, OUT_FOLDER
from phonograd.console import Console, Rows, figures, output_options, with_errors
from phonograd.device_runtime.base.errors import UnsupportedError
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.formats.manifest import Artifacts, Loss, LossReduction, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.device_runtime.text.evaluation import Evaluation
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.rehearsal import unknown_share
from phonograd.export.inspection import how_to_get_onnx
from phonograd.export.torch_layout import seeded_weights
from phonograd.export.vocabulary_import import load_vocabulary

TRAINING = Options(
    TrainingConfig,
    loss=opt("lwf: paper P.", click.Choice(get_args(Loss))),
    user_share=opt("λ of --loss lwf.", SHARE),
    loss_reduction=opt(
        "Learning rate 0.75 and clip norm 5 are meant for sum_over_time.", click.Choice(get_args(LossReduction))
    ),
    learning_rate=opt(kind=POSITIVE, name="--lr"),
    clip_norm=CLIP_NORM,
    dropout=opt(kind=FiniteRange(0, 1, max_open=True)),
    minibatch=opt(kind=COUNT),
    bptt=opt("Time steps a window.", COUNT),
)


def _renames(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    for value in values:
        if not value.partition("=")[0] or "=" not in value:
            raise click.BadParameter(f"OLD=NEW expected, found {value!r}", context, option)
    return {old: new for old, _, new in (value.partition("=") for value in values)}


EXPORT = Options(
    export_artifacts,
    model=opt(
        "Your own model: a PyTorch state dict (.pt or safetensors). The shape is inferred from its tensors.",
        INPUT,
        required=False,
    ),
    vocabulary=opt(
        "vocab.txt; the model has as many words. Counts are read from beside it, VOCAB.counts, or follow Zipf's law.",
        INPUT,
        name="--vocab",
    ),
    renames=opt(
        "Rename a tensor of the file, or all below OLD: lm_head=decoder, model.rnns=rnn, net= (removes net.). May be "
        "repeated.",
        str,
        name="--rename",
        metavar="OLD=NEW",
        multiple=True,
        callback=_renames,
    ),
    ignore=opt(
        "Leave out the tensors of these names, such as 'criterion.*'. May be repeated.",
        str,
        metavar="GLOB",
        multiple=True,
    ),
    key=opt("Where in the file the state dict lies: model.state_dict, or 0 in a list.", str, metavar="PATH"),
    trained_with=opt(
        "The vocabulary that the file was trained with, if not --vocab; rows are reordered to match.",
        INPUT,
        name="--weights-vocab",
    ),
    freeze=opt(
        "Exclude a tensor, or all below a name such as lstm.0, from training and updates. May be repeated.",
        str,
        metavar="NAME",
        multiple=True,
    ),
    train=opt(
        "Freeze all tensors but this one, or those below a name such as decoder. May be repeated.",
        str,
        metavar="NAME",
        multiple=True,
    ),
    adapters=opt(
        "Train low-rank adapters of this rank in place of every matrix, beside the biases: few numbers, so that a "
        "private round adds less noise.",
        COUNT,
        metavar="RANK",
    ),
    adapters_seed=opt("Of the adapters' fixed random part.", FROM_0),
    predict="Also write prediction weights: a quarter of the size, for a keyboard's suggestions.",
    distill="Also write the distillation graph, for servers: phonograd serve --strategy transfer.",
    check=opt(
        "A text, one message a line: print its perplexity by the model in PyTorch and by the artifacts; write none if "
        "these differ. Compare with what your own code measures.",
        INPUT,
    ),
    overwrite="Replace an existing folder.",
    out=opt("The artifacts folder to write.", OUT_FOLDER),
)


@click.command()
@SHAPE
@own_options
@EXPORT
@TRAINING
@output_options
def export(
    console: Console,
    weights: Annotated[Path | None, "Trained weights for the declared shape; the same file types as --model."] = None,
    seed: Annotated[int | None, opt("Random weights for the declared shape, from this seed.", FROM_0)] = None,
    **options: Any,
) -> None:
    """Write the artifacts folder that phones train from.

    Give your own model by --model FILE, which has shape and weights. Or declare the shape by --preset, or by --cell,
    --layers and --hidden, and give the weights by --weights FILE or --seed N. Tensors have the names of PyTorch's
    word_language_model example (encoder, rnn, decoder) or phonograd's; rename others with --rename.
    """
    shape = SHAPE.take(options)
    _check_choice(options["model"], shape, weights, seed)
    if options["loss"] != "lwf":
        refuse("belongs to --loss lwf; for rehearsal it is an option of phonograd train", "user_share")
    settings, given = TRAINING.take(options), EXPORT.values(options)
    source: Path | Mapping[str, Array] | None = given.pop("model") or weights
    if source is None:
        refuse("needs --model or --weights, whose tensors it names", "trained_with", "renames", "ignore", "key")
    vocabulary, check = load_vocabulary(given["vocabulary"]), given["check"]
    config = shape.config(len(vocabulary)) if shape.given else None
    if source is None:
        assert config is not None
        source = seeded_weights(config, seed or 0)
    evaluated: dict[str, dict[str, Any]] = {}

    def on_check(ours: Evaluation, exported: Evaluation) -> None:
        evaluated.update(pytorch=dataclasses.asdict(ours), exported=dataclasses.asdict(exported))

    if check is not None:
        warn_of_unknown(console, check, unknown_share(vocabulary.encode(read_messages(check))))
        with contextlib.suppress(UnsupportedError):  # ONNX Runtime takes its place
            build_on_first_use(console)
    written = export_artifacts(
        source,
        **given,
        training=settings,
        shape=config,
        on_check=on_check,
        progress=lambda stage: console.say(f"export: {stage}"),
    )
    document = inspect_artifacts(written)
    checked = []
    if check is not None:
        document["check"] = {"text": str(check), **evaluated}
        checked.append((f"Check on {check}", [with_errors({"model": name, **row}) for name, row in evaluated.items()]))
    console.result(document, *_summary(document), *checked)


def _check_choice(model: Path | None, shape: DeclaredShape, weights: Path | None, seed: int | None) -> None:
    if model is not None and (shape.given or weights is not None or seed is not None):
        raise click.UsageError("--model has shape and weights: leave out --preset, sizes, --weights and --seed, or it")
    if model is None and not shape.given:
        raise click.UsageError("give --model FILE, --preset NAME, or --cell, --layers and --hidden: one of the three")
    if model is None:
        shape.require()
    if model is None and (weights is None) == (seed is None):
        raise click.UsageError("give --weights FILE, or --seed N for random weights: one of the two")


@click.command()
@own_options
@output_options
def inspect(
    console: Console,
    artifacts: Annotated[Path, arg()],
    plan: Annotated[bool, "Show the native engine's plan instead: its steps in order, and its memory."] = False,
) -> None:
    """Show an artifacts folder's contents, after checking every hash."""
    folder = open_artifacts(artifacts)
    if plan:
        text = _plan(console, folder)
        console.text({"plan": text}, text)
        return
    document = inspect_artifacts(folder)
    tensors = [
        {"tensor": one["name"], "shape": [*one["shape"]], "dtype": one["dtype"], "sha256": one["sha256"][:12]}
        for one in document["tensors"]
    ]
    graphs = document["operators"]
    if graphs is None:
        console.say(f"operators are not listed: that needs onnx; install it with: {how_to_get_onnx()}")
    counts = [
        {"graph": graph, "operators": ", ".join(f"{name} {count}" for name, count in used.items())}
        for graph, used in (graphs or {}).items()
    ]
    files = [
        {"file": name, "bytes": entry["bytes"], "sha256": entry["sha256"][:12]}
        for name, entry in document["files"].items()
    ]
    console.result(document, *_summary(document), ("Tensors", tensors), ("Files", files), ("Graphs", counts))


def _plan(console: Console, folder: Artifacts) -> str:
    from phonograd.device_runtime.engine.native import NativeBackend

    build_on_first_use(console)
    with contextlib.closing(NativeBackend(folder, None, BackendOptions())) as engine:
        return engine.plan()


def _summary(document: dict[str, Any]) -> list[tuple[str, Rows]]:
    keys = ("preset", "parameters", "weights_bytes", "folder_bytes", "weights_sha256")
    facts = {key: document[key] for key in keys} | document["model"] | document["training"]
    if document["frozen"]:
        facts["frozen"] = ", ".join(document["frozen"])
    return [(document["folder"], figures(facts))]
