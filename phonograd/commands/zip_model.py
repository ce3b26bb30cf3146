"""`phonograd zip-model`: a model for an app, in one file."""

import tempfile
from pathlib import Path
from typing import Annotated

import click

from phonograd.commands.options import arg, opt, own_options
from phonograd.commands.paths import OUTPUT
from phonograd.console import Console, figures, output_options
from phonograd.device_runtime.formats.manifest import open_artifacts


@click.command("zip-model")
@own_options
@output_options
def zip_model(
    console: Console,
    artifacts: Annotated[Path, arg()],
    out: Annotated[Path, opt("Where to write the ZIP.", OUTPUT)] = Path("model.zip"),
) -> None:
    """Write what a phone needs of ARTIFACTS as a ZIP, which an app enrols its phone with.

    ONNX Runtime's copy of the weights, half of the folder, is left out.
    """
    from phonograd.android_harness.app.contents import copy_archive, write_archive
    from phonograd.android_harness.phone_artifacts import phone_artifacts

    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "model.zip"
        write_archive(built, phone_artifacts(open_artifacts(artifacts), built.parent))
        copy_archive(built, out)
    document = {"path": str(out), "bytes": out.stat().st_size}
    console.result(document, ("Model for an app", figures(document, "fact")))
