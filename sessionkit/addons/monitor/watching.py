"""The live view of a query in the terminal: its picture, and what keeps it up to date."""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Final, TypeAlias
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console, Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sessionkit import Counts
from sessionkit.addons.monitor.metrics import PREFIX, known_metrics
from sessionkit.addons.monitor.query_status import QueryStatus, status
from sessionkit.arguments import Duration, duration_of, explains
from sessionkit.errors import SessionkitError, printable

Reading: TypeAlias = Mapping[str, float]
"""The metrics of a query, by their full names; `name.part` for those with parts."""
UNKNOWN: Final = "unknown"
LONGEST_PARTS: Final = 4
PARTS: Final = f"{PREFIX}batch_part_seconds."
PATIENCE_S: Final = 5


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
        ("watermark", "watermark_timestamp_seconds", _instant),
        ("latest event", "newest_event_timestamp_seconds", _instant),
        ("lag", "watermark_lag_seconds", _span),
        ("behind, half of the events", "behind_p50_seconds", _span),
        ("behind, 99 %", "behind_p99_seconds", _span),
        ("behind, 99.9 %", "behind_p999_seconds", _span),
        ("behind, at most", "behind_max_seconds", _span),
    ],
    "sessions or keys": [
        ("open", "open_sessions", _count),
        ("opening", "opened_per_second", _rate),
        ("closing", "closed_per_second", _rate),
        ("oldest began", "oldest_open_session_timestamp_seconds", _instant),
        ("events that wait", "buffered_events", _count),
    ],
    "rejected": [
        *(
            (count.name.replace("_", " "), f"{count.metric}_total", _count)
            for count in Counts.declared()
            if count.is_rejected
        ),
        ("dropped by Spark", "dropped_total", _count),
    ],
    "state": [
        ("stored", "stored_bytes", _size),
        ("largest bucket", "largest_bucket_bytes", _size),
        ("largest to mean", "bucket_skew_ratio", "{:.2f}".format),
        ("memory of Spark", "state_bytes", _size),
    ],
    "last batch": [("took", "batch_seconds", "{:.2f} s".format)],
}
"""What each section shows: a label, a metric, and how its value is written."""


def picture(readings: Mapping[str, Reading]) -> RenderableType:
    if not readings:
        return Text("No query over a spec has reported yet.")
    return Group(*(_panel(name, readings[name]) for name in sorted(readings)))


def _panel(name: str, reading: Reading) -> Panel:
    grid = Table.grid(expand=True, padding=(0, 3, 1, 0))
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    sections = [_section(title, reading) for title in SHOWN]
    _add_longest_parts(sections[-1], reading)
    for left, right in zip(sections[::2], sections[1::2], strict=True):
        grid.add_row(left, right)
    state, color = "stopped", "dim"
    if reading.get(f"{PREFIX}query_failed"):
        state, color = "failed", "red"
    elif reading.get(f"{PREFIX}query_active"):
        state, color = "running", "green"
    batches = _shown(reading, "batches_total", _count)
    title = f"[bold]{escape(printable(name))}[/]  [{color}]{state}[/]  {batches} micro-batches"
    return Panel(grid, title=title, title_align="left", border_style=color)


def _section(title: str, reading: Reading) -> Table:
    is_rejected = title == "rejected"
    style = "bold yellow" if is_rejected else "bold cyan"
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style=style)
    table.add_column(title, no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    events = reading.get(f"{PREFIX}events_total")
    for label, metric, form in SHOWN[title]:
        value, number = _shown(reading, metric, form), reading.get(PREFIX + metric)
        if is_rejected and number and events:
            value += f"  {100 * number / events:.2f} %"
        table.add_row(Text(label), Text(value, "dim" if value == UNKNOWN else ""))
    return table


def _shown(reading: Reading, metric: str, form: Callable[[float], str]) -> str:
    value = reading.get(PREFIX + metric)
    return UNKNOWN if value is None else form(value)


def _add_longest_parts(last_batch: Table, reading: Reading) -> None:
    parts = {
        name.removeprefix(PARTS): seconds for name, seconds in reading.items() if PARTS in name
    }
    for name, seconds in sorted(parts.items(), key=lambda part: -part[1])[:LONGEST_PARTS]:
        last_batch.add_row(Text(f"  {printable(name)}"), Text(f"{seconds:.2f} s"))


@explains
def watch(
    query: StreamingQuery, *, every: Duration = "1 second", console: Console | None = None
) -> QueryStatus:
    """
    Show the status of a query in the terminal, until it ends or Ctrl-C is pressed.

    Args:
        query: A query over the frame that `sessionize` or `apply_with_state` returned.
        every: The interval between two updates, in processing time.
        console: Where to draw; by default the terminal.

    Returns:
        Its last status.

    Raises:
        SessionkitError: sessionkit didn't build the query.
    """
    latest = status(query)

    def readings() -> Iterator[Mapping[str, Reading]]:
        nonlocal latest
        running = True
        while running:
            running = query.isActive
            latest = status(query, latest)
            yield {latest.name: known_metrics(latest)}

    _show(readings(), every, console)
    return latest


@explains
def watch_endpoint(
    url: str, *, every: Duration = "1 second", console: Console | None = None
) -> None:
    """
    Show the status of the queries of a metrics endpoint, until Ctrl-C is pressed.

    Args:
        url: Of a `PrometheusEndpoint`, such as `http://127.0.0.1:9108/metrics`.
        every: The interval between two updates, in processing time.
        console: Where to draw; by default the terminal.

    Raises:
        SessionkitError: Nothing answers at the URL.
    """
    _show(map(read_endpoint, repeat(url)), every, console)


def read_endpoint(url: str) -> Mapping[str, Reading]:
    if not url.startswith(("http://", "https://")):
        hint = "write it as http://host:port/metrics"
        raise SessionkitError(f"`{url}` isn't the URL of a metrics endpoint", hint)
    try:
        with urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: S310 (it's one of the two above)
            text = answer.read().decode()
    except (URLError, TimeoutError) as error:
        hint = "pass the `url` of a PrometheusEndpoint in a process that runs"
        raise SessionkitError(f"no metrics at {url}: {error}", hint) from error
    readings: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(PREFIX):
                part = sample.labels.get("part")
                name = sample.name if part is None else f"{sample.name}.{part}"
                readings.setdefault(sample.labels["query"], {})[name] = sample.value
    return readings


def _show(
    readings: Iterator[Mapping[str, Reading]], every: Duration, console: Console | None
) -> None:
    pause_s = duration_of(every, "every").total_seconds()
    with _interrupts_end_it(), Live(console=console, auto_refresh=False) as live:
        for of_queries in readings:
            live.update(picture(of_queries), refresh=True)
            time.sleep(pause_s)


@contextmanager
def _interrupts_end_it() -> Iterator[None]:
    """Let Ctrl-C end only this block: Spark's own handler would cancel all jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGINT, before)
