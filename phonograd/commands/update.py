"""`phonograd update encode|decode|show`: the file a phone sends."""

import dataclasses
from pathlib import Path

import click

from phonograd.commands.paths import INPUT, OUTPUT
from phonograd.commands.shared_options import codec_option, require_one_seed, seed_options
from phonograd.console import Console, output_options
from phonograd.device_runtime.base.documents import written
from phonograd.device_runtime.update.update_file import MAX_COUNT

base_option = click.option(
    "--base", type=INPUT, required=True, help="The model the phone started from: ARTIFACTS/weights.safetensors."
)
round_option = click.option(
    "--round", "round_number", type=click.IntRange(1, MAX_COUNT), default=1, help="The server's round."
)


@click.group()
def update() -> None:
    """Encode, decode and show updates."""


@update.command()
@click.argument("weights", type=INPUT)
@base_option
@click.option("--tokens", type=click.IntRange(1, MAX_COUNT), required=True, help="Tokens the weights were trained on.")
@codec_option
@round_option
@seed_options
@click.option("--out", type=OUTPUT, required=True, help="Where to write the update.")
@output_options
def encode(
    console: Console,
    weights: Path,
    base: Path,
    tokens: int,
    codec: str,
    round_number: int,
    phone: str | None,
    seed: int | None,
    out: Path,
) -> None:
    """Encode trained WEIGHTS against their base model."""
    from phonograd.api.updates import encode_update

    require_one_seed(seed, phone)
    encoded = encode_update(
        weights, base, out, tokens=tokens, codec=codec, round_number=round_number, seed=seed, phone=phone
    )
    document = {"update": str(out), "codec": codec, "seed": encoded.info.seed, **dataclasses.asdict(encoded.file)}
    console.result(document, ("Update", [document]))


@update.command()
@click.argument("update_file", type=INPUT)
@base_option
@click.option("--out", type=OUTPUT, required=True, help="Where to write the trained weights.")
@output_options
def decode(console: Console, update_file: Path, base: Path, out: Path) -> None:
    """Check UPDATE_FILE and decode it into the trained weights."""
    from phonograd.api.updates import decode_update
    from phonograd.device_runtime.formats.tensor_file import save_tensors

    written = save_tensors(out, decode_update(update_file, base))
    document = {"weights": str(out), **dataclasses.asdict(written)}
    console.result(document, ("Weights", [document]))


@update.command()
@click.argument("update_file", type=INPUT)
@output_options
def show(console: Console, update_file: Path) -> None:
    """Show UPDATE_FILE's metadata and parts."""
    from phonograd.device_runtime.update.update_file import UpdateFile

    with UpdateFile(update_file) as encoded:
        parts = [
            {"part": spec.name, "dtype": spec.dtype, "shape": list(spec.shape), "bytes": spec.nbytes}
            for spec in encoded.parts()
        ]
        document = {**written(encoded.info), "bytes": update_file.stat().st_size, "parts": parts}
    facts = [{"figure": key, "value": value} for key, value in document.items() if key != "parts"]
    console.result(document, (str(update_file), facts), ("Parts", parts))
