"""The live view of a query in the terminal."""

import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any, Final

import attrs
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sessionkit import Counts
from sessionkit._for_addons import Duration, check_query, duration_of, explains, printable
from sessionkit.addons.monitor.metrics import number_in
from sessionkit.addons.monitor.query_status import QueryStatus, statuses

UNKNOWN: Final = "unknown"
LONGEST_PARTS: Final = 4
WIDE: Final = 100
"""The width from which there are two columns."""
MOST_REMEMBERED: Final = 200
"""How many micro-batches a line of history covers."""
LABEL: Final = 32
"""The width that a line of history leaves to its label and the frame."""
MOST_REASON_LINES: Final = 6
BARS: Final = ("▁▂▃▄▅▆▇█", "._-=+*%#")
"""The bars of a history, and the bars for a terminal that knows only ASCII."""
REASON: Final = re.compile(r"sessionkit\.errors\.(\w+: .*)", re.DOTALL)
STACK: Final = re.compile(r"\s+at |Traceback|JVM stacktrace|Driver stacktrace")


def _instant(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%SZ}"


def _span(seconds: float) -> str:
    return f"{'-' if seconds < 0 else ''}{timedelta(seconds=round(abs(seconds)))}"


def _size(size: float) -> str:
    return decimal(int(size))


_count: Final = "{:,.0f}".format
_rate: Final = "{:,.1f} /s".format

SHOWN: Final[dict[str, list[tuple[str, str, Callable[[float], str]]]]] = {
    "rates": [
        ("events in", "rows_in_per_second", _rate),
        ("rows out", "rows_out_per_second", _rate),
    ],
    "time": [
        ("watermark", "watermark", _instant),
        ("latest event", "newest_event", _instant),
        ("lag", "watermark_lag", _span),
    ],
    "sessions or keys": [
        ("open", "open_sessions", _count),
        ("opening", "opened_per_second", _rate),
        ("closing", "closed_per_second", _rate),
        ("oldest began", "oldest_open", _instant),
        ("events that wait", "buffered", _count),
    ],
    "rejected": [
        *(
            (count.name.replace("_", " "), f"totals.{count.name}", _count)
            for count in Counts.declared()
            if count.is_rejected
        ),
        ("dropped by Spark", "dropped", _count),
    ],
    "events come behind by": [
        ("half of them", "behind.p50", _span),
        ("99 %", "behind.p99", _span),
        ("99.9 %", "behind.p999", _span),
        ("at most", "behind.maximum", _span),
    ],
    "state": [
        ("stored", "stored_bytes", _size),
        ("largest bucket", "largest_bucket.stored_bytes", _size),
        ("largest to mean", "skew", "{:.2f}".format),
        ("memory of Spark", "state_bytes", _size),
    ],
    "last batch": [("took", "seconds", "{:.2f} s".format)],
}
"""The rows of each section: a label, an attribute of the status, and a format."""
WITH_HISTORY: Final = ("rows_in_per_second", "watermark_lag")


@attrs.frozen
class Picture:
    """The picture of a query, in two columns where there is room. Labels wrap, numbers don't."""

    status: QueryStatus
    history: Sequence[QueryStatus] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Panel]:
        """Draw the sections that fit: a terminal would cut off the rest below its last line."""
        columns = 1 if options.max_width < WIDE else 2
        width, bars = options.max_width // columns - LABEL, BARS[options.ascii_only]
        sections = [self._section(title, width, bars) for title in SHOWN]
        pairs = [sections[place : place + columns] for place in range(0, len(sections), columns)]
        parts = [_side_by_side(pair, columns) for pair in pairs]
        panel = self._panel(parts)
        while console.is_terminal and len(parts) > 1 and _is_cut(panel, console, options):
            parts = parts[:-1]
            panel = self._panel([*parts, Text("more in a larger terminal", "dim")])
        yield panel

    def _panel(self, parts: Sequence[RenderableType]) -> Panel:
        status = self.status
        state, color = ("running", "green") if status.is_active else ("stopped", "dim")
        if status.failure is not None:
            state, color = "failed", "red"
        name = escape(printable(status.name))
        title = f"[bold]{name}[/]  [{color}]{state}[/]  {status.batches:,} micro-batches"
        reason = [Text(line, "red") for line in reason_in(status.failure or "")]
        content = Group(*reason, *parts)
        return Panel(content, title=title, title_align="left", border_style=color)

    def _section(self, title: str, width: int, bars: str) -> Table:
        status = self.status
        is_rejected = title == "rejected"
        style = "bold yellow" if is_rejected else "bold cyan"
        table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style=style)
        table.add_column(title, overflow="fold")
        table.add_column("", justify="right", no_wrap=True)
        events = status.totals.events
        for label, path, form in SHOWN[title]:
            number = number_in(status, path)
            value = UNKNOWN if number is None else form(number)
            if is_rejected and number and events:
                value += f"  {100 * number / events:.2f} %"
            table.add_row(Text(label), Text(value, "dim" if number is None else ""))
            if path in WITH_HISTORY:
                numbers = [number_in(earlier, path) or 0 for earlier in self.history[-width:]]
                top = max(numbers, default=0)
                if top > 0:
                    drawn = "".join(_bar(number / top, bars) for number in numbers)
                    table.add_row(Text(f"  up to {form(top)}", "dim"), Text(drawn, "dim"))
        if title == "last batch":
            parts = sorted(status.parts.items(), key=lambda part: -part[1])
            for name, seconds in parts[:LONGEST_PARTS]:
                table.add_row(Text(f"  {printable(name)}"), Text(f"{seconds:.2f} s"))
        return table


def _side_by_side(sections: Sequence[Table], columns: int) -> Table:
    grid = Table.grid(expand=True, padding=(0, 3, 0, 0) if columns > 1 else 0)
    for _ in range(columns):
        grid.add_column(ratio=1)
    grid.add_row(*sections)
    return grid


def _is_cut(panel: Panel, console: Console, options: ConsoleOptions) -> bool:
    return len(console.render_lines(panel, options)) > console.height


def _bar(share: float, bars: str) -> str:
    return bars[min(max(round(share * (len(bars) - 1)), 0), len(bars) - 1)]


def reason_in(failure: str) -> list[str]:
    """Return the first lines of a failure's text: of sessionkit's own error, if it has one."""
    found = REASON.search(failure)
    lines = (found[1] if found else failure).splitlines()
    text = [printable(line) for line in takewhile(lambda line: not STACK.match(line), lines)]
    return [line for line in text if line.strip()][:MOST_REASON_LINES]


@explains
def watch(
    query: StreamingQuery, *, every: Duration = "1 second", console: Console | None = None
) -> QueryStatus:
    """
    Show the status of a query in the terminal, until it ends or Ctrl-C is pressed.

    Ctrl-C ends the view, not the query.

    Args:
        query: A query over the frame that `sessionize` or `apply_with_state` returned.
        every: The interval between two updates, in processing time.
        console: The console to draw on; by default the terminal.

    Returns:
        The last status.

    Raises:
        SessionkitError: sessionkit didn't build the query.
    """
    check_query(query)
    pause_s = duration_of(every, "every").total_seconds()
    latest, history = QueryStatus(), dict[int, QueryStatus]()
    running = True
    with _interrupted() as interrupted, Live(console=console, auto_refresh=False) as live:
        while running and not interrupted.is_set():
            running = query.isActive
            found = statuses(query, latest)
            history |= {earlier.batch: earlier for earlier in found if earlier.batch is not None}
            history, latest = dict([*history.items()][-MOST_REMEMBERED:]), found[-1]
            live.update(Picture(latest, [*history.values()]), refresh=True)
            interrupted.wait(pause_s)
    return latest


@contextmanager
def _interrupted() -> Iterator[threading.Event]:
    """
    Yield an event that Ctrl-C sets in this block, where Spark's handler would cancel all jobs.

    An exception at once would cut off a call of py4j, which logs that. A second Ctrl-C raises it.
    """
    event = threading.Event()

    def set_or_raise(number: int, frame: Any) -> None:
        if event.is_set():
            signal.default_int_handler(number, frame)
        event.set()

    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.signal(signal.SIGINT, set_or_raise)
    try:
        yield event
    finally:
        signal.signal(signal.SIGINT, before)
