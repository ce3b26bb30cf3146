"""What a round's uploads cost by codec and output layer, by a server's ledger (paper P, Table 4)."""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import field

import phonograd
from phonograd.device_runtime.base.documents import Positive, Record
from phonograd.papers.kinds.one_node import draw_users
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


class Phone(NamedTuple):
    """A phone that trained: its weights, and the tokens that they are of."""

    name: str
    weights: Path
    tokens: int


def run(settings: Settings, context: Context) -> Outcome:
    """A round for each output layer and codec, with the same trained weights for all codecs."""
    artifacts = phonograd.open_artifacts(context.input("artifacts"))
    rows: dict[str, dict[str, float]] = {}
    for layer in settings.layers:
        phones = train_phones(settings, context, artifacts, layer)
        for codec in settings.codecs:
            context.progress(len(rows), len(settings.layers) * len(settings.codecs), f"{codec}, {layer}")
            measure = partial(_round, context.work, artifacts, phones, codec)
            rows[f"{codec}, {layer}"] = context.measure_once(f"{codec} {layer}", measure)
    return Outcome(rows, {"phones a round": settings.phones, "parameters": artifacts.manifest.model.parameters})


def _round(work: Path, artifacts: phonograd.Artifacts, phones: Sequence[Phone], codec: str) -> dict[str, float]:
    """Bytes of one round on the wire: of the requests that send updates."""
    rules = phonograd.RoundRules(clients_per_round=len(phones))
    with tempfile.TemporaryDirectory(dir=work) as place:
        state, update = Path(place) / "state", Path(place) / "update"
        with phonograd.start_server(artifacts, state, phonograd.ServerSettings(port=0, rules=rules)) as server:
            for phone in phones:
                encode(phone, artifacts, update, codec)
                phonograd.upload(server.admin, update, phone.name)
        done = phonograd.report(state)["rounds"][0]
    a_phone = (done["up_body_bytes"] + done["up_header_bytes"]) / len(phones)
    return {
        "MiB a phone": a_phone / _MIB,
        "GiB for ten phones": 10 * a_phone / _GIB,
        "times smaller": done["model_ratio"],
    }


def train_phones(settings: Settings, context: Context, artifacts: phonograd.Artifacts, layer: str) -> list[Phone]:
    """Train the phones with an output layer, each once. Raises TextError if too few users have enough text."""
    drawn = settings.layers[layer]
    training = phonograd.TrainSettings(
        seed=context.seed,
        output_sample=drawn,
        sample_seed=None if drawn is None else context.seed,
        options=phonograd.BackendOptions(threads=context.workers),
    )

    def train(messages: Messages, out: Path) -> dict[str, int]:
        done = phonograd.train(artifacts, messages, training, rehearsal=context.input("rehearsal"), out=out)
        return {"tokens": done.report.tokens}

    users, phones = read_users(context.input("users")), []
    for place, user in enumerate(draw_users(users, settings.phones, settings.text_bytes, context.seed)):
        context.progress(place, settings.phones, f"{layer} output layer")
        name, out = f"phone-{place}", context.work / f"phone-{place}-{drawn}.safetensors"
        messages, _ = text_slice(users[user], settings.text_bytes, 0)
        done = context.measure_once(f"{name} {drawn}", partial(train, messages, out))
        phones.append(Phone(name, out, done["tokens"]))
    return phones


def encode(phone: Phone, artifacts: phonograd.Artifacts, update: Path, codec: str) -> None:
    """Write what a phone trained to a file, as an update."""
    phonograd.encode_update(phone.weights, artifacts, update, tokens=phone.tokens, codec=codec, phone=phone.name)
