"""What was measured, as tables to read: on the terminal, and as a page of the documentation."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final, TypeAlias

from benchmarks.earlier import Earlier
from benchmarks.entrants import ENTRANTS
from benchmarks.nexmark import FLINK_A_CORE
from benchmarks.results import Latency, Result
from benchmarks.targets import LATENCY_TARGETS, TARGETS, Exponent, Size, Target
from benchmarks.workloads import WORKLOADS

__all__ = [
    "latency_table",
    "page",
    "summary",
    "table_of",
    "targets_of",
    "text_of",
    "throughput_of",
]

Rows: TypeAlias = Sequence[Sequence[str]]
"""Cells as text; the first row is the heading."""

NONE: Final = "-"
HEADING: Final = (
    "entrant",
    "s",
    "CPU s",
    "of it outside the JVM",
    "peak GB",
    "checkpoint MB",
    "bytes a session",
    "n",
)
SMALL_RATIO: Final = 0.2
"""Below it, 1/18 reads better than 0.06."""
OPENING: Final = """\
# Results

All figures of the last runs; [Benchmarks](../docs/benchmarks.md) has the seconds. `make bench`
writes both pages; nobody copies a figure by hand.

## What it must reach

"""
SUMMARY: Final = """\
# Benchmarks

Seconds of sessionkit and of every other way to get the same rows, on two cores. All entrants read
the same files, with the settings of [Start a query](how-to/start-a-query.md#settings-of-spark).
Their rows are compared with those that NumPy finds before any time counts. Each run has a process
and a JVM of its own. Figures are medians over the micro-batches of a run, without the first one.
The JVM compiles during dozens more; *steady* counts those after 60.

`make bench` measures it and writes this page. `benchmarks/RESULTS.md` in a checkout also has CPU
seconds, memory, bytes, latencies, our targets with those that aren't met, and the machine.

![The time of each entrant, compared with session_window](benchmarks.svg)

## Seconds

A micro-batch, or the whole batch; the fastest entrant first.

"""
SECTION: Final = "\n## "
REACHED: Final = "What it must reach"
WHO: Final = "Who takes part"
MACHINE: Final = "The machine"
LATENCY: Final = "latency"
OF_LATENCY: Final = """\
From Kafka to Kafka, by the broker's times: from an event to the first row that has it (`on_update`,
a window in update mode), or from the event that ends a session to its row. Next to Spark's own
operator at the same rate: p50, p99.

"""
SEE_ALSO: Final = """
`python -m benchmarks --help` shows how to run a part of it. Ratios carry over to other machines
better than seconds do. `python -m benchmarks.latency` measures from Kafka to Kafka, and
`python -m benchmarks.executors` with 1, 2 and 4 executors.
"""


OF_BIDS: Final = f"""\
Query 11 of [NEXMark](https://github.com/nexmark/nexmark): how many bids a bidder made in each
session, with a gap of 10 seconds and a watermark delay of 4 seconds. The bids come from a generator
after the published one, at its default rate of 10,000 events a second: three of four bids are by a
hot bidder, who changes after 100 new people. Query 12 is left out: its windows are of the
processing time, so no two runs need to have the same rows.

Events a second and core are bids, divided by CPU seconds. Flink's suite shows
**{FLINK_A_CORE:,}** for query 11, and more is better; its guide doesn't say on what processor.
That figure isn't of the same test: there, eight task managers run Flink 1.13 to 2.0 with RocksDB,
checkpoints every 3 minutes and 10,000,000 events a second of event time, so that 100,000,000 events
cover ten seconds; the generator is part of what is measured, and of its events, 92 % are bids. Here
bids alone count, and they are read from files.
"""


def text_of(result: Result) -> str:
    """Return a result as a table for the terminal."""
    lines = [f"{result.workload.name}: {result.workload.about}{_scale(result)}", ""]
    lines += _aligned(table_of(result))
    if result.workload.task == "bids":
        lines += ["", *_aligned(throughput_of(result))]
    lines += [f"  not run: {name}: {reason}" for name, reason in result.not_run.items()]
    return "\n".join(lines)


def targets_of(results: Mapping[str, Result]) -> Rows:
    """Return what was to be reached, and what was, for the workloads that have run."""
    families = {result.workload.family for result in results.values()}
    rows: list[Sequence[str]] = [("workload", "entrant", "measured", "is", "at most", "met")]
    rows += [_target(target, results) for target in TARGETS if target.workload in families]
    return rows


def table_of(result: Result) -> Rows:
    """Return the figures of a result, the fastest entrant first."""
    order = sorted(result.runs, key=lambda name: result.figure(name, "seconds") or 0)
    return [HEADING, *(_figures(result, name) for name in order)]


def throughput_of(result: Result) -> Rows:
    """Return the events a second, and a second and core, the most a core first."""
    found = {name: _throughput(result, name) for name in result.runs}
    order = sorted(found, key=lambda name: found[name][-1], reverse=True)
    rows: list[Sequence[str]] = [("entrant", "events a second", "events a second and core")]
    return [*rows, *((name, *(f"{each:,.0f}" for each in found[name])) for name in order)]


def page(
    results: Mapping[str, Result],
    earlier: Earlier | None = None,
    latencies: Sequence[Latency] = (),
) -> str:
    """Return all results as a page; what wasn't measured again is as it was earlier."""
    earlier = earlier or Earlier({})
    names = [*WORKLOADS, *(name for name in results if name not in WORKLOADS)]
    of_latency = earlier.section(LATENCY)
    if latencies:
        table = _markdown(latency_table(latencies), words=4)
        of_latency = f"{SECTION}{LATENCY}\n\n{OF_LATENCY}{table}"
    parts = [
        OPENING,
        _markdown([*targets_of(results), *_kept_targets(results, earlier)], words=3),
        f"{SECTION}{WHO}\n\n",
        _entrants([*_taking_part(names, results, earlier)]),
        *(_section(results[n]) if n in results else earlier.section(n) for n in names),
        of_latency,
    ]
    others = [name for name in names if name not in results]
    machines = [*_machines(results), *earlier.rows(MACHINE, others)]
    return "".join([*parts, f"{SECTION}{MACHINE}\n\n", _markdown(machines, words=7), SEE_ALSO])


def summary(results_page: str) -> str:
    """Return the page of the documentation: the seconds and the entrants."""
    whole = Earlier.of(results_page)
    rows: list[Sequence[str]] = [("workload", "what", "seconds")]
    for name, workload in WORKLOADS.items():
        lines = [line[2:-2].split(" | ") for line in whole.parts.get(name, "").splitlines()]
        found = [cells for cells in lines if len(cells) == len(HEADING) and cells[0] in ENTRANTS]
        if found and name == workload.family:
            rows.append((name, workload.about, "; ".join(f"{who} {s}" for who, s, *_ in found)))
    shown = [name for name in ENTRANTS if any(f"{name} " in cells[2] for cells in rows)]
    return f"{SUMMARY}{_markdown(rows, words=3)}{SECTION}{WHO}\n\n{_entrants(shown)}"


def _section(result: Result) -> str:
    parts = [f"{SECTION}{result.workload.name}\n\n{_sentence(result)}\n\n"]
    parts += [_markdown(table_of(result)), _not_run(result)]
    if result.workload.task == "bids":
        about = _about_jobs(result) if result.workload.mode == "job" else OF_BIDS
        parts += ["\n", about, "\n", _markdown(throughput_of(result))]
    return "".join(parts)


def _kept_targets(results: Mapping[str, Result], earlier: Earlier) -> Rows:
    """Return the rows of targets of families that weren't measured again."""
    families = {target.workload for target in TARGETS}
    return earlier.rows(REACHED, families - {each.workload.family for each in results.values()})


def latency_table(latencies: Sequence[Latency]) -> Rows:
    """Return how long rows were under way, next to Spark's own operator at the same rate."""
    heading = ("events a second", "entrant", "of Spark's", "met", "p50 s", "p99 s", "n", "load")
    by_name = {(run.rate, run.entrant): run for run in latencies}
    rows: list[Sequence[str]] = [heading]
    for run in latencies:
        against = by_name.get((run.rate, run.against))
        ratios, met = NONE, NONE
        if against is not None and against is not run:
            found = run.p50_s / against.p50_s, run.p99_s / against.p99_s
            ratios = f"{found[0]:.2f}, {found[1]:.2f}"
            most = LATENCY_TARGETS.get((run.rate, run.entrant))
            if most is not None:
                met = "yes" if max(found) <= most else f"**no**: at most {most}"
        figures = f"{run.p50_s:.2f}", f"{run.p99_s:.2f}", f"{run.n:,}", f"{run.load:.1f}"
        rows.append((f"{run.rate:,}", run.entrant, ratios, met, *figures))
    return rows


def aligned(rows: Rows) -> str:
    """Return cells as lines of text."""
    return "\n".join(_aligned(rows))


def _aligned(rows: Rows) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.rjust, row, widths)) for row in rows]


def _markdown(rows: Rows, words: int = 1) -> str:
    """Return a table whose first columns are words, and whose others are numbers."""
    heading, *others = rows
    rule = ["---"] * words + ["---:"] * (len(heading) - words)
    return "".join(f"| {' | '.join(row)} |\n" for row in (heading, rule, *others))


def _figures(result: Result, name: str) -> tuple[str, ...]:
    seconds, cpu_s, rest_s, peak, written, state = (
        result.figure(name, figure)
        for figure in (
            "seconds",
            "cpu_s",
            "rest_s",
            "peak_rss_bytes",
            "checkpoint_bytes",
            "state_bytes",
        )
    )
    counted = sum(len(run.samples[result.workload.uncounted :]) for run in result.runs[name])
    return (
        name,
        _number(seconds),
        _number(cpu_s),
        _number(rest_s),
        _number(peak, 1e9),
        _number(written, 1e6),
        _number(state),
        str(counted),
    )


def _about_jobs(result: Result) -> str:
    """Say what a second of a whole job is, and who has done a part of it."""
    workload = result.workload
    text = (
        "Seconds and CPU seconds of a whole job, start-up included, are divided by its batches.\n"
    )
    few = (f"{name} gets {workload.batches_of(name)}" for name in workload.few)
    return text + "".join(f"{each} of the {workload.batches} batches.\n" for each in few)


def _throughput(result: Result, name: str) -> tuple[float, float]:
    times_s = (result.figure(name, "seconds"), result.figure(name, "cpu_s"))
    seconds, cpu_s = (result.workload.events / (each or inf) for each in times_s)
    return seconds, cpu_s


def _number(value: float | None, unit: float = 1.0) -> str:
    return (
        NONE
        if value is None
        else f"{value / unit:.3g}"
        if value / unit < 1
        else f"{value / unit:,.2f}"
    )


def _target(target: Target, results: Mapping[str, Result]) -> tuple[str, ...]:
    measured = target.measured(results)
    shown = _amount(target, measured)
    at_most = _amount(target, target.at_most)
    if target.goal is not None:
        at_most += f" (stretch {_amount(target, target.goal)})"
    met = "not run" if measured is None else "yes" if measured <= target.at_most else "**no**"
    return (target.workload, target.entrant, target.text, shown, at_most, met)


def _amount(target: Target, value: float | None) -> str:
    if value is None:
        return NONE
    if isinstance(target, Size):
        return f"{value:.0f}" if target.figure == "state_bytes" else f"{value / 1e6:.2f} MB"
    if isinstance(target, Exponent) or value > SMALL_RATIO:
        return f"{value:.2f}"
    return f"1/{1 / value:.0f}"


def _sentence(result: Result) -> str:
    return f"{result.workload.about[0].upper()}{result.workload.about[1:]}{_scale(result)}."


def _scale(result: Result) -> str:
    return "" if result.scale == 1 else f" (times {result.scale:g})"


def _taking_part(
    names: Iterable[str], results: Mapping[str, Result], earlier: Earlier
) -> Iterator[str]:
    for name in names:
        if name in results:
            yield from (*results[name].runs, *results[name].not_run)
        elif name in earlier.parts:
            yield from WORKLOADS[name].entrants


def _entrants(names: Collection[str]) -> str:
    rows = [(name, entrant.about) for name, entrant in ENTRANTS.items() if name in names]
    return "".join(f"- **{name}**: {about}\n" for name, about in rows)


def _not_run(result: Result) -> str:
    lines = [f"- {name}: {reason}\n" for name, reason in result.not_run.items()]
    return "".join(["\nNot run:\n\n", *lines]) if lines else ""


def _machines(results: Mapping[str, Result]) -> Rows:
    facts: Iterable[str] = ("when", "cores", "platform", "master", "python", "versions", "load")
    rows: list[Sequence[str]] = [("workload", *facts)]
    rows += [
        (name, *(str(result.machine.get(fact, NONE)) for fact in facts))
        for name, result in results.items()
    ]
    return rows
