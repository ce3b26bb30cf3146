"""Compares the codecs: bytes, seconds, and perplexity after a round whose updates were encoded and averaged."""

import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.contestants import Answers, Say
from phonograd.bench.markdown import MB, Column, Row, Table, figure, model_name, text
from phonograd.bench.results import Document, result_of
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import (
    MANIFEST,
    VOCABULARY,
    WEIGHTS,
    Artifacts,
    open_artifacts,
)
from phonograd.device_runtime.formats.tensor_file import (
    Array,
    TensorFile,
    load_tensors,
    save_tensors,
    write_tensor_file,
)
from phonograd.device_runtime.text.evaluation import Evaluation, evaluate
from phonograd.device_runtime.text.messages import read_messages
from phonograd.device_runtime.text.vocabulary import Vocabulary
from phonograd.device_runtime.training.round import Round, RoundSettings
from phonograd.device_runtime.update.update_file import DecodedUpdate, UpdateFile, UpdateInfo, write_update
from phonograd.server_agg.aggregation.fold import Fold

SCHEMA_VERSION = 1
MOVED_EMBEDDINGS, STEP = 20, 1e-3  # of random deltas: one embedding row in that many, and their standard deviation


@dataclass(frozen=True)
class UploadBenchConfig:
    """users: a text for each phone, trained on with as much of `rehearsal`; without texts, `phones` get random deltas.

    tests: texts that perplexity is of, before the round and after it in each codec.
    """

    codecs: tuple[str, ...]
    users: tuple[Path, ...] = ()
    rehearsal: Path | None = None
    tests: tuple[Path, ...] = ()
    phones: int = 2
    threads: int = 2


@dataclass(frozen=True)
class _Phone:
    weights: Path
    tokens: int
    seed: int


def bench_upload(folder: Path, config: UploadBenchConfig, say: Say = str) -> dict[str, Any]:
    """Train the phones once, then encode, decode, average and evaluate with each codec, with one phone in memory.

    The result has perplexities of the base model, `before`. Raises what training, codecs and evaluation raise.
    """
    artifacts = open_artifacts(folder)
    base = artifacts.path(WEIGHTS)
    with tempfile.TemporaryDirectory() as place:
        phones = list(_phones(artifacts, config, Path(place), say))
        models = _Models(artifacts, config)
        before = models.evaluations(base, artifacts.weights_sha256)
        costs: list[Answers] = []
        for codec in config.codecs:
            say(f"{codec}: {len(phones)} phones")
            first = costs[0]["perplexities"] if costs else None
            costs.append(_cost(artifacts, codec, phones, Path(place), models, first))
    return result_of(
        "upload",
        SCHEMA_VERSION,
        threads=config.threads,
        manifest_sha256=sha256_of_file(folder / MANIFEST),
        weights_sha256=artifacts.weights_sha256,
        model=artifacts.manifest.model,
        weight_bytes=4 * artifacts.manifest.model.parameters,
        phones=len(phones),
        trained=bool(config.users),
        before=_without_unknown(before),
        before_with_unknown=_with_unknown(before),
        codecs=costs,
    )


def _phones(artifacts: Artifacts, config: UploadBenchConfig, place: Path, say: Say) -> Iterator[_Phone]:
    for number in range(1, (len(config.users) or config.phones) + 1):
        path = place / f"phone-{number}.safetensors"
        if config.users:
            say(f"training on {config.users[number - 1].name}")
            tokens = _train(artifacts, config, config.users[number - 1], number, path)
        else:
            tokens = 1
            save_tensors(path, _moved_at_random(artifacts, number))
        yield _Phone(path, tokens, number)


def _train(artifacts: Artifacts, config: UploadBenchConfig, user: Path, seed: int, out: Path) -> int:
    """Tokens of a user's text and its rehearsal, which the weights at `out` are trained on."""
    options = BackendOptions(config.threads)
    settings = RoundSettings(
        folder=artifacts.folder, user=user, rehearsal=config.rehearsal, seed=seed, out=out, options=options
    )
    with Round(settings) as round_:
        return round_.train().report.tokens


def _moved_at_random(artifacts: Artifacts, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    weights = load_tensors(artifacts.path(WEIGHTS))
    for name, array in weights.items():
        moved = array[seed::MOVED_EMBEDDINGS] if name == "embedding.weight" else array
        moved += random.normal(scale=STEP, size=moved.shape).astype(np.float32)
    return weights


def _cost(
    artifacts: Artifacts,
    codec: str,
    phones: Sequence[_Phone],
    place: Path,
    models: "_Models",
    first: Mapping[str, float] | None,
) -> Answers:
    """One codec's round.

    bytes: of an update, mean over phones; ratio: the model's weights by that; encode_seconds: with writing the file,
    decode_seconds: with checking it as a server does, both median over phones; perplexities: of the averaged model, by
    text, without unknown words and with them; change: those without less the first codec's, relative.
    """
    sizes, encoding, decoding = [], [], []
    path, sha256 = place / "update", artifacts.weights_sha256
    with TensorFile(artifacts.path(WEIGHTS)) as base:
        fold = Fold(base, sha256)
        for phone in phones:
            trained = load_tensors(phone.weights)
            began = time.perf_counter()
            info = UpdateInfo(sha256, 1, phone.tokens, codec, phone.seed)
            written = write_update(path, base, trained, info)
            encoding.append(time.perf_counter() - began)
            sizes.append(written.nbytes)
            with UpdateFile(path) as update:
                began = time.perf_counter()
                update.check(base, sha256)
                decoding.append(time.perf_counter() - began)
                with DecodedUpdate(update, base) as decoded:
                    fold.accumulate(decoded, 1)
        average = write_tensor_file(place / "average", base.specs.values(), fold.finish(), {})
    evaluations = models.evaluations(place / "average", average.sha256)
    perplexities = _without_unknown(evaluations)
    mean = statistics.mean(sizes)
    return {
        "codec": codec,
        "bytes": mean,
        "ratio": 4 * artifacts.manifest.model.parameters / mean,
        "encode_seconds": statistics.median(encoding),
        "decode_seconds": statistics.median(decoding),
        "perplexities": perplexities,
        "perplexities_with_unknown": _with_unknown(evaluations),
        "change": {text: value / (first or perplexities)[text] - 1 for text, value in perplexities.items()},
    }


def _without_unknown(evaluations: Mapping[str, Evaluation]) -> dict[str, float]:
    return {text: one.perplexity for text, one in evaluations.items()}


def _with_unknown(evaluations: Mapping[str, Evaluation]) -> dict[str, float]:
    return {text: one.perplexity_with_unknown for text, one in evaluations.items()}


class _Models:
    """Evaluations of models on the tests; the same model, as of a lossless codec, is measured once."""

    def __init__(self, artifacts: Artifacts, config: UploadBenchConfig):
        self._artifacts = artifacts
        self._config = config
        self._known: dict[str, dict[str, Evaluation]] = {}

    def evaluations(self, weights: Path, sha256: str) -> dict[str, Evaluation]:
        """Evaluate each text; by its name."""
        if sha256 not in self._known:
            self._known[sha256] = self._measure(weights)
        return self._known[sha256]

    def _measure(self, weights: Path) -> dict[str, Evaluation]:
        if not self._config.tests:
            return {}
        manifest = self._artifacts.manifest
        training = manifest.training
        vocabulary = Vocabulary.load(self._artifacts.path(VOCABULARY), manifest.model.vocabulary)
        backend = NativeBackend(self._artifacts, weights, BackendOptions(self._config.threads))
        try:
            return {
                name: evaluate(backend, vocabulary, read_messages(path), training.minibatch, training.bptt)
                for name, path in _unique_names(self._config.tests)
            }
        finally:
            backend.close()


def _unique_names(texts: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Files by their names without a suffix, numbered from the second of a name."""
    times: dict[str, int] = {}
    for path in texts:
        times[path.stem] = times.get(path.stem, 0) + 1
        yield path.stem if times[path.stem] == 1 else f"{path.stem} {times[path.stem]}", path


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results."""
    deltas = "each trained on its own text" if document["trained"] else "with random deltas"
    yield f"An upload: {model_name(document['model'])}"
    yield (
        f"{document['phones']} phones, {deltas}: the mean size of an update, how many times smaller it is than the "
        f"{document['weight_bytes'] / MB:.1f} MB of weights, median seconds to encode and write it and to decode "
        "and check it, and the perplexity of the averaged model with its change from the first codec's."
    )
    with_unknown = document.get("before_with_unknown", {})  # older results have none

    def perplexity(test: str) -> Column:
        def format_cell(one: Row) -> str:
            change = f" ({one['change'][test]:+.2%})" if "change" in one else ""
            return f"{one['perplexities'][test]:.2f}{change}"

        return Column(format_cell, ">")

    columns = {
        "codec": text("codec"),
        "MB": figure("bytes", ".3f", MB),
        "times smaller": figure("ratio", ".1f"),
        "encode, s": figure("encode_seconds", ".2f"),
        "decode, s": figure("decode_seconds", ".2f"),
        **{test: perplexity(test) for test in document["before"]},
    }
    for test in with_unknown:
        columns[f"{test}, with `<unk>`"] = Column(
            lambda one, test=test: one["perplexities_with_unknown"][test],  # type: ignore[misc]
            ".2f",
        )
    perplexities = {"perplexities": document["before"], "perplexities_with_unknown": with_unknown}
    before = {"codec": "before the round", **perplexities}
    yield Table(f"An update of each of {document['phones']} phones", columns, [*document["codecs"], before])
