"""Compares a keyboard's predictor, in float32 and int8, with Model.predict: milliseconds, memory, keystroke savings."""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from phonograd.bench.contestants import Answers, Say
from phonograd.bench.markdown import MB, MS, Table, figure, model_name, text
from phonograd.bench.measuring import in_fresh_process, peak_rss_bytes
from phonograd.bench.results import Document, result_of
from phonograd.device_runtime.engine.backend import BackendOptions
from phonograd.device_runtime.engine.c_abi import load_library
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.engine.predictor import SUGGESTIONS, Predictor, write_prediction_weights
from phonograd.device_runtime.formats.manifest import PREDICTION, VOCABULARY, WEIGHTS, Artifacts, open_artifacts
from phonograd.device_runtime.formats.tensor_file import Floats
from phonograd.device_runtime.text.evaluation import Evaluation, Scorer, evaluate
from phonograd.device_runtime.text.messages import read_messages, tokenize
from phonograd.device_runtime.text.vocabulary import EOS, UNK, Ids, Vocabulary

SCHEMA_VERSION = 1
OPENINGS = 5  # of each, in a process of its own; the median counts
WARM_UP = 3  # words before those that are timed
MODEL = "Model.predict"


@dataclass(frozen=True)
class PredictBenchConfig:
    """text: to take the words from, and to measure keystroke savings on; None: random words, which savings say nothing
    of. words: how many are timed. context: words before each, which Model.predict reads again each time.
    """

    text: Path | None = None
    words: int = 100
    context: int = 15
    threads: int = 2


class WholeContext:
    """What Model.predict does: the backend scores all words after the whole context."""

    def __init__(self, artifacts: Artifacts, options: BackendOptions):
        self.backend = NativeBackend(artifacts, None, options)
        self.close = self.backend.close
        self._bptt = artifacts.manifest.training.bptt
        self._vocabulary = Vocabulary.load(artifacts.path(VOCABULARY))
        self._words = np.array(self._vocabulary.words)

    def predict(self, context: str, prefix: str = "") -> list[tuple[int, float]]:
        """Three suggestions: ids, and probabilities among all words."""
        ids = np.concatenate(([EOS], self._vocabulary.encode([context.encode()])[:-1]))
        self.backend.reset()
        for start in range(0, len(ids), self._bptt):
            scores = self.backend.logits(ids[start : start + self._bptt, np.newaxis])[-1]
        shares = np.exp(scores.astype(np.float64) - float(scores.max()))
        fitting = np.flatnonzero(np.char.startswith(self._words, prefix.encode()))
        fitting = fitting[fitting > EOS]
        best = fitting[np.argsort(-scores[fitting], kind="stable")[:SUGGESTIONS]]
        return [(int(word), shares[word] / shares.sum()) for word in best]


class PredictorScorer:
    """A predictor, as evaluation asks: tokens [T, 1], one text."""

    def __init__(self, predictor: Predictor, vocabulary: Vocabulary):
        self._predictor = predictor
        self._words = [word.decode("utf-8", "surrogateescape") for word in vocabulary.words]
        self._begun = False

    def reset(self) -> None:
        """Begin a text, with a state of zeros."""
        self._predictor.reset()
        self._begun = False

    def logits(self, tokens: Ids) -> Floats:
        """Scores [T, V] after each token."""
        rows = []
        for token in tokens[:, 0].tolist():
            if self._begun:  # the first <eos> is what a predictor begins with
                self._predictor.feed("\n" if token == EOS else self._words[token])
            self._begun = True
            rows.append(self._predictor.logits())
        return np.stack(rows)


def bench_predict(folder: Path, config: PredictBenchConfig, say: Say) -> dict[str, Any]:
    """Time each way on the same words in turn. Raises what opening the folder and the text raise.

    The result has `tokens` of the text, and of each of the `ways` to predict: word_seconds: with the word before it, to
    three suggestions among all words; ratio: the first way's median by this one's; letter_seconds: after that, to three
    suggestions with the word's first one or two letters; open_seconds: median; own_rss_bytes: peak memory of a process
    that opened it and predicted, less what it had before; kss and perplexities: None without a text.
    """
    artifacts = open_artifacts(folder)
    with tempfile.TemporaryDirectory() as place:
        say("quantizing")
        int8 = Path(place) / PREDICTION
        write_prediction_weights(artifacts.path(WEIGHTS), int8)
        files = {MODEL: artifacts.path(WEIGHTS), "predictor, float32": artifacts.path(WEIGHTS), "predictor, int8": int8}
        times, letters, quality = _measure_ways(artifacts, files, config, say)
        ways: list[Answers] = []
        for name, path in files.items():
            say(f"opening {name}")
            seconds, memory = in_fresh_process(_opening, folder, name, path, config.threads)
            found = quality.get(name)
            ways.append(
                {
                    "name": name,
                    "weight_bytes": path.stat().st_size,
                    "word_seconds": times[name],
                    "median_seconds": statistics.median(times[name]),
                    "p90_seconds": float(np.quantile(times[name], 0.9)),
                    "ratio": statistics.median(times[MODEL]) / statistics.median(times[name]),
                    "letter_seconds": statistics.median(letters[name]),
                    "open_seconds": seconds,
                    "own_rss_bytes": memory,
                    "kss": found and found.kss,
                    "perplexity": found and found.perplexity,
                    "perplexity_with_unknown": found and found.perplexity_with_unknown,
                }
            )
    return result_of(
        "predict",
        SCHEMA_VERSION,
        threads=config.threads,
        weights_sha256=artifacts.weights_sha256,
        model=artifacts.manifest.model,
        context=config.context,
        text=None if config.text is None else config.text.name,
        tokens=quality[MODEL].tokens if quality else 0,
        ways=ways,
    )


def _measure_ways(
    artifacts: Artifacts, files: Mapping[str, Path], config: PredictBenchConfig, say: Say
) -> tuple[dict[str, list[float]], dict[str, list[float]], dict[str, Evaluation]]:
    options = BackendOptions(threads=config.threads)
    vocabulary = Vocabulary.load(artifacts.path(VOCABULARY))
    quality: dict[str, Evaluation] = {}
    with contextlib.ExitStack() as resources:
        model = resources.enter_context(contextlib.closing(WholeContext(artifacts, options)))
        predictors = {
            name: resources.enter_context(Predictor(artifacts, path, options))
            for name, path in files.items()
            if name != MODEL
        }
        say(f"timing {config.words} words")
        times, letters = _times(model, predictors, _words(config, vocabulary), config)
        if config.text is not None:
            messages, bptt = read_messages(config.text), artifacts.manifest.training.bptt
            scorers: dict[str, Scorer] = {MODEL: model.backend}
            scorers |= {name: PredictorScorer(predictor, vocabulary) for name, predictor in predictors.items()}
            for name, scorer in scorers.items():
                say(f"keystroke savings of {name}")
                quality[name] = evaluate(scorer, vocabulary, messages, 1, bptt, kss=True)
    return times, letters, quality


def _words(config: PredictBenchConfig, vocabulary: Vocabulary) -> list[str]:
    count = config.context + WARM_UP + config.words
    if config.text is None:
        ids = np.random.default_rng(0).integers(2, len(vocabulary), count)
        return [vocabulary.words[word].decode("utf-8", "replace") for word in ids]
    words = [word for message in read_messages(config.text) for word in tokenize(message)]
    known = [word.decode() for word in words if vocabulary.encode([word])[0] != UNK]
    return (known * (count // max(1, len(known)) + 1))[:count]


def _times(
    model: WholeContext, predictors: Mapping[str, Predictor], words: list[str], config: PredictBenchConfig
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    times: dict[str, list[float]] = {name: [] for name in (MODEL, *predictors)}
    letters: dict[str, list[float]] = {name: [] for name in times}
    for predictor in predictors.values():
        predictor.feed(" ".join(words[: config.context]))
    for at in range(config.context, len(words)):
        context, prefix = " ".join(words[at - config.context + 1 : at + 1]), _next_letters(words, at)
        for name, (by_word, by_letter) in _ways(model, predictors, words[at], context, prefix).items():
            for taken, work in ((times, by_word), (letters, by_letter)):
                began = time.perf_counter()
                work()
                if at >= config.context + WARM_UP:
                    taken[name].append(time.perf_counter() - began)
    return times, letters


def _next_letters(words: list[str], at: int) -> str:
    return words[(at + 1) % len(words)][: 1 + at % 2]


def _ways(
    model: WholeContext, predictors: Mapping[str, Predictor], word: str, context: str, prefix: str
) -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    def feed_word(predictor: Predictor) -> None:
        predictor.feed(word)
        predictor.suggest()

    ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        MODEL: (lambda: model.predict(context), lambda: model.predict(context, prefix))
    }
    for name, predictor in predictors.items():
        ways[name] = (lambda one=predictor: feed_word(one), lambda one=predictor: one.suggest(prefix))  # type: ignore[misc]
    return ways


def _opening(folder: Path, name: str, weights: Path, threads: int) -> tuple[float, int]:
    artifacts, options = open_artifacts(folder, verify=False), BackendOptions(threads=threads)
    load_library()
    before = peak_rss_bytes()
    seconds = []
    for _ in range(OPENINGS):
        began = time.perf_counter()
        if name == MODEL:
            with contextlib.closing(WholeContext(artifacts, options)) as model:
                seconds.append(time.perf_counter() - began)
                model.predict("a b c")
        else:
            with Predictor(artifacts, weights, options) as predictor:
                seconds.append(time.perf_counter() - began)
                predictor.feed("a b c")
                predictor.suggest()
    return statistics.median(seconds), peak_rss_bytes() - before


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results."""
    ways = document["ways"]
    quality = (
        f"Keystroke savings and perplexity on {document['tokens']:,} tokens of {document['text']}, read as one text."
        if document["text"]
        else "Without a text, words are random."
    )
    yield f"A prediction: {model_name(document['model'])}"
    yield (
        f"From a word to three suggestions for the next one, median of {len(ways[0]['word_seconds'])} words; the ways "
        f"take turns. Model.predict reads the last {document['context']} words each time, a predictor only the new "
        "one. A letter: three suggestions for the first one or two letters of that word. Own memory: peak, mapped "
        f"weights included, without the interpreter. {quality}"
    )
    columns = {
        "way": text("name"),
        "ms a word": figure("median_seconds", ".2f", MS),
        "p90": figure("p90_seconds", ".2f", MS),
        "times faster": figure("ratio", ".1f"),
        "ms a letter": figure("letter_seconds", ".3f", MS),
        "ms to open": figure("open_seconds", ".0f", MS),
        "own memory, MB": figure("own_rss_bytes", ".0f", MB),
        "weights, MB": figure("weight_bytes", ".0f", MB),
        "KSS": figure("kss", ".1%"),
        "perplexity": figure("perplexity", ".2f"),
        "with unknown words": figure("perplexity_with_unknown", ".2f"),
    }
    yield Table("From a word to three suggestions for the next", columns, ways)
