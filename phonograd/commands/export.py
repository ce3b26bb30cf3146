"""`phonograd export`, `inspect` and `merge`: the artifacts folder, and a plain model of one with adapters."""

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import click
from msgspec.structs import asdict

from phonograd.api.exporting import export_artifacts
from phonograd.api.exporting import inspect as inspect_artifacts
from phonograd.commands.configured import config_options
from phonograd.commands.fitting import warn_of_text
from phonograd.commands.grouped import GroupedCommand
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import Choice, arg, opt, own_options
from phonograd.commands.paths import OUT_FOLDER, OUTPUT
from phonograd.config.export import EXPORT, READ, Exporting
from phonograd.config.shape import DeclaredShape
from phonograd.config.values import Config
from phonograd.console import Console, Rows, figures, output_options, side_by_side
from phonograd.device_runtime.base.errors import UnsupportedError, UsageError
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.formats.manifest import Artifacts, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.device_runtime.text.evaluation import Evaluation
from phonograd.device_runtime.text.messages import read_messages
from phonograd.export.inspection import how_to_get_onnx
from phonograd.export.presets import PRESETS
from phonograd.export.torch_layout import seeded_weights
from phonograd.export.vocabulary_import import load_vocabulary
from phonograd.pages import to_words

GROUPS = {
    "Your own model": ("--model", "--rename", "--check"),
    "A declared shape": ("--preset", "--weights", "--seed"),
    "Results": ("--vocab", "--predict", "--distill", "--out", "--overwrite"),
    "Settings": ("--config", "--set"),
}


@click.command(cls=GroupedCommand, groups=GROUPS)
@config_options(EXPORT, out=OUT_FOLDER, preset=Choice([*PRESETS]))
@output_options
def export(console: Console, config: Config) -> None:
    """Write the artifacts folder that phones train from.

    Give your own model by --model FILE, which has shape and weights. Or declare the shape by --preset, or by the keys
    shape.cell, shape.layers and shape.hidden, and give the weights by --weights FILE or --seed N. Tensors have the
    names of PyTorch's word_language_model example (encoder, rnn, decoder) or phonograd's; rename others with --rename.
    """
    given, shape, training = config.take(Exporting), config.take(DeclaredShape), config.take(TrainingConfig)
    _check_choice(given, shape)
    source: Path | Mapping[str, Array] | None = given.model or given.weights
    for key in READ if source is None else ():
        if config.on_command_line(key):
            raise UsageError(f"{config.name_of(key)}: needs --model or --weights, whose tensors it names")
    vocabulary = load_vocabulary(given.vocabulary)
    model = shape.config(len(vocabulary)) if shape.given else None
    if source is None:
        assert model is not None
        source = seeded_weights(model, given.seed or 0)
    evaluated: dict[str, dict[str, Any]] = {}

    def on_check(ours: Evaluation, exported: Evaluation) -> None:
        evaluated.update(pytorch=dataclasses.asdict(ours), exported=dataclasses.asdict(exported))

    if given.check is not None:
        warn_of_text(console, vocabulary, given.check, read_messages(given.check))
        with contextlib.suppress(UnsupportedError):  # ONNX Runtime takes its place
            build_on_first_use(console)
    others = {name: value for name, value in asdict(given).items() if name not in ("model", "weights", "seed")}
    written = export_artifacts(
        source,
        **others | {"renames": given.new_names},
        training=training,
        shape=model,
        on_check=on_check,
        progress=lambda stage: console.say(f"export: {stage}"),
    )
    document = inspect_artifacts(written) | {"config": config.document()}
    checked = []
    if given.check is not None:
        document["check"] = {"text": str(given.check), **evaluated}
        checked.append((f"Check on {given.check}", side_by_side(evaluated)))
        if evaluated["exported"]["perplexity_with_unknown"] > 2 * len(
            vocabulary
        ):  # an untrained model has about as many
            console.say(
                f"phonograd: warning: the model predicts {given.check} worse than chance would; are the words of "
                f"{given.vocabulary} in another order than those it was trained with?"
            )
    console.result(document, *_summary(document), *checked)


def _check_choice(given: Exporting, shape: DeclaredShape) -> None:
    if given.model is not None and (shape.given or given.weights is not None or given.seed is not None):
        raise UsageError("--model has shape and weights: leave out --preset, sizes, --weights and --seed, or it")
    if given.model is None and not shape.given:
        raise UsageError("give --model FILE, --preset NAME, or `cell`, `layers` and `hidden`: one of the three")
    if given.model is None:
        shape.require_whole()
    if given.model is None and (given.weights is None) == (given.seed is None):
        raise UsageError("give --weights FILE, or --seed N for random weights: one of the two")


@click.command()
@own_options
@output_options
def inspect(
    console: Console,
    artifacts: Annotated[Path, arg()],
    plan: Annotated[bool, "Show the native engine's plan instead: its steps in order, and its memory."] = False,
) -> None:
    """Show what is in ARTIFACTS, a folder that `phonograd export` wrote, after checking every hash."""
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
        console.say(f"operators are not listed: that needs onnx; {how_to_get_onnx()}")
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


@click.command()
@own_options
@output_options
def merge(
    console: Console,
    model: Annotated[Path, arg()],
    out: Annotated[Path, opt("Where to write the plain model.", OUTPUT)],
) -> None:
    """Add MODEL's adapters to its matrices: the same model without them, for the artifacts of an export without.

    MODEL is an artifacts folder or a tensor file, such as a later round's.
    """
    from phonograd.api.model import merge as merge_adapters

    build_on_first_use(console)
    document = {"model": str(out), **dataclasses.asdict(merge_adapters(model, out))}
    console.result(document, ("Model", [to_words(document)]))
