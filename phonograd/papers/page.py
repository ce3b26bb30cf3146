"""docs/results.md: the papers' figures beside ours, made from experiments and results alone."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from phonograd.bench.markdown import table
from phonograd.papers.claims import checked
from phonograd.papers.curves import in_table
from phonograd.papers.experiment import Experiment, load, names
from phonograd.papers.result import Result, read_result

HEAD = """# The papers' results, measured again

Made by `phonograd reproduce --page docs/results.md` from `experiments` and `results` of phonograd/papers; do not edit.
[phonograd/papers/README.md](../phonograd/papers/README.md) says how to run an experiment and how to add one.

P is Popov et al. 2018, *Distributed Fine-tuning of Language Models on Private Data*; M is McMahan et al. 2018,
*Learning Differentially Private Recurrent Language Models*; J is Ji et al. 2019, *Learning Private Neural Language
Modeling with Attentive Aggregation*. Corpora differ from the papers', so compare orderings and ratios rather than
levels. A figure over several seeds is their mean, with the lowest and highest value in brackets. Beside plots,
tables have few rounds and no percentiles; the results have all.
"""
# Between a row and its fact, in the name of a fact.
ROW = ": "
# How the names of percentiles over users end.
PERCENTILES = (", p10", ", p90")


def page(results: Path) -> str:
    """The whole page. Raises StateError for a damaged result, ArtifactsError for a damaged experiment."""
    parts, missing = [HEAD], []
    for name in names():
        path = results / f"{name}.json"
        if path.exists():
            parts.append("\n".join(_section(name, load(name), read_result(path))) + "\n")
        else:
            missing.append(f"- `{name}`: {load(name).title}")
    if missing:
        parts.append("\n".join(["## Not measured yet at full scale", "", *missing]) + "\n")
    return "\n".join(parts)


def rows_of(experiment: Experiment, result: Result) -> list[dict[str, float | str | None]]:
    """A table's rows: for each figure the paper's value, if it has one, and ours."""
    figures = _figures(experiment.published, result.rows)
    theirs = {figure for values in experiment.published.values() for figure in values}
    rows = []
    for row in _names_of_rows(experiment.published, result.rows):
        cells: dict[str, float | str | None] = {"": row}
        for figure in figures:
            if figure in theirs:
                value = experiment.published.get(row, {}).get(figure)
                cells[f"{figure}: paper"] = None if value is None else shown(value)
            values = result.rows.get(row, {}).get(figure)
            cells[f"{figure}: ours"] = None if values is None else _over_seeds(values)
        rows.append(cells)
    return rows


def shown(value: float) -> str:
    """4 significant digits; large numbers whole and in groups of three."""
    if value == int(value) and abs(value) < 10_000:
        return f"{value:.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def picture_place(name: str) -> str:
    """Where an experiment's picture is, seen from the page."""
    return f"pictures/{name}.svg"


def _beside_plots(experiment: Experiment, result: Result) -> list[dict[str, str]]:
    """A table's rows: few rounds of each curve, the paper's figures above ours, and no percentiles."""
    rows: dict[str, dict[str, str]] = {}
    for row, figures in result.rows.items():
        if row in experiment.published:
            rows[f"{row}: paper"] = {figure: shown(value) for figure, value in experiment.published[row].items()}
        if in_table(experiment, row):
            rows[row] = {figure: _over_seeds(values) for figure, values in figures.items()}
    columns = [figure for figure in _figures(rows) if not figure.endswith(PERCENTILES)]
    return [{"": row, **{figure: values_of.get(figure, "") for figure in columns}} for row, values_of in rows.items()]


def _section(name: str, experiment: Experiment, result: Result) -> Iterator[str]:
    rows: Sequence[Mapping[str, float | str | None]] = (
        _beside_plots(experiment, result) if experiment.plots else rows_of(experiment, result)
    )
    columns = {heading: "r" if heading else "l" for heading in rows[0]}
    yield from (f"## {experiment.title}", "", experiment.about, "")
    if experiment.plots:
        titles = ". ".join(plot.title for plot in experiment.plots)
        yield from (f"![{titles}]({picture_place(name)})", "")
    yield from table(columns, [[str(cell) if cell is not None else "" for cell in row.values()] for row in rows])
    yield ""
    for one in checked(experiment, result):
        yield f"- {'Agrees' if one.holds else 'Does not agree'}: {one.says(len(result.seeds))}."
    yield from ("", *([experiment.remark, ""] if experiment.remark else []))
    yield from _facts_of_rows(result)
    facts = [f"{fact}: {_over_seeds(values)}" for fact, values in result.facts.items() if ROW not in fact]
    texts = [f"Texts: {result.texts}"] if result.texts else []
    seeds = [f"seeds: {', '.join(map(str, result.seeds))}"] if len(result.seeds) > 1 else []
    yield "; ".join([*texts, *seeds, *facts]) + f". Repeat: `phonograd reproduce {name}`."


def _facts_of_rows(result: Result) -> Iterator[str]:
    """A table of the facts that belong to one row each."""
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
    return list(dict.fromkeys(figure for rows in tables for values in rows.values() for figure in values))


def _names_of_rows(*tables: Mapping[str, object]) -> list[str]:
    return list(dict.fromkeys(row for rows in tables for row in rows))


def _over_seeds(values: Sequence[float]) -> str:
    mean = shown(sum(values) / len(values))
    return (
        mean
        if len(values) == 1 or min(values) == max(values)
        else f"{mean} ({shown(min(values))}–{shown(max(values))})"
    )
