"""Adjacent sets of users: the models that two rounds make which differ by one phone."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt

from phonograd.device_runtime.base.documents import about
from phonograd.device_runtime.base.errors import TextError, TrainingError
from phonograd.device_runtime.base.files import sha256_of_file
from phonograd.device_runtime.base.random_words import SplitMix64, stream_of
from phonograd.device_runtime.base.settings import Count, Settings
from phonograd.device_runtime.base.system import usable_cores
from phonograd.device_runtime.engine.backend import MAX_THREADS, BackendOptions
from phonograd.device_runtime.engine.native import NativeBackend
from phonograd.device_runtime.formats.manifest import WEIGHTS, Artifacts
from phonograd.device_runtime.text.sampling import draw_texts, log_likelihoods
from phonograd.server_agg.aggregation.next_model import ModelFiles
from phonograd.simulation.empirical.tail import Tail, fit_tail
from phonograd.simulation.phone import PhoneJob
from phonograd.simulation.server import Arrival, close_round
from phonograd.simulation.settings import SimulationSettings
from phonograd.simulation.users import Messages, least_tokens, text_slice
from phonograd.simulation.workers import Workers, start_workers


class PrivacySettings(Settings, frozen=True):
    """An empirical measurement of privacy (paper P: 20 pairs, 30,000 texts of 10 words).

    simulation: how phones train and the server averages; a set has `clients_per_round` users, of which one differs.
    Rounds, evaluation and unreliable phones have no meaning here.
    """

    pairs: Annotated[Count, about("Pairs of adjacent sets.")] = 20
    texts: Annotated[Count, about("Texts drawn from each model of a pair.")] = 30_000
    words: Annotated[Count, about("Words of a text.")] = 10
    simulation: SimulationSettings = SimulationSettings()


@dataclass(frozen=True)
class Pair:
    """A pair of adjacent sets in one direction: texts come from the model of the set with `user`, the other set has
    `other` instead. tail: of the likelihood ratio; log_ratios: log c of all texts, [n].
    """

    user: str
    other: str
    tail: Tail
    log_ratios: npt.NDArray[np.float64] = field(compare=False, repr=False)


def measure_pairs(
    artifacts: Artifacts,
    users: dict[str, Messages],
    rehearsal: Messages,
    settings: PrivacySettings,
    workers: int,
    progress: Callable[[int, int], None] | None = None,
    numbers: Sequence[int] | None = None,
    weights: Path | None = None,
) -> Iterator[Pair]:
    """Measure one pair after the other, or those of some `numbers` from 0, each in one direction and then the other.

    The two users that differ follow from a pair's number and the seed, whatever the size of a set. progress hears
    (pairs done, pairs in all). weights: the model that phones train, None for the artifacts' own. Raises TextError for
    too few users, TrainingError if training diverges or both models of a pair are the same.
    """
    simulation = settings.simulation
    K = simulation.clients_per_round
    if len(users) <= K:
        raise TextError(f"users: more than {K} with enough text expected (`clients_per_round`), found {len(users)}")
    base = weights or artifacts.path(WEIGHTS)
    sha256 = artifacts.weights_sha256 if weights is None else sha256_of_file(weights)
    least = least_tokens(artifacts.manifest.training, simulation.user_share, rehearsal)
    with start_workers(workers, artifacts, rehearsal, simulation) as phones:
        for number in range(settings.pairs) if numbers is None else numbers:
            names = sorted(users)
            SplitMix64(stream_of(simulation.seed, f"pair {number}")).shuffle(names)
            chosen = names[: K + 1]
            with tempfile.TemporaryDirectory(prefix="phonograd-privacy-") as folder:
                texts = {user: text_slice(users[user], simulation.text_bytes, 0, least)[0] for user in chosen}
                models = _adjacent_models(phones, base, sha256, texts, len(users), simulation, Path(folder))
                for place in (0, 1):
                    seed = stream_of(simulation.seed, f"texts {number}, {place}")
                    ratios = _log_ratios(artifacts, models[place], models[1 - place], settings, seed)
                    yield Pair(chosen[place], chosen[1 - place], fit_tail(ratios), ratios)
            if progress is not None:
                progress(number + 1, settings.pairs)


def _adjacent_models(
    phones: Workers,
    weights: Path,
    sha256: str,
    texts: dict[str, Messages],
    population: int,
    settings: SimulationSettings,
    folder: Path,
) -> tuple[Path, Path]:
    """The models of all users of `texts` but the second, and of all but the first; their phones train once."""
    chosen = list(texts)
    base = ModelFiles(weights)
    paths = {user: folder / f"{place}.safetensors" for place, user in enumerate(chosen)}
    seeds = SplitMix64(stream_of(settings.seed, "output samples"))
    jobs = [
        PhoneJob(user, messages, 1, base.weights, sha256, seeds.next(), paths[user]) for user, messages in texts.items()
    ]
    results = {result.user: result for result in phones.train(jobs)}
    for result in results.values():
        if result.diverged:
            raise TrainingError(f"user {result.user}: {result.diverged}")
    models = []
    for name, members in (("first", [chosen[0], *chosen[2:]]), ("second", chosen[1:])):
        arrivals = [Arrival(user, paths[user], results[user].sha256) for user in members]
        files = ModelFiles(folder / f"{name}.safetensors", folder / f"{name}.optimizer.safetensors")
        if close_round(settings.strategy, 1, base, sha256, arrivals, files, population).published is None:
            raise TrainingError("the strategy needs more updates than `clients_per_round`")
        models.append(files.weights)
    return models[0], models[1]


def _log_ratios(
    artifacts: Artifacts, first: Path, second: Path, settings: PrivacySettings, seed: int
) -> npt.NDArray[np.float64]:
    options = BackendOptions(threads=min(usable_cores(), MAX_THREADS))
    V = artifacts.manifest.model.vocabulary
    with NativeBackend(artifacts, first, options) as model:
        texts = draw_texts(model, V, settings.texts, settings.words, seed)
    with NativeBackend(artifacts, second, options) as model:
        return texts.log_likelihoods - log_likelihoods(model, V, texts.ids)
