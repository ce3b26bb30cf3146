"""`phonograd export` and `phonograd inspect`: the artifacts folder."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any, get_args

import click

from phonograd.commands.native import build_on_first_use
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.errors import VocabularyError
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.formats.manifest import Artifacts, Loss, LossReduction, TrainingConfig, open_artifacts
from phonograd.device_runtime.formats.model_config import LanguageModelConfig
from phonograd.device_runtime.formats.tensor_file import Array
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.export.presets import PRESETS

PATH = click.Path(path_type=Path)
DEFAULTS = TrainingConfig()


@click.command()
@click.option("--preset", type=click.Choice(list(PRESETS)), required=True, help="The model's shape.")
@click.option("--vocab", type=PATH, required=True, help="vocab.txt; its length replaces the preset's vocabulary size.")
@click.option(
    "--weights", type=PATH, help="Trained weights: a torch state dict or our own, in safetensors, f32 or f16."
)
@click.option(
    "--weights-vocab",
    type=PATH,
    help="The vocabulary that --weights was trained with, where --vocab is another: rows follow their words.",
)
@click.option("--seed", type=click.IntRange(0), help="Random weights from this seed, instead of --weights.")
@click.option(
    "--loss", type=click.Choice(get_args(Loss)), default=DEFAULTS.loss, show_default=True, help="lwf: paper P."
)
@click.option(
    "--user-share",
    type=click.FloatRange(0, 1, min_open=True),
    help=f"λ of --loss lwf.  [default: {DEFAULTS.user_share}]",
)
@click.option(
    "--loss-reduction",
    type=click.Choice(get_args(LossReduction)),
    default=DEFAULTS.loss_reduction,
    show_default=True,
    help="sum_over_time: what learning rate 0.75 and clip norm 5 apply to.",
)
@click.option(
    "--lr", "learning_rate", type=click.FloatRange(0, min_open=True), default=DEFAULTS.learning_rate, show_default=True
)
@click.option(
    "--clip-norm", type=click.FloatRange(0), default=DEFAULTS.clip_norm, show_default=True, help="0: no clipping."
)
@click.option("--dropout", type=click.FloatRange(0, 1, max_open=True), default=DEFAULTS.dropout, show_default=True)
@click.option("--minibatch", type=click.IntRange(1), default=DEFAULTS.minibatch, show_default=True)
@click.option("--bptt", type=click.IntRange(1), default=DEFAULTS.bptt, show_default=True, help="Time steps a window.")
@click.option("--overwrite", is_flag=True, help="Replace an existing folder.")
@click.option("--out", type=PATH, required=True, help="The artifacts folder to write.")
@output_options
def export(
    console: Console,
    preset: str,
    vocab: Path,
    weights: Path | None,
    weights_vocab: Path | None,
    seed: int | None,
    loss: Loss,
    user_share: float | None,
    clip_norm: float,
    overwrite: bool,
    out: Path,
    **training: Any,
) -> None:
    """Write the artifacts folder that phones train from."""
    from phonograd.export.artifacts import export_artifacts
    from phonograd.export.inspection import describe
    from phonograd.export.torch_layout import load_weights, seeded_weights
    from phonograd.export.vocabulary_import import load_vocabulary

    if (weights is None) == (seed is None):
        raise click.UsageError("give --weights FILE, or --seed N for random weights: one of the two")
    if user_share is not None and loss != "lwf":
        raise click.UsageError("--user-share belongs to --loss lwf; for rehearsal it is an option of phonograd train")
    share = DEFAULTS.user_share if user_share is None else user_share
    settings = TrainingConfig(loss=loss, user_share=share, clip_norm=clip_norm or None, **training)
    if weights_vocab is not None and weights is None:
        raise click.UsageError("--weights-vocab needs --weights, whose rows it names")
    words = load_vocabulary(vocab)
    config = dataclasses.replace(PRESETS[preset].model, vocabulary=len(words))
    if weights is None:
        tensors = seeded_weights(config, seed or 0)
    elif weights_vocab is None:
        tensors = load_weights(weights, config, words)
    else:
        tensors = _weights_by_word(weights, weights_vocab, config, words)
    written = export_artifacts(
        out,
        config,
        settings,
        tensors,
        words,
        progress=lambda stage: console.say(f"export: {stage}"),
        overwrite=overwrite,
    )
    document = describe(written)
    console.result(document, *_summary(document))


def _weights_by_word(
    weights: Path, weights_vocab: Path, config: LanguageModelConfig, words: Vocabulary
) -> dict[str, Array]:
    """Canonical weights for `words` from those trained with another vocabulary file."""
    from phonograd.export.torch_layout import load_weights
    from phonograd.export.vocabulary_import import import_vocabulary, permuted, rows_of

    source = import_vocabulary(weights_vocab)
    rows = rows_of(words, source)
    trained_with = None
    with contextlib.suppress(VocabularyError):  # weights that name their vocabulary were trained with one of ours
        trained_with = Vocabulary.load(weights_vocab)
    tensors = load_weights(weights, dataclasses.replace(config, vocabulary=source.entries), trained_with)
    return permuted(tensors, rows)


@click.command()
@click.argument("artifacts", type=PATH)
@click.option("--plan", is_flag=True, help="Instead: what the native engine runs, in order, and its memory.")
@output_options
def inspect(console: Console, artifacts: Path, plan: bool) -> None:
    """Show what an artifacts folder holds, after checking every hash."""
    from phonograd.export.inspection import describe

    folder = open_artifacts(artifacts)
    if plan:
        text = _plan(console, folder)
        console.text({"plan": text}, text)
        return
    document = describe(folder)
    tensors = [
        {
            "tensor": tensor["name"],
            "shape": list(tensor["shape"]),
            "dtype": tensor["dtype"],
            "sha256": tensor["sha256"][:12],
        }
        for tensor in document["tensors"]
    ]
    graphs = document["operators"]
    if graphs is None:
        console.say("operators are not listed: that needs onnx, of pip install 'phonograd[export]'")
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
    engine = NativeBackend.load(folder, None, BackendOptions())
    try:
        return engine.plan()
    finally:
        engine.close()


def _summary(document: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    keys = ("preset", "parameters", "weights_bytes", "folder_bytes", "weights_sha256")
    facts = {key: document[key] for key in keys} | document["model"] | document["training"]
    return [(document["folder"], [{"figure": key, "value": value} for key, value in facts.items()])]
