"""An experiment: a table or figure of a paper, as one JSON file in `experiments/`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import field

from phonograd.device_runtime.base.documents import Count, FieldError, Number, Record, about, parse, read
from phonograd.device_runtime.base.errors import ArtifactsError, UsageError
from phonograd.device_runtime.base.nearest import did_you_mean

FOLDER = Path(__file__).parent / "experiments"
# Inputs that have an option of their own, as in phonograd simulate.
_OPTIONS = ("artifacts", "users", "rehearsal", "general-test")
# The values of figures by row: rows["rehearsal 1/2"]["general perplexity"].
Rows: TypeAlias = Mapping[str, Mapping[str, float]]


class Claim(Record, frozen=True):
    """What a table shows of one figure: its values ascend from row to row; or, with `low` or `high`, each lies in that
    range; or, with `within`, each is at most so far from the paper's. `verdicts` judges it.
    """

    says: Annotated[str, about("the claim in words")]
    figure: str
    rows: tuple[str, ...]
    low: Number | None = None
    high: Number | None = None
    within: Number | None = None
    small: Annotated[bool, about("whether small runs must show it too")] = True
    where: Annotated[str, about("its table or figure, if it is not the experiment's: `M, Figure 2`")] = ""
    own: Annotated[bool, about("whether it is ours, not the paper's")] = False
    exact: Annotated[bool, about("whether nothing is drawn at random that its figure depends on")] = False
    instead: Annotated[str, about("what stands in place of a verdict, and why: `not comparable: ...`")] = ""

    @property
    def ordered(self) -> bool:
        """Whether it is about the order of its rows."""
        return self.low is None and self.high is None and self.within is None


class Plot(Record, frozen=True):
    """A plot of curves: a figure of the rows `NAME, round N`, against their rounds; or, with `against`, figures of the
    rows `NAME, ROW`, against a fact of each NAME.
    """

    title: str
    figure: str
    band: Annotated[tuple[str, str] | None, about("figures between which each curve has a band")] = None
    logarithmic: Annotated[tuple[Literal["x", "y"], ...], about("axes")] = ()
    against: Annotated[str, about("the fact, in place of rounds; `figure` is what the other axis says")] = ""
    lines: Annotated[dict[str, tuple[str, str]], about("ROW and figure of each line, with `against`")] = field(
        default_factory=dict
    )


class Experiment(Record, frozen=True):
    """A table or figure: how it is measured again, what the paper has, and what it shows."""

    title: str
    about: Annotated[str, about("what is measured, for the page")]
    kind: Annotated[str, about("the module of `kinds/` that runs it")]
    settings: Annotated[dict[str, Any], about("of the kind, at full scale")]
    small: Annotated[dict[str, Any], about("settings that small runs replace")] = field(default_factory=dict)
    seeds: Annotated[tuple[Count, ...], about("of full runs; small ones take the first")] = (1,)
    exact: Annotated[bool, about("whether nothing is drawn at random, so that one run says all")] = False
    units: Annotated[
        Literal["", "nodes", "pairs", "phones"], about("units of the result that each had a training of their own")
    ] = ""
    inputs: Annotated[dict[str, str], about("files and folders that full runs need, and what each is")] = field(
        default_factory=dict
    )
    optional_inputs: Annotated[dict[str, str], about("those that a full run can do without")] = field(
        default_factory=dict
    )
    published: Annotated[dict[str, dict[str, Number]], about("the paper's figures, by row")] = field(
        default_factory=dict
    )
    claims: tuple[Claim, ...] = ()
    plots: tuple[Plot, ...] = ()
    table_rounds: Annotated[tuple[Count, ...], about("rounds of a curve that the table beside plots has")] = ()
    remark: Annotated[str, about("for the page: why ours differ")] = ""
    page: Annotated[str, about("its page in docs, if it is not docs/results.md")] = ""
    takes: Annotated[str, about("what a full run takes, on two cores")] = ""


def flag(name: str) -> str:
    """How `phonograd reproduce` takes an input."""
    return f"--{name}" if name in _OPTIONS else f"--input {name}=PATH"


def names() -> list[str]:
    """The names of all experiments, in the order of papers and tables."""
    papers = ("p-table", "p-", "m-table", "m-", "j-table", "j-", "")
    place = {path.stem: next(filter(path.stem.startswith, papers)) for path in FOLDER.glob("*.json")}
    return sorted(place, key=lambda name: (papers.index(place[name]), name))


def load(name: str) -> Experiment:
    """The experiment of that name. Raises UsageError for an unknown name, ArtifactsError if its file is wrong."""
    if name not in names():
        raise UsageError(f"experiment {name!r}: one of {', '.join(names())} expected{did_you_mean(name, names())}")
    path = FOLDER / f"{name}.json"
    try:
        return read(Experiment, parse(path.read_bytes()))
    except (FieldError, UnicodeError) as error:
        raise ArtifactsError(f"{path}: {error}") from error
