"""The section of the page of results about capacity."""

from collections.abc import Iterator, Mapping
from typing import Any

from phonograd.bench.capacity.plan import GB
from phonograd.bench.markdown import MB, environment_line, table


def capacity_section(document: Mapping[str, Any]) -> list[str]:
    """Lines of Markdown."""
    demand, prices, last = document["demand"], document["demand"]["prices"], document["runs"][-1]
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    return [
        f"## Capacity: {document['preset']}, updates by {document['codec']}",
        "",
        environment_line(document),
        "",
        f"{versions}. What a server's work costs in time of one core, alone; of the ledger's, which wait for the "
        "disk, the time itself. Checking and folding are of one update of the service's model, each with decoding it; "
        "a server decodes it once. /metrics reads each update that the ledger ever had, as reports do.",
        "",
        *table(
            {"work": "l", "unit": "l", "ms each": "r", "a second": "r"},
            [
                [one["name"], one["unit"], f"{one['seconds'] * 1e3:.3g}", f"{1 / one['seconds']:,.0f}"]
                for one in document["rates"]
            ],
        ),
        "",
        "Phones that take part in rounds of a real server, over loopback and from the same cores, each with its own "
        f"connection, {last['at_once']} at a time: GET the round, GET the link from its model to the round's (none in "
        "round 1), POST the update. The server checks and folds each, and publishes by top-rows.",
        "",
        *table(
            {
                "model": "l",
                "phones": "r",
                "rounds": "r",
                "update, MB": "r",
                "link, MB": "r",
                "phones/s": "r",
                "CPU ms a phone": "r",
                "ledger, bytes a phone": "r",
                "memory idle, MB": "r",
                "after each round": "r",
                "peak": "r",
            },
            [list(_run(run)) for run in document["runs"]],
        ),
        "",
        "Milliseconds of their requests. The last update of a round waits for the next model.",
        "",
        *table(
            {"model": "l", "request": "l", "number": "r", "median": "r", "p99": "r", "slowest": "r"},
            [
                [
                    run["model"],
                    one["kind"],
                    f"{one['count']:,}",
                    f"{one['median'] * 1e3:.0f}",
                    f"{one['p99'] * 1e3:.0f}",
                    f"{one['slowest'] * 1e3:.0f}",
                ]
                for run in document["runs"]
                for one in run["requests"]
            ],
        ),
        "",
        f"What a service of {last['model']} needs. Each phone takes part once a day, in one of "
        f"the day's rounds ({demand['rounds_a_day']}); the busiest hour has {demand['peak']:g} times the mean rate; a "
        f"server is planned for {demand['load']:.0%} of the {last['phones'] / last['seconds']:.0f} phones/s and "
        f"{last['cpu_seconds'] / last['phones'] * 1e3:.0f} ms of CPU time a phone that were measured above. A service "
        "is a server with a ledger and a model of its own, for a region or a language: it takes updates one at a time. "
        f"Memory is the peak above, of each. Disk: the ledger's rows of {demand['ledger_days']} days, and "
        f"{demand['models_kept'] + 1} models of each. Object store: these models, and the updates of a round. Bytes "
        "down: the link above for each round since the last, or the model if that is smaller. Prices, as examples: "
        f"${prices['core']:g} a core and ${prices['memory']:g} a GB of memory an hour, ${prices['disk']:g} a GB of "
        f"disk and ${prices['store']:g} a GB of store a month, ${prices['sent']:g} a GB sent, ${prices['puts']:g} a "
        "million objects written. Databases, load balancers and people are not in it.",
        "",
        *table(
            {
                "phones a day": "r",
                "phones/s at the peak": "r",
                "services": "r",
                "cores": "r",
                "memory, GB": "r",
                "disk, GB": "r",
                "object store, GB": "r",
                "Gbit/s up": "r",
                "Gbit/s down": "r",
                "$ a month": "r",
            },
            [list(_plan(plan)) for plan in document["plans"]],
        ),
    ]


def _run(run: Mapping[str, Any]) -> Iterator[str]:
    yield run["model"]
    yield f"{run['phones']:,}"
    yield f"{run['rounds']}"
    yield f"{run['update_bytes'] / MB:.3f}"
    yield f"{run['link_bytes'] / MB:.3f}"
    yield f"{run['phones'] / run['seconds']:.1f}"
    yield f"{run['cpu_seconds'] / run['phones'] * 1e3:.1f}"
    yield f"{run['ledger_bytes'] / run['phones']:,.0f}"
    yield f"{run['idle_rss_bytes'] / MB:.0f}"
    yield ", ".join(f"{nbytes / MB:.0f}" for nbytes in run["round_rss_bytes"])
    yield f"{run['peak_rss_bytes'] / MB:.0f}"


def _plan(plan: Mapping[str, Any]) -> Iterator[str]:
    yield f"{plan['phones']:,}"
    peak = plan["peak_phones_per_second"]
    yield f"{peak:,.0f}" if peak >= 100 else f"{peak:.3g}"
    yield f"{plan['services']:,}"
    yield f"{plan['cores']:,.0f}"
    for key in ("memory_bytes", "disk_bytes", "store_bytes"):
        yield f"{plan[key] / GB:,.1f}"
    for key in ("gigabits_up", "gigabits_down"):
        yield f"{plan[key]:.3g}"
    yield f"{plan['dollars_a_month']:,.0f}"
