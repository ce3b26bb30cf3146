"""`phonograd eval`: how well a model predicts texts."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any

import click

from phonograd.api.model import keystrokes_saved, open_model
from phonograd.commands.connecting import connection_options
from phonograd.commands.fitting import invalid_share, warn_of_invalid, warn_of_misfit, warn_of_unknown
from phonograd.commands.native import build_on_first_use
from phonograd.commands.options import THREADS, arg, opt, own_options, refuse
from phonograd.console import Console, output_options, side_by_side
from phonograd.device_runtime.client.server_client import Connection, report_quality
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.formats.manifest import WEIGHTS as WEIGHTS_FILE
from phonograd.device_runtime.formats.manifest import Artifacts, open_artifacts
from phonograd.device_runtime.text.messages import read_messages

# Figures of an Evaluation that --server reports, what the server calls them, and their unit there.
QUALITY = {
    "perplexity": ("perplexity", 1),
    "perplexity_with_unknown": ("perplexity with unknown words", 1),
    "top1": ("top-1 (%)", 100),
    "kss": ("keystrokes saved (%)", 100),
}


@click.command("eval")
@own_options
@connection_options(required=False, owner=True)
@output_options
def evaluate(
    console: Console,
    connection: Connection | None,
    artifacts: Annotated[Path, arg()],
    texts: Annotated[tuple[Path, ...], opt("Text to evaluate on; may be repeated.", name="--text")],
    weights: Annotated[
        Path | None,
        "A later round's model, a torch state dict, or prediction weights, which are measured as `predict` uses them. "
        "[default: the folder's weights]",
    ] = None,
    kss: Annotated[bool, "Also measure keystroke savings."] = False,
    personal: Annotated[
        Path | None,
        "Also measure them with the user's own words, from a file of `phonograd personal`, which is not changed, and "
        "with those that each text adds.",
    ] = None,
    threads: Annotated[int, opt("CPU threads.", THREADS)] = BackendOptions().threads,
) -> None:
    """Measure perplexity, top-1 accuracy and keystroke savings of the model in ARTIFACTS, or of --weights, on texts.

    With --server and an administrator's token, the result is also reported to the server, for the model with these
    weights.
    """
    if connection is not None and len({path.stem for path in texts}) < len(texts):
        raise click.UsageError("--server: texts of different names expected, the figures are told apart by them")
    if personal is not None and not kss:
        refuse("expected with --kss", "personal")
    folder = open_artifacts(artifacts)
    messages = {path: read_messages(path) for path in texts}
    rows = []
    build_on_first_use(console)
    with open_model(folder, weights=weights, options=BackendOptions(threads)) as model:
        warn_of_misfit(console, model.vocabulary)
        for path, lines in messages.items():
            warn_of_invalid(console, path, invalid_share(lines))
            with console.progress("evaluating", "tokens") as show:
                result = model.evaluate(lines, kss=kss, progress=lambda *tokens, show=show: show(*tokens, ""))
            rows.append({"text": str(path), **dataclasses.asdict(result)})
        if personal is not None:
            for row, lines in zip(rows, messages.values(), strict=True):
                row["kss_personal"], row["kss_personal_without_marks"] = _with_own_words(
                    console, folder, lines, weights, personal
                )
        sha256 = model.sha256 if connection is not None else ""
    for row in rows:
        warn_of_unknown(console, Path(row["text"]), row["unknown_tokens"] / row["words"])
    unlike = len({path.name for path in messages}) == len(messages)
    names = [path.name if unlike else str(path) for path in messages]
    figures = [{figure: row[figure] for figure in row if figure != "text"} for row in rows]
    console.result(rows, ("Evaluation", side_by_side(dict(zip(names, figures, strict=True)))))
    if connection is not None:
        _report_quality(console, connection, sha256, rows)


def _with_own_words(
    console: Console, folder: Artifacts, text: list[bytes], weights: Path | None, personal: Path
) -> tuple[float, float]:
    """Keystroke savings by the predictor of these weights, or of those that are evaluated."""
    with console.progress("writing", "messages") as show:
        return keystrokes_saved(
            folder,
            text,
            weights=weights or folder.path(WEIGHTS_FILE),
            personal=personal,
            progress=lambda done, total: show(done, total, ""),
        )


def _report_quality(console: Console, connection: Connection, sha256: str, rows: list[dict[str, Any]]) -> None:
    """Tell the server what was measured of the model; a figure that is not finite is left out."""
    for row in rows:
        for name, (title, unit) in QUALITY.items():
            value = row[name]
            if isinstance(value, float) and math.isfinite(value):
                report_quality(connection, sha256, f"{title} {Path(str(row['text'])).stem}", unit * value)
    console.say(f"reported to {connection} for model {sha256[:12]}")
