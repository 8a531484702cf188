"""The live view of a query in the terminal."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sessionkit import Counts
from sessionkit._for_addons import Duration, duration_of, explains, printable
from sessionkit.addons.monitor.metrics import number_in
from sessionkit.addons.monitor.query_status import QueryStatus, status

UNKNOWN: Final = "unknown"
LONGEST_PARTS: Final = 4


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
        ("behind, half of the events", "behind.p50", _span),
        ("behind, 99 %", "behind.p99", _span),
        ("behind, 99.9 %", "behind.p999", _span),
        ("behind, at most", "behind.maximum", _span),
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
    "state": [
        ("stored", "stored_bytes", _size),
        ("largest bucket", "largest_bucket.stored_bytes", _size),
        ("largest to mean", "skew", "{:.2f}".format),
        ("memory of Spark", "state_bytes", _size),
    ],
    "last batch": [("took", "seconds", "{:.2f} s".format)],
}
"""The rows of each section: a label, an attribute of the status, and a format."""


def picture(status: QueryStatus) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 3, 1, 0))
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    sections = [_section(title, status) for title in SHOWN]
    for name, seconds in sorted(status.parts.items(), key=lambda part: -part[1])[:LONGEST_PARTS]:
        sections[-1].add_row(Text(f"  {printable(name)}"), Text(f"{seconds:.2f} s"))
    for left, right in zip(sections[::2], sections[1::2], strict=True):
        grid.add_row(left, right)
    state, color = ("running", "green") if status.is_active else ("stopped", "dim")
    if status.failure is not None:
        state, color = "failed", "red"
    name = escape(printable(status.name))
    title = f"[bold]{name}[/]  [{color}]{state}[/]  {status.batches:,} micro-batches"
    return Panel(grid, title=title, title_align="left", border_style=color)


def _section(title: str, status: QueryStatus) -> Table:
    is_rejected = title == "rejected"
    style = "bold yellow" if is_rejected else "bold cyan"
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style=style)
    table.add_column(title, no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    events = status.totals.events
    for label, path, form in SHOWN[title]:
        number = number_in(status, path)
        value = UNKNOWN if number is None else form(number)
        if is_rejected and number and events:
            value += f"  {100 * number / events:.2f} %"
        table.add_row(Text(label), Text(value, "dim" if number is None else ""))
    return table


@explains
def watch(
    query: StreamingQuery, *, every: Duration = "1 second", console: Console | None = None
) -> QueryStatus:
    """
    Show the status of a query in the terminal, until it ends or Ctrl-C is pressed.

    Args:
        query: A query over the frame that `sessionize` or `apply_with_state` returned.
        every: The interval between two updates, in processing time.
        console: The console to draw on; by default the terminal.

    Returns:
        The last status.

    Raises:
        SessionkitError: sessionkit didn't build the query.
    """
    latest = status(query)
    pause_s = duration_of(every, "every").total_seconds()
    running = True
    with _interrupts_end_it(), Live(console=console, auto_refresh=False) as live:
        while running:
            running = query.isActive
            latest = status(query, latest)
            live.update(picture(latest), refresh=True)
            time.sleep(pause_s)
    return latest


@contextmanager
def _interrupts_end_it() -> Iterator[None]:
    """Let Ctrl-C end only this block: Spark's handler would cancel all jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGINT, before)
