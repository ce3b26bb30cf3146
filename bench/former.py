"""The last figures of contestants that a benchmark no longer has."""

from collections.abc import Iterator

from phonograd.bench.markdown import MB, Column, Table, figure, name_with_versions
from phonograd.bench.results import Document


def section(document: Document) -> Iterator[str | Table]:
    """See phonograd.bench.results. The rows are the benchmark's, as it measured them last."""
    yield f"Formerly in {document['benchmark']}: {', '.join(row['name'] for row in document['contestants'])}"
    yield (
        f"Measured on {document['date']} beside phonograd {document['phonograd']}: {document['model']}. "
        f"`{document['benchmark']}` no longer has these contestants."
    )
    columns = {
        "contestant": Column(lambda row: name_with_versions(row["name"], row["about"]["versions"])),
        f"time / {document['first']}": figure("ratio", ".2f"),
        "minimum": figure("ratio_least", ".2f"),
        f"CPU time / {document['first']}": figure("cpu_ratio", ".2f"),
        "seconds a step": figure("median_seconds", ".3f"),
        "seconds a round": figure("round_seconds", ".1f"),
        "of ceiling": figure("fraction_of_ceiling", ".0%"),
        "peak memory, MB": figure("peak_rss_bytes", ".0f", MB),
        "peak memory (PSS), MB": figure("peak_pss_bytes", ".0f", MB),
    }
    rows = document["contestants"]
    had = {name: one for name, one in columns.items() if any(one.value(row) is not None for row in rows)}
    yield Table("Former contestants", had, rows)
