"""The checks of the self-test. Each returns whole numbers, texts and hashes, which are the same on every machine, and
floats, which are so up to rounding; golden.json has them by the check's name.
"""

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.api.model import evaluate, open_predictor, quantize
from phonograd.api.rounds import join_round, pull
from phonograd.api.serving import start_server
from phonograd.api.training import TrainSettings, train
from phonograd.api.updates import decode_update, encode_update, fold_updates
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.client.masked_round import take_part
from phonograd.device_runtime.engine.backend import BackendOptions, Precision
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import VOCABULARY, WEIGHTS
from phonograd.device_runtime.formats.tensor_file import TensorFile, load_tensors, save_tensors
from phonograd.device_runtime.masked.phone import MaskedPhone, PhoneMasking, certify, new_identity
from phonograd.device_runtime.text.messages import split_messages, tokenize
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.text.windows import windows
from phonograd.device_runtime.update.codecs import CODECS
from phonograd.device_runtime.update.links import pull_links, write_lossless_link, write_lossy_link
from phonograd.selftest.pieces import MODELS, TRICKY, artifacts_of, change_weights, digest, windows_of, words
from phonograd.server_agg.settings.masked import MaskedSettings
from phonograd.server_agg.settings.rules import RoundRules
from phonograd.server_agg.settings.server import ServerSettings

THREADS, RATE = (1, 2, 3), 0.5
# Relative differences: of fp32; of bf16, and of rounds, in which rounding is drawn by chance.
ROUNDING, COARSE = 1e-4, 1e-2
MASKED_PHONES = 3  # the fewest of a masked round
POLL_SECONDS, CLOSING_SECONDS = 0.05, 60.0


@dataclass(frozen=True)
class Check:
    """One check. golden: the name of its result; rounding: by how much floats may differ from it, relative."""

    area: str
    name: str
    golden: str
    compute: Callable[[], Any]
    rounding: float = ROUNDING


class WrongResultError(Exception):
    """A result that contradicts another one of this machine."""


def all_checks(library: dict[str, Any]) -> list[Check]:
    """The checks of a library with this `cpu_info`."""
    checks = [_steps(model, kernels, "fp32") for model in MODELS for kernels in library["kernels"]]
    checks += [_steps(model, None, "bf16-emulated") for model in MODELS]
    if library["bf16"]:
        checks += [_steps(model, None, "bf16") for model in MODELS]
    return [
        *checks,
        Check("text", "tokens and windows", "text", text),
        Check("text", "evaluation", "evaluation", evaluation),
        *(Check("codecs", codec, f"codec {codec}", partial(_in_folder, update, codec)) for codec in CODECS),
        Check("codecs", "average of updates", "fold", partial(_in_folder, fold)),
        *(
            Check("links", codec, f"link {codec}", partial(_in_folder, link, codec))
            for codec in ("rows-f32", "top-rows")
        ),
        Check("predictor", "fp32", "predictor fp32", partial(_in_folder, predictor, False)),
        Check("predictor", "int8", "predictor int8", partial(_in_folder, predictor, True)),
        Check("round", "two phones and a server", "round", partial(_in_folder, whole_round, None), COARSE),
        Check("round", "certificate", "certificate", partial(_in_folder, certificate)),
        Check("round", "masked, three phones", "masked round", partial(_in_folder, masked_round), COARSE),
    ]


def _steps(model: str, kernels: str | None, precision: Precision) -> Check:
    name = " ".join(filter(None, (model, kernels, precision)))
    rounding = ROUNDING if precision == "fp32" else COARSE
    golden = f"{model} {precision.removesuffix('-emulated')}"
    return Check("engine", name, golden, partial(steps, model, kernels, precision), rounding)


def _in_folder(check: Callable[..., Any], *arguments: object) -> Any:
    with tempfile.TemporaryDirectory(prefix="phonograd-selftest-") as folder:
        return check(Path(folder), *arguments)


def steps(model: str, kernels: str | None, precision: Precision) -> Any:
    """Losses of training steps, and how far each tensor moved; the same bits for any number of threads."""
    artifacts = artifacts_of(model)
    first = load_tensors(artifacts.path(WEIGHTS))
    runs = []
    for threads in THREADS:
        options = BackendOptions(threads=threads, seed=9, precision=precision, kernels=kernels)
        with NativeBackend(artifacts, None, options) as engine:
            losses = [engine.step(window, RATE) for window in windows_of(artifacts)]
            runs.append((losses, engine.weights()))
    (losses, last), *others = runs
    if any(other != losses or digest(*weights.values()) != digest(*last.values()) for other, weights in others):
        raise WrongResultError(f"other bits with {' or '.join(map(str, THREADS[1:]))} threads than with 1")
    moved = {name: float(np.linalg.norm((last[name] - first[name]).astype(float))) for name in first}
    return {"losses": losses, "moved": moved}


def text() -> Any:
    """Messages, tokens, ids and windows of a text that tries the rules."""
    artifacts = artifacts_of(MODELS[0])
    messages = split_messages(TRICKY)
    ids = Vocabulary.load(artifacts.path(VOCABULARY)).encode(messages)
    parts = [part for one in windows(ids, 2, 5) for part in (one.tokens, one.targets)]
    tokens = [[token.decode("utf-8", "backslashreplace") for token in tokenize(message)] for message in messages]
    return {"tokens": tokens, "ids": ids.tolist(), "windows": digest(*parts)}


def evaluation() -> Any:
    """Perplexity, accuracy and keystroke savings."""
    return vars(evaluate(artifacts_of(MODELS[0]), words(300, 1), kss=True))


def update(folder: Path, codec: str) -> Any:
    """The bytes of an update, and the weights that it stands for."""
    artifacts = artifacts_of(MODELS[0])
    made = encode_update(change_weights(artifacts, 1), artifacts, folder / "update", tokens=60, codec=codec, seed=7)
    decoded = decode_update(folder / "update", artifacts)
    return {"nbytes": made.file.nbytes, "sha256": made.file.sha256, "decoded": digest(*decoded.values())}


def fold(folder: Path) -> Any:
    """The average of a lossless update and a quantised one."""
    artifacts = artifacts_of(MODELS[0])
    paths = [folder / codec for codec in ("rows-f32", "delta-int8")]
    for number, path in enumerate(paths, 1):
        encode_update(
            change_weights(artifacts, number), artifacts, path, tokens=60 * number, codec=path.name, seed=number
        )
    return fold_updates(paths, artifacts, folder / "next").sha256


def link(folder: Path, codec: str) -> Any:
    """The bytes of a link, and that a phone comes to the model that it leads to."""
    artifacts = artifacts_of(MODELS[0])
    base_path, model_path, link_path, result = (folder / name for name in ("base", "model", "link", "result"))
    base_path.write_bytes(artifacts.path(WEIGHTS).read_bytes())
    model_sha256 = save_tensors(model_path, change_weights(artifacts, 1), {"round": "1"}).sha256
    base_sha256 = sha256_of_file(base_path)
    with TensorFile(base_path) as base, TensorFile(model_path) as model:
        if codec == "rows-f32":
            written = write_lossless_link(link_path, base, base_sha256, model, model_sha256)
        else:
            written, led = write_lossy_link(link_path, result, base, base_sha256, model, None, 40, 4)
            model_sha256 = led.sha256
    pull_links(link_path, base_path, base_path, model_sha256)
    return {"link": written.sha256, "model": sha256_of_file(base_path)}


def predictor(folder: Path, int8: bool) -> Any:
    """Suggestions; from int8 weights also their bytes and those of all scores."""
    artifacts = artifacts_of(MODELS[0])
    weights = quantize(artifacts, folder / "int8") if int8 else None
    found: dict[str, Any] = {"file": weights and weights.sha256, "words": []}
    with open_predictor(artifacts, weights=folder / "int8" if int8 else None) as opened:
        for message in words(24, 2):
            opened.feed(message.decode())
            found["words"].append([[one.word, one.probability] for one in opened.suggest()])
        found["scores"] = digest(opened.logits()) if int8 else None
    return found


def whole_round(folder: Path, masked: MaskedSettings | None) -> Any:
    """Phones join a server's round over loopback, train and send; one of them follows the model that it publishes."""
    artifacts = artifacts_of(MODELS[0])
    phones = MASKED_PHONES if masked else 2
    rules = RoundRules(clients_per_round=phones, publish="top-rows", publish_rows=20)
    with start_server(artifacts, folder / "server", ServerSettings(port=0, rules=rules, masked=masked)) as server:

        def phone(number: int) -> int:
            name = f"phone-{number}"
            sent, joined = folder / f"{name}.update", join_round(server.url, artifacts, name, cache=folder / name)
            masking_settings = joined.opened.masked
            settings = TrainSettings(phone=name, codec="rot-q4", masked=masking_settings)
            done = train(artifacts, words(120, number), settings, update=sent)
            if masking_settings is None:
                joined.send(sent)
                return done.report.tokens
            masking = PhoneMasking(state=folder / f"{name}.state", identity=folder / f"{name}.key", min_cohort=phones)
            new_identity(masking.identity)
            with MaskedPhone(masking, name, sent, joined.opened.round) as part:
                take_part(server.url, part, joined.send, sleep=lambda _: time.sleep(POLL_SECONDS))
            return done.report.tokens

        with ThreadPoolExecutor(phones) as pool:
            tokens = list(pool.map(phone, range(phones)))
        late = time.monotonic() + CLOSING_SECONDS
        while server.current.round == 1 and time.monotonic() < late:
            time.sleep(POLL_SECONDS)
        model, current = folder / "model", server.current
        model.write_bytes(artifacts.path(WEIGHTS).read_bytes())
        pulled = pull(server.url, model, phone="phone-0")
    if current.round == 1 or sha256_of_file(model) != current.base_sha256:
        raise WrongResultError("a phone that followed the server's link has another model than the server")
    quality = evaluate(artifacts, words(300, 1), weights=model)
    return {"tokens": tokens, "links": pulled.links, "perplexity": quality.perplexity}


def masked_round(folder: Path) -> Any:
    """The same, with updates that the server sees the sum of alone."""
    return whole_round(folder, MaskedSettings(cohort=MASKED_PHONES, min_cohort=MASKED_PHONES, weight_cap=200))


def certificate(folder: Path) -> Any:
    """A signature by a key that is known."""
    key = folder / "vendor"
    key.touch(mode=0o600)
    key.write_text(f"phonograd-key-1 {bytes(range(32)).hex()}\n")
    return certify(key, "phone-1", "5a" * 32)
