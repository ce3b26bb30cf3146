"""What a round's uploads cost by codec and output layer, by a server's ledger (paper P, Table 4)."""

import tempfile
from functools import partial
from pathlib import Path
from random import Random

from msgspec import field

import phonograd
from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.device_runtime.base.errors import TextError
from phonograd.papers.run import Context, Outcome
from phonograd.simulation.users import Messages, read_users, text_slice

_MIB, _GIB = 2.0**20, 2.0**30  # the paper's MB and GB


class Settings(Record, frozen=True):
    """phones: of a round, drawn at random, each with text_bytes of its user's text and as much rehearsal. layers: words
    drawn for the output sample, by name of the output layer; null: the full softmax.
    """

    phones: Positive
    text_bytes: Positive
    layers: dict[str, Positive | None]
    codecs: tuple[str, ...] = field(default=("full-f32", "rows-f32"))


def run(settings: Settings, context: Context) -> Outcome:
    """A round for each output layer and codec, with the same trained weights for all codecs."""
    rows: dict[str, dict[str, float]] = {}
    texts = texts_of_phones(settings, context)
    for layer, drawn in settings.layers.items():
        for codec in settings.codecs:
            context.progress(len(rows), len(settings.layers) * len(settings.codecs), f"{codec}, {layer}")
            measure = partial(_round, settings, context, texts, drawn, codec)
            rows[f"{codec}, {layer}"] = context.measure_once(f"{codec} {layer}", measure)
    manifest = phonograd.open_artifacts(context.input("artifacts")).manifest
    return Outcome(rows, {"phones a round": settings.phones, "parameters": manifest.model.parameters})


def _round(
    settings: Settings, context: Context, texts: dict[str, Messages], drawn: int | None, codec: str
) -> dict[str, float]:
    """Bytes of one round on the wire: of the requests that send updates."""
    artifacts = phonograd.open_artifacts(context.input("artifacts"))
    rules = phonograd.RoundRules(clients_per_round=settings.phones)
    server_settings = phonograd.ServerSettings(port=0, rules=rules)
    with tempfile.TemporaryDirectory(dir=context.work) as place:
        update = Path(place) / "update"
        with phonograd.start_server(artifacts, Path(place) / "state", server_settings) as server:
            for phone, messages in texts.items():
                weights, tokens = train_once(context, artifacts, phone, messages, drawn)
                phonograd.encode_update(weights, artifacts, update, tokens=tokens, codec=codec, phone=phone)
                phonograd.upload(server.admin, update, phone)
        done = phonograd.report(Path(place) / "state")["rounds"][0]
    a_phone = (done["up_body_bytes"] + done["up_header_bytes"]) / settings.phones
    return {
        "MiB a phone": a_phone / _MIB,
        "GiB for ten phones": 10 * a_phone / _GIB,
        "times smaller": done["model_ratio"],
    }


def train_once(
    context: Context, artifacts: phonograd.Artifacts, phone: str, messages: Messages, drawn: int | None
) -> tuple[Path, int]:
    """The weights that a phone trained, and on how many tokens; trained once."""
    weights = context.work / f"{phone}-{drawn}.safetensors"
    settings = phonograd.TrainSettings(
        seed=context.seed,
        output_sample=drawn,
        sample_seed=None if drawn is None else context.seed,
        options=phonograd.BackendOptions(threads=context.workers),
    )

    def train() -> dict[str, float]:
        rehearsal = context.input("rehearsal")
        done = phonograd.train(artifacts, messages, settings, rehearsal=rehearsal, out=weights)
        return {"tokens": done.report.tokens}

    return weights, int(context.measure_once(f"{phone} {drawn}", train)["tokens"])


def texts_of_phones(settings: Settings, context: Context) -> dict[str, Messages]:
    """The texts of the phones. Raises TextError if too few users have enough."""
    users = read_users(context.input("users"))
    enough = [user for user in sorted(users) if sum(map(len, users[user])) >= settings.text_bytes]
    if len(enough) < settings.phones:
        raise TextError(f"users: {settings.phones} with {settings.text_bytes} bytes expected, found {len(enough)}")
    chosen = Random(context.seed).sample(enough, settings.phones)
    return {f"phone-{place}": text_slice(users[user], settings.text_bytes, 0)[0] for place, user in enumerate(chosen)}
