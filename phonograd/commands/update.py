"""`phonograd update encode|decode|show`: the file a phone sends."""

import dataclasses
from pathlib import Path
from typing import Annotated

import click

from phonograd.commands.options import arg, opt, own_options
from phonograd.commands.paths import OUTPUT
from phonograd.commands.shared_options import CODEC, PHONE, SEED
from phonograd.console import Console, figures, output_options
from phonograd.device_runtime.base.documents import document_of
from phonograd.device_runtime.update.update_file import MAX_COUNT
from phonograd.pages import to_words

Base = Annotated[Path, "The model the phone started from: ARTIFACTS/weights.safetensors."]


@click.group()
def update() -> None:
    """Encode, decode and show updates."""


@update.command()
@own_options
@output_options
def encode(
    console: Console,
    weights: Annotated[Path, arg()],
    base: Base,
    tokens: Annotated[int, opt("Tokens the weights were trained on.", click.IntRange(1, MAX_COUNT))],
    out: Annotated[Path, opt("Where to write the update.", OUTPUT)],
    codec: Annotated[str, CODEC],
    round_number: Annotated[int, opt("The server's round.", click.IntRange(1, MAX_COUNT), name="--round")] = 1,
    phone: Annotated[str | None, PHONE] = None,
    seed: Annotated[int | None, SEED] = None,
) -> None:
    """Encode trained WEIGHTS against their base model."""
    from phonograd.api.updates import encode_update

    encoded = encode_update(
        weights, base, out, tokens=tokens, codec=codec, round_number=round_number, seed=seed, phone=phone
    )
    document = {
        "update": str(out),
        "codec": encoded.info.codec,
        "seed": encoded.info.seed,
        **dataclasses.asdict(encoded.file),
    }
    console.result(document, ("Update", [to_words(document | {"seed": str(encoded.info.seed)})]))


@update.command()
@own_options
@output_options
def decode(
    console: Console,
    update_file: Annotated[Path, arg()],
    base: Base,
    out: Annotated[Path, opt("Where to write the trained weights.", OUTPUT)],
) -> None:
    """Check UPDATE_FILE and decode it into the trained weights."""
    from phonograd.api.updates import decode_update
    from phonograd.device_runtime.formats.tensor_file import save_tensors

    written = save_tensors(out, decode_update(update_file, base))
    document = {"weights": str(out), **dataclasses.asdict(written)}
    console.result(document, ("Weights", [to_words(document)]))


@update.command()
@own_options
@output_options
def show(console: Console, update_file: Annotated[Path, arg()]) -> None:
    """Show UPDATE_FILE's metadata and parts."""
    from phonograd.device_runtime.update.update_file import UpdateFile

    with UpdateFile(update_file) as encoded:
        parts = [
            {"part": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "bytes": spec.nbytes}
            for spec in encoded.parts()
        ]
        document = {**document_of(encoded.info), "bytes": update_file.stat().st_size, "parts": parts}
    facts = {key: value for key, value in document.items() if key != "parts"} | {"seed": str(document["seed"])}
    console.result(document, (str(update_file), figures(facts)), ("Parts", parts))
