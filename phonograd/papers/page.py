"""docs/results.md: the papers' figures beside ours, made from experiments and results alone."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from phonograd.bench.markdown import table
from phonograd.device_runtime.base.documents import FieldError, document_of, parse, read
from phonograd.device_runtime.base.errors import StateError
from phonograd.device_runtime.formats.manifest import TrainingConfig
from phonograd.papers.arms import require_true
from phonograd.papers.curves import in_table
from phonograd.papers.experiment import Experiment, load, names
from phonograd.papers.result import Result, read_result
from phonograd.papers.run import kind_of
from phonograd.papers.verdicts import SEEDS, judge

HEAD = """# The papers' results, measured again

Made by `phonograd reproduce --page docs/results.md` from `experiments` and `results` of phonograd/papers; do not edit.
[phonograd/papers/README.md](../phonograd/papers/README.md) says how to run an experiment and how to add one.

P is Popov et al. 2018, *Distributed Fine-tuning of Language Models on Private Data*; M is McMahan et al. 2018,
*Learning Differentially Private Recurrent Language Models*; J is Ji et al. 2019, *Learning Private Neural Language
Modeling with Attentive Aggregation*. Corpora differ from the papers', so compare orderings and ratios rather than
levels. A figure over several seeds is their mean, with the lowest and highest value in brackets. Beside plots,
tables have few rounds and no percentiles; the results have all.

Perplexities leave unknown words out unless a table says otherwise. A user perplexity is pooled: that of one test made
of all users' texts, as in paper P. Top-1 never suggests an unknown word and counts one as a miss; what paper M
allows, the unknown word as an answer that is always wrong, is beside it. What a simulation ends with is the mean of its
last five evaluations (geometric for perplexities).
"""
VERDICTS = f"""## The papers' claims

**Agrees**: all of at least {SEEDS} seeds show it; or, where each node, pair or phone was trained on its own, the 95 %
interval of the paired effect over them does (bootstrap); and the effect is at least a tenth of the paper's.
**Contradicts**: they show the opposite. **Inconclusive**: neither, or too few runs. Where nothing is drawn at random
(exact), the figures decide.

Effects are those of the first row that a claim compares against the last: -64 % is a reduction, as the papers have
them. Of keystrokes saved and accuracies it is the points by which the last row is above the first. In brackets: the
interval, or the lowest and highest seed.
"""
NOT_RUN = Path(__file__).parent / "not_run.json"
# Between a row and its fact, in the name of a fact.
ROW = ": "
# How the names end of figures over users that the page leaves out.
PERCENTILES = (", p10", ", p90", ", mean of users")


def page(results: Path) -> str:
    """The whole page. Raises StateError for a damaged result, ArtifactsError for a damaged experiment."""
    found = {name: read_result(path) for name in _here() if (path := results / f"{name}.json").exists()}
    for name, result in found.items():
        _require_names_of_settings(name, result)
    sections = ["\n".join(_section(name, load(name), found)) + "\n" for name in found]
    return "\n".join([HEAD, VERDICTS, "\n".join(_verdicts(found)) + "\n", *sections])


def own_pages(results: Path) -> dict[str, str]:
    """The pages, by name, of experiments that are not on docs/results.md. Raises as `page` does."""
    found: dict[str, dict[str, Result]] = {}
    for name in names():
        if (place := load(name).page) and (path := results / f"{name}.json").exists():
            found.setdefault(place, {})[name] = read_result(path)
    return {place: _own_page(of_place) for place, of_place in found.items()}


def _own_page(results: Mapping[str, Result]) -> str:
    """One page; the first experiment's title is the page's."""
    sections = ["\n".join(_section(name, load(name), results)) + "\n" for name in results]
    heading, _, first = sections[0].partition("\n")
    made = "Made by `phonograd reproduce --page docs/results.md` from results; do not edit."
    return "\n".join([heading.removeprefix("#"), "", made, first, *sections[1:]])


def _here() -> list[str]:
    return [name for name in names() if not load(name).page]


def _require_names_of_settings(name: str, result: Result) -> None:
    """Raise ArtifactsError for a result whose rows have names, or claims, that the settings it ran with belie."""
    experiment = load(name)
    kind, _ = kind_of(name, experiment, small=False)
    if hasattr(kind, "arms"):
        try:
            settings = read(kind.Settings, result.settings)
        except FieldError as error:
            raise StateError(f"result of {name}: settings: {error}; run it again") from error
        require_true(kind.arms(settings), experiment.claims)


def _verdicts(results: Mapping[str, Result]) -> Iterator[str]:
    """The papers' claims, and their tables, figures and algorithms that were not run, with the reason."""
    rows = []
    for name, result in results.items():
        experiment = load(name)
        place = experiment.title.partition(":")[0]
        rows += [
            [one.claim.where or place, one.claim.says, one.ours, one.paper, one.evidence, one.verdict]
            for one in judge(experiment, result)
            if place.startswith("Paper") and not one.claim.own
        ]
    not_run = parse(NOT_RUN.read_bytes())
    waiting = [load(name) for name in _here() if name not in results]
    missing = {one.title: f"not measured yet; a full run takes about {one.takes} of two cores" for one in waiting}
    rows += [[what, why, "", "", "", "not run"] for what, why in (not_run | missing).items()]
    yield from table(dict.fromkeys(("where", "claim", "ours", "the paper's", "evidence", "verdict"), "l"), rows)


def rows_of(experiment: Experiment, result: Result) -> list[dict[str, float | str | None]]:
    """A table's rows: for each figure the paper's value, if it has one, and ours."""
    figures = _figures(experiment.published, result.rows)
    theirs = {figure for values in experiment.published.values() for figure in values}
    rows = []
    for row in dict.fromkeys([*experiment.published, *result.rows]):
        cells: dict[str, float | str | None] = {"": row}
        for figure in figures:
            if figure in theirs:
                value = experiment.published.get(row, {}).get(figure)
                cells[f"{figure}: paper"] = None if value is None else format_figure(value)
            values = result.rows.get(row, {}).get(figure)
            cells[f"{figure}: ours"] = None if values is None else _over_seeds(values)
        rows.append(cells)
    return rows


def format_figure(value: float) -> str:
    """4 significant digits; large numbers whole and in groups of three."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def picture_place(name: str) -> str:
    """Path of an experiment's picture, relative to the page."""
    return f"pictures/{name}.svg"


def _beside_plots(experiment: Experiment, result: Result) -> list[dict[str, str]]:
    """A table's rows: few rounds of each curve, the paper's figures above ours, and no percentiles."""
    rows: dict[str, dict[str, str]] = {}
    for row, figures in result.rows.items():
        if row in experiment.published:
            rows[f"{row}: paper"] = {
                figure: format_figure(value) for figure, value in experiment.published[row].items()
            }
        if in_table(experiment, row):
            rows[row] = {figure: _over_seeds(values) for figure, values in figures.items()}
    columns = _figures(rows)
    return [{"": row, **{figure: values_of.get(figure, "") for figure in columns}} for row, values_of in rows.items()]


def _section(name: str, experiment: Experiment, results: Mapping[str, Result]) -> Iterator[str]:
    result = results[name]
    rows: Sequence[Mapping[str, float | str | None]] = (
        _beside_plots(experiment, result) if experiment.plots else rows_of(experiment, result)
    )
    columns = {heading: "r" if heading else "l" for heading in rows[0]}
    yield from (f"## {experiment.title}", "", *conditions(result), experiment.about, "")
    if experiment.plots:
        titles = ". ".join(plot.title for plot in experiment.plots)
        yield from (f"![{titles}]({picture_place(name)})", "")
    yield from table(columns, [[str(cell) if cell is not None else "" for cell in row.values()] for row in rows])
    yield ""
    for one in (judged := judge(experiment, result)):
        shown = ", ".join(part for part in (one.ours, one.paper and f"the paper: {one.paper}", one.evidence) if part)
        yield f"- {one.verdict.capitalize()}: {one.claim.says} ({shown})."
    yield from ([""] if judged else [])
    yield from ([experiment.remark, ""] if experiment.remark else [])
    yield from _facts_of_rows(result)
    facts = [f"{fact}: {_over_seeds(values)}" for fact, values in result.facts.items() if ROW not in fact]
    texts = [f"Texts: {result.texts}"] if result.texts else []
    seeds = [f"seeds: {', '.join(map(str, result.seeds))}"] if len(result.seeds) > 1 else []
    inputs = [f"SHA-256 of {name}: {digest[:8]}" for name, digest in result.inputs.items()]
    origin = [f"version {result.version}", *map(_name_commit, result.commits), *filter(None, [result.cpu])]
    yield "; ".join([*texts, *inputs, *seeds, *facts, *origin, *_same_runs(name, results)]) + (
        f". Repeat: `phonograd reproduce {name}`."
    )


def conditions(result: Result) -> Iterator[str]:
    """The first line of a section: words, output layer, precision and clipping, as the settings have them."""
    settings = result.settings
    simulation = settings.get("simulation", settings)
    model = result.model | settings.get("model", {})
    training = {**document_of(TrainingConfig()), **result.model, **settings.get("training", {})}
    simulates = "simulation" in settings and settings.get("rounds", True)
    if not ("runs" in settings or "methods" in settings or simulates):
        return
    words = f"{model['vocabulary']:,} words; " if "vocabulary" in model else ""
    drawn = simulation.get("output_sample")
    output = f"sampled softmax over {drawn:,} words" if drawn else "full softmax unless a row says sampled"
    yield (
        f"Trained with: {words}{output}; {simulation.get('precision', 'fp32')}; gradients clipped at norm "
        f"{training['clip_norm']:g}; minibatch {training['minibatch']}, BPTT {training['bptt']}."
    )
    yield ""


def _name_commit(commit: str) -> str:
    return f"commit {commit[:7]}" + (" with changes that were not committed" if commit.endswith("+") else "")


def _same_runs(name: str, results: Mapping[str, Result]) -> Iterator[str]:
    for row, runs in results[name].runs.items():
        for other, result in results.items():
            for its_row, its_runs in result.runs.items():
                if other != name and runs == its_runs:
                    yield f"{row} is the same run as {its_row} of `{other}`"


def _facts_of_rows(result: Result) -> Iterator[str]:
    rows: dict[str, dict[str, str]] = {}
    for name, values in result.facts.items():
        row, separator, fact = name.rpartition(ROW)
        if separator:
            rows.setdefault(row, {})[fact] = _over_seeds(values)
    if rows:
        facts = _figures(rows)
        yield from table(
            {"": "l", **dict.fromkeys(facts, "r")},
            [[row, *(values_of.get(fact, "") for fact in facts)] for row, values_of in rows.items()],
        )
        yield ""


def _figures(*tables: Mapping[str, Mapping[str, object]]) -> list[str]:
    """The figures of all rows, but those that the page leaves out."""
    found = dict.fromkeys(figure for rows in tables for values in rows.values() for figure in values)
    return [figure for figure in found if not figure.endswith(PERCENTILES)]


def _over_seeds(values: Sequence[float]) -> str:
    mean, low, high = (format_figure(value) for value in (sum(values) / len(values), min(values), max(values)))
    return mean if min(values) == max(values) else f"{mean} ({low}–{high})"
