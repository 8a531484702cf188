"""What was measured, as lines of the terminal, and as tables and sentences of the pages."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from benchmarks.entrants import ENTRANTS
from benchmarks.results import Figures
from benchmarks.workloads import WORKLOADS

__all__ = ["growth", "latencies", "line_of", "machines", "markdown", "rows_of", "who"]

GIGABYTE: Final = 1e9
MILLION: Final = 1e6
SIXTEEN: Final = 16 * GIGABYTE
"""The memory of a usual machine, for which a limit is computed."""


def line_of(name: str, found: Figures) -> str:
    """Return what was measured of an entrant as a line."""
    cpu_s, peak = found["cpu_s"], found["peak_bytes"] / GIGABYTE
    return f"{name:30} {found['seconds']:8.3f} s  {cpu_s:8.3f} CPU s  {peak:6.2f} GB"


def markdown(rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Return a table whose first columns are words, and whose others are numbers."""
    heading, *others = rows
    rule = ["---"] * words + ["---:"] * (len(heading) - words)
    return "".join(f"| {' | '.join(row)} |\n" for row in (heading, rule, *others))


def rows_of(results: Mapping[str, Any]) -> str:
    """Return one table of all workloads, the fastest entrant of each first."""
    rows: list[Sequence[str]] = [("", "s", "CPU s", "peak GB")]
    for name, entrants in _measured(results):
        about = WORKLOADS[name].about
        rows.append((f"**{about[0].upper()}{about[1:]}**", "", "", ""))
        ranked = sorted(entrants.items(), key=lambda each: float(each[1]["seconds"]))
        rows += [(who, *_cells(found)) for who, found in ranked]
    return markdown(rows)


def who(results: Mapping[str, Any]) -> str:
    """Return a list of the entrants that were measured."""
    found = set(chain.from_iterable(each["entrants"] for each in results["workloads"].values()))
    return "".join(
        f"- **{name}**: {each.about}\n" for name, each in ENTRANTS.items() if name in found
    )


def machines(results: Mapping[str, Any]) -> str:
    """Return where and when each workload was measured, and how busy the machine was."""
    rows: list[Sequence[str]] = [("workloads", "when", "load", "machine", "versions")]
    found: dict[tuple[str, str, str], list[tuple[str, Mapping[str, Any]]]] = {}
    for name, workload in results["workloads"].items():
        machine = workload["machine"]
        where = f"{machine['cores']} cores, {machine['platform']}, {machine['spark']}"
        versions = f"Python {machine['python']}, {machine['versions']}"
        day = max(each["when"] for each in workload["entrants"].values())[:10]
        found.setdefault((day, where, versions), []).append((name, workload["entrants"]))
    for (day, where, versions), each in found.items():
        loads = [figures["load"] for _, entrants in each for figures in entrants.values()]
        names = ", ".join(dict.fromkeys(WORKLOADS[name].family for name, _ in each))
        rows.append((names, day, f"{min(loads)} to {max(loads)}", where, versions))
    return markdown(rows, words=5)


def latencies(results: Mapping[str, Any]) -> str:
    """Return how long rows were under way, next to Spark's own operator at the same rate."""
    rows: list[Sequence[str]] = [("events a second", "entrant", "p50 s", "p99 s", "of Spark's")]
    by_name = {(run["rate"], run["entrant"]): run for run in results["latency"]}
    for run in results["latency"]:
        against = by_name.get((run["rate"], run["against"]), run)
        ratios = (
            ""
            if against is run
            else ", ".join(f"{run[each] / against[each]:.2f}" for each in ("p50_s", "p99_s"))
        )
        figures = f"{run['p50_s']:.2f}", f"{run['p99_s']:.2f}", ratios
        rows.append((f"{run['rate']:,}", run["entrant"], *figures))
    return markdown(rows, words=2)


def growth(results: Mapping[str, Any]) -> str:
    """Say where the memory of Sail ends, by the two largest batches that were measured."""
    entrant = "Sail, aggregates"
    sizes = sorted(
        (WORKLOADS[name].size, workload["entrants"][entrant]["peak_bytes"])
        for name, workload in results["workloads"].items()
        if name.startswith("growth-batch-") and entrant in workload["entrants"]
    )
    if not sizes:
        return ""
    (some, low), (more, high) = sizes[-2:]
    an_event = (high - low) / (more - some)
    most = some + (SIXTEEN - low) / an_event
    return (
        f"Sail holds the batch in memory, here {an_event:.0f} bytes of an event: "
        f"{more:,} events took {high / GIGABYTE:.1f} GB, so 16 GB end at about "
        f"{most / MILLION:,.0f},000,000 events.\n"
    )


def _measured(results: Mapping[str, Any]) -> Iterable[tuple[str, Mapping[str, Figures]]]:
    """Return the entrants of each workload, without those of growth, which are drawn."""
    return (
        (name, results["workloads"][name]["entrants"])
        for name, workload in WORKLOADS.items()
        if name in results["workloads"] and not workload.is_growth
    )


def _cells(found: Figures) -> tuple[str, ...]:
    figures = found["seconds"], found["cpu_s"], found["peak_bytes"] / GIGABYTE
    return tuple(map(_number, figures))


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1 else f"{value:,.2f}"
