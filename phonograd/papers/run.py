"""Runs an experiment: its kind, once for each seed; finished parts are kept on disk, so that a killed run resumes."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import phonograd
from phonograd.bench.environment import this_commit, this_environment
from phonograd.device_runtime.base.documents import FieldError, Record, document_of, read
from phonograd.device_runtime.base.errors import ArtifactsError, StateError, UsageError
from phonograd.device_runtime.base.files import sha256_of_file, storage_errors, write_bytes
from phonograd.papers.arms import require_true
from phonograd.papers.experiment import Experiment, Rows, flag, load
from phonograd.papers.result import Result
from phonograd.papers.small import SmallInputs

# Called with (parts done, parts in all, what is running).
Progress = Callable[[int, int, str], None]
Figures = TypeVar("Figures")
OF_SEED = "{seed}"  # in the path of an input


@dataclass(frozen=True)
class Context:
    """What a kind runs with, for one seed. work: a folder that a killed run finds again; shared: one for all seeds;
    workers: processes or threads to use; small: what a small run makes its inputs with.
    """

    seed: int
    work: Path
    shared: Path
    workers: int
    small: SmallInputs | None
    given: Mapping[str, Path]
    progress: Progress

    def input(self, name: str) -> Path:
        """A file or folder that full runs are given and small ones make."""
        path = self.optional(name)
        assert path is not None  # require_inputs
        return path

    def optional(self, name: str) -> Path | None:
        """Like `input`, but None if it was not given."""
        return self.given.get(name) if self.small is None else self.small.path(name)

    def folder(self, row: str) -> Path:
        """A folder for the work on a row, made if missing. Raises StorageError."""
        folder = self.work / "".join(letter if letter.isalnum() else "-" for letter in row)
        make_folder(folder)
        return folder

    def measure_once(self, part: str, measure: Callable[[], Figures]) -> Figures:
        """Return a part's figures, any JSON, measured unless an earlier run did. Raises StorageError."""
        path = self.work / f"{hashlib.sha256(part.encode()).hexdigest()[:16]}.json"
        if not path.exists():
            write_bytes(path, json.dumps({"part": part, "figures": measure()}).encode())
        figures: Figures = json.loads(path.read_bytes())["figures"]
        return figures


@dataclass(frozen=True)
class Outcome:
    """What a kind measured with one seed. facts: what else belongs to the figures, such as tokens; units: a row's
    figures of each user, node or round, in one order for all rows; runs: a row's hash of what ran.
    """

    rows: Rows
    facts: Mapping[str, float] = field(default_factory=dict)
    units: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)


def run(
    name: str,
    work: Path,
    *,
    small: bool = False,
    given: Mapping[str, Path] | None = None,
    texts: str = "",
    workers: int = 1,
    progress: Progress | None = None,
) -> Result:
    """Run an experiment in the folder `work`, made if missing; the same call resumes a run that was killed.

    given: files and folders by the names of the experiment's inputs, `{seed}` in them standing for each seed; small
    runs make their own. texts: which texts they are, in words. Raises UsageError, ArtifactsError, StateError for a
    folder of another run, and what its kind raises.
    """
    experiment = load(name)
    kind, settings = kind_of(name, experiment, small)
    seeds = experiment.seeds[:1] if small else experiment.seeds
    given = given or {}
    if not small:
        require_inputs(name, experiment, given)
    make_folder(work)
    places = {key: str(path.absolute()) for key, path in sorted(given.items())}
    _require_same(work, {"experiment": name, "small": small, "settings": document_of(settings), "given": places})
    commits = _commits(work)
    outcomes = []
    for seed in seeds:
        place = work / f"seed-{seed}"
        make_folder(place)
        made = SmallInputs(work / "inputs") if small else None
        of_seed = {key: _of_seed(path, seed) for key, path in given.items()}
        context = Context(seed, place, work, workers, made, of_seed, progress or (lambda *_: None))
        outcomes.append(kind.run(settings, context))
    first = outcomes[0]
    return Result(
        experiment=name,
        small=small,
        seeds=seeds,
        texts="made by phonograd" if small else texts,
        settings=document_of(settings),
        facts={fact: tuple(outcome.facts[fact] for outcome in outcomes) for fact in first.facts},
        rows=_by_seed(first.rows, lambda row, figure: [outcome.rows[row][figure] for outcome in outcomes]),
        units=_by_seed(first.units, lambda row, figure: [tuple(outcome.units[row][figure]) for outcome in outcomes]),
        runs={row: tuple(outcome.runs[row] for outcome in outcomes) for row in first.runs},
        inputs={key: _hash_input(path, seeds) for key, path in sorted(given.items())},
        version=phonograd.__version__,
        commits=commits,
        model=_model_of(context),
        cpu=this_environment().cpu,
    )


def _model_of(context: Context) -> dict[str, Any]:
    """The sizes of the model that is given, and how its artifacts train it."""
    if context.optional("artifacts") is None:
        return {}
    manifest = phonograd.open_artifacts(context.input("artifacts")).manifest
    return document_of(manifest.model) | document_of(manifest.training)


def _by_seed(
    rows: Mapping[str, Mapping[str, Any]], of: Callable[[str, str], Sequence[Any]]
) -> dict[str, dict[str, tuple[Any, ...]]]:
    return {row: {figure: tuple(of(row, figure)) for figure in figures} for row, figures in rows.items()}


def _of_seed(path: Path, seed: int) -> Path:
    return Path(str(path).replace(OF_SEED, str(seed)))


def _hash_input(path: Path, seeds: Sequence[int]) -> str:
    """The hash of an input, or of the hashes of those of all seeds."""
    digests = dict.fromkeys(sha256_of(_of_seed(path, seed)) for seed in seeds)
    return next(iter(digests)) if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def sha256_of(path: Path) -> str:
    """Hash of a file, or of a folder's file names and hashes. Raises StorageError."""
    with storage_errors(path):
        if path.is_file():
            return sha256_of_file(path)
        files = sorted(file for file in path.rglob("*") if file.is_file())
        lines = (f"{file.relative_to(path).as_posix()} {sha256_of_file(file)}\n" for file in files)
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def _commits(work: Path) -> tuple[str, ...]:
    """The checkout's commits that ran in `work`, the last one now."""
    path = work / "commits.json"
    earlier = json.loads(path.read_bytes()) if path.exists() else []
    commits = list(dict.fromkeys([*earlier, *filter(None, [this_commit()])]))
    write_bytes(path, json.dumps(commits).encode())
    return tuple(commits)


def kind_of(name: str, experiment: Experiment, small: bool) -> tuple[Any, Record]:
    """The module that runs an experiment, and its settings.

    Raises ArtifactsError if the experiment's file is wrong, or has names and claims that its settings belie.
    """
    if not (Path(__file__).parent / "kinds" / f"{experiment.kind}.py").is_file():
        raise ArtifactsError(f"experiment {name}: kind {experiment.kind!r} is no module of papers/kinds")
    kind: Any = import_module(f"phonograd.papers.kinds.{experiment.kind}")
    chosen = experiment.settings | (experiment.small if small else {})
    try:
        settings = read(kind.Settings, chosen)
    except FieldError as error:
        raise ArtifactsError(f"experiment {name}: settings: {error}") from error
    if not small and hasattr(kind, "arms"):  # the names are of full runs
        require_true(kind.arms(settings), experiment.claims)
    return kind, settings


def require_inputs(name: str, experiment: Experiment, given: Mapping[str, Path]) -> None:
    """Raise UsageError, naming it, if a full run lacks an input or is given one that it does not take."""
    takes = {**experiment.inputs, **experiment.optional_inputs}
    if unknown := sorted(given.keys() - takes.keys()):
        raise UsageError(f"{name}: no such input: {', '.join(unknown)}; it takes {', '.join(takes) or 'none'}")
    if missing := [flag(key) for key in experiment.inputs if key not in given]:
        raise UsageError(f"{name} needs {', '.join(missing)} at full scale; phonograd reproduce --list says what it is")


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, if missing. Raises StorageError."""
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _require_same(work: Path, job: dict[str, Any]) -> None:
    path, document = work / "run.json", json.dumps(job)
    if not path.exists():
        write_bytes(path, document.encode())
    earlier = json.loads(path.read_bytes())
    for name, value in json.loads(document).items():
        if earlier.get(name) != value:
            raise StateError(f"{work}: holds parts of a run with another {name}; use another folder for --work")
