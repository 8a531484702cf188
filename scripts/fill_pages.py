"""
Fill the parts of README and docs that are written elsewhere: `python -m scripts.fill_pages`.

`make docs` runs it. A part stands between `<!-- filled name -->` and `<!-- end of name -->`. How to
install depends on one switch, `released` of `[tool.sessionkit]` in pyproject.toml. Figures of speed
are those of recorded runs: `benchmarks/results.json`, and `benchmarks/recorded.json`.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import attrs

from benchmarks import report
from benchmarks.entrants import ENTRANTS
from benchmarks.results import loaded, seconds_of
from benchmarks.workloads import WORKLOADS

__all__ = ["RECORDED", "filled", "is_released", "main", "pages"]

ROOT: Final = Path(__file__).resolve().parents[1]
RECORDED: Final = ROOT / "benchmarks" / "recorded.json"
PART: Final = re.compile(r"(<!-- filled ([\w ]+) -->\n).*?(?=<!-- end of \2 -->)", re.DOTALL)

INSTALL: Final = """\
```sh
python -m venv .venv && source .venv/bin/activate
pip install "{name}[sail]"
sail spark server & export SPARK_REMOTE=sc://localhost:50051
```

"""
MORE: Final = """\
{until}They bring Sail, which runs batches without Java; Python is 3.11 or later. For streams, have
Java 17 or later, and in an environment of its own, without `SPARK_REMOTE`:
`pip install "{name}[spark]"`. On a cluster, which has Spark 3.5 to 4.3, and to test specs:
`pip install {name}`. **`sessionkit` on PyPI is another project**, with the same module; don't
install both.
"""
UNTIL: Final = "Until the first release, run these in a checkout. "
WIDTH: Final = 120
CODE: Final = re.compile(r"`[^`]+`")


@attrs.frozen
class Row:
    """A line of a table of speed: what sessionkit took in a workload, and what another took."""

    what: str
    workload: str
    own: str
    other: str
    shown: str


DENSE: Final = Row(
    "1,000,000 events of 200,000 users, functions",
    "dense",
    "functions",
    "session_window, default store",
    "Spark's `session_window`",
)
BY_HAND: Final = Row(
    "100,000 events of 20,000 users, functions",
    "small",
    "functions",
    "by hand",
    "`applyInPandasWithState` by hand",
)
OPEN: Final = Row(
    '1,000 events, 2,000,000 open sessions, `layout="pages"`',
    "sparse",
    "pages",
    "session_window",
    "`session_window`",
)
STEADY: Final = Row(
    "1,000 events of 500 users, functions",
    "steady",
    "functions",
    "session_window, default store",
    "`session_window`",
)
NEXMARK: Final = Row(
    "query 11 of NEXMark, functions",
    "nexmark-q11",
    "functions",
    "session_window, default store",
    "`session_window`",
)
A_COUNT: Final = Row(
    "a count for each of 100,000 keys",
    "keys",
    "functions",
    "transformWithState",
    "`transformWithState` by hand",
)
JOBS: Final = tuple(
    Row("200,000 events, start to end", "engines", "functions", other, other)
    for other in ("Flink SQL", "Bytewax", "Pathway")
)
FEW_USERS: Final = Row(
    "10,000,000 events of only 3 users, functions",
    "huge groups",
    "functions",
    "session_window",
    "`session_window`",
)
BATCH: Final = Row(
    "5,000,000 events as a batch on Spark, aggregates", "batch", "aggregates", "DuckDB", "DuckDB"
)
ON_SAIL: Final = Row(
    "5,000,000 events as a batch on Sail, aggregates",
    "batch",
    "Sail, aggregates",
    "DuckDB",
    "DuckDB",
)
ON_OTHERS: Final = {name for name, entrant in ENTRANTS.items() if entrant.script}
OURS: Final = ("functions", "aggregates")
NEAR: Final = 1.02
SMALL_RATIO: Final = 0.2
"""Below it, 1/18 reads better than 0.06."""
SHAPES: Final = {
    "batch": "200,000 users, five minutes",
    "batch-few": "20,000 users, three days",
    "batch-keys": "200,000 keys of three columns",
}
"""The batches that are compared, and how a table calls them."""
NAMES: Final = {
    "java": "`flatMapGroupsWithState` in Java",
    "session_window": "`session_window`",
    "session_window, default store": "`session_window`",
}
HEADING: Final = "| what | sessionkit | the other | so it takes |\n| --- | --- | --- | --- |\n"


def is_released() -> bool:
    """Return the switch: whether PyPI has a release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return bool(project["tool"]["sessionkit"]["released"])


def install(*, released: bool) -> str:
    """Return how to install: from PyPI, or from a checkout until it's there."""
    name, until = ("sessionkit-spark", "") if released else (".", UNTIL)
    text = CODE.sub(lambda code: code[0].replace(" ", "\xa0"), MORE.format(name=name, until=until))
    more = fill(text, WIDTH, break_on_hyphens=False).replace("\xa0", " ")
    return f"{INSTALL.format(name=name)}{more}\n\n"


def results() -> Mapping[str, Mapping[str, float]]:
    """Return the seconds of a batch by workload and entrant, as they were recorded."""
    return seconds_of(loaded())


def recorded() -> Any:
    """Return the runs that were recorded besides those of `make bench`."""
    return json.loads(RECORDED.read_text("utf-8"))


def line(row: Row, seconds: Mapping[str, Mapping[str, float]]) -> str:
    """Return a line of a table of speed."""
    own, other = seconds[row.workload][row.own], seconds[row.workload][row.other]
    compared = f"{row.shown}: {other:.3g} s"
    return f"| {row.what} | {own:.3g} s | {compared} | {multiple(own / other)} |\n"


def multiple(ratio: float) -> str:
    """Return a ratio of times as a reader says it."""
    if ratio > 1:
        return f"{ratio:.1f} times as long"
    return f"1/{1 / ratio:.0f} of the time" if ratio < SMALL_RATIO else f"{ratio:.2f} of the time"


def speed(rows: Sequence[Row]) -> str:
    """Return a table of those that were measured."""
    seconds = results()
    found = [row for row in rows if {row.own, row.other} <= seconds.get(row.workload, {}).keys()]
    return f"{HEADING}{''.join(line(row, seconds) for row in found)}\n"


def batches() -> str:
    """Return the seconds of batches as multiples of DuckDB's, the fastest first."""
    seconds = results()
    shapes = {name: shape for name, shape in SHAPES.items() if "DuckDB" in seconds.get(name, {})}
    first = seconds[next(iter(shapes))]
    rows: list[Sequence[str]] = [("", *shapes.values())]
    for who in sorted(first, key=lambda who: first[who]):
        found = (seconds[name].get(who, 0) / seconds[name]["DuckDB"] for name in shapes)
        shown = who if who in ON_OTHERS else f"Spark, {who}"
        rows.append((shown, *(f"{ratio:.2f}" if ratio else "" for ratio in found)))
    return report.markdown(rows) + "\n"


def losses() -> str:
    """Return each workload in which another is faster than functions or aggregates."""
    lines = ["| where | functions | aggregates | the other |", "| --- | --- | --- | --- |"]
    for name, found in results().items():
        workload = WORKLOADS[name]
        others = {who: s for who, s in found.items() if not ENTRANTS[who].is_ours}
        best = min(others, key=lambda who: others[who], default="")
        for engine, where in {"": "", "Sail, ": ", on Sail"}.items():
            ours = {who: s for who in OURS if (s := found.get(f"{engine}{who}"))}
            if (
                workload.is_growth
                or not best
                or max(ours.values(), default=0) <= NEAR * others[best]
            ):
                continue
            shown = " | ".join(f"{ours[who]:.3g} s" if who in ours else "" for who in OURS)
            other = NAMES.get(best, best)
            lines.append(f"| {workload.about}{where} | {shown} | {other}: {others[best]:.3g} s |")
    return "\n".join([*lines, "", ""])


FILLS: Final[Mapping[str, Callable[[], str]]] = {
    "install": lambda: install(released=is_released()),
    "speed": partial(speed, (DENSE, BY_HAND, OPEN, ON_SAIL, BATCH, STEADY, NEXMARK, FEW_USERS)),
    "where we lose": losses,
    "batches": batches,
    "speed in short": partial(speed, (DENSE, ON_SAIL, FEW_USERS)),
    "others": partial(speed, (BY_HAND, A_COUNT, *JOBS)),
    "all figures": lambda: f"{report.rows_of(loaded())}\n",
    "entrants": lambda: f"{report.who(loaded())}\n",
    "latencies": lambda: f"{report.latencies(loaded())}\n",
    "memory of Sail": lambda: f"{report.growth(loaded())}\n",
    "machine": lambda: f"{report.machines(loaded())}\n",
}


def pages() -> list[Path]:
    """Return the pages that may have such parts."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(text: str) -> str:
    """Return a page with its parts filled."""
    return PART.sub(lambda part: f"{part[1]}{FILLS[part[2]]()}", text)


def main() -> None:
    """Fill each page that has such parts."""
    for page in pages():
        before = page.read_text("utf-8")
        after = filled(before)
        if after != before:
            page.write_text(after, "utf-8")


if __name__ == "__main__":
    main()
