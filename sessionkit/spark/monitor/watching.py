"""The live view of a query in the terminal: its picture, and what keeps it up to date."""

import signal
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sessionkit._engine.counts import DECLARED
from sessionkit._instants import Duration, duration
from sessionkit._printable import printable
from sessionkit.errors import SessionkitError, with_hint
from sessionkit.spark.monitor.metrics import samples
from sessionkit.spark.monitor.query_status import QueryStatus, status

Reading: TypeAlias = Mapping[str, float]
"""The metrics of a query, by their full names; `name.part` for those with parts."""
REJECTED: Final = {
    **{
        count.name.replace("_", " "): f"{count.metric}_total"
        for count in DECLARED
        if count.is_rejected
    },
    "dropped by Spark": "dropped_total",
}
UNKNOWN: Final = "unknown"
BLOCKS: Final = " ▁▂▃▄▅▆▇█"
KILO: Final = 1_000
PERCENT: Final = 100
BAR: Final = 24
LONGEST_PARTS: Final = 4
PREFIX: Final = "sessionkit_"
RATES: Final = 120
RATE: Final = f"{PREFIX}rows_in_per_second"
PATIENCE_S: Final = 5


def picture(
    readings: Mapping[str, Reading], rates: Mapping[str, Sequence[float]]
) -> RenderableType:
    """Return a picture of some queries."""
    if not readings:
        return Text("No query over a spec has reported yet.")
    return Group(*(_panel(name, readings[name], rates.get(name, ())) for name in sorted(readings)))


def _panel(name: str, reading: Reading, rates: Sequence[float]) -> Panel:
    grid = Table.grid(expand=True, padding=(0, 3, 1, 0))
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    grid.add_row(_section("rates", _rates(reading, rates)), _section("time", _time(reading)))
    grid.add_row(
        _section("sessions or keys", _sessions(reading)),
        _section("rejected", _rejected(reading), style="yellow"),
    )
    grid.add_row(_section("state", _state(reading)), _section("last batch", _batch(reading)))
    failed, active = reading.get(f"{PREFIX}query_failed"), reading.get(f"{PREFIX}query_active")
    state, color = ("failed", "red") if failed else ("running", "green")
    if not active and not failed:
        state, color = "stopped", "dim"
    batches = _count(reading, "batches_total")
    title = f"[bold]{escape(printable(name))}[/]  [{color}]{state}[/]  {batches} micro-batches"
    return Panel(grid, title=title, title_align="left", border_style=color)


def _section(title: str, rows: Iterable[tuple[str, str]], style: str = "cyan") -> Table:
    table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style=f"bold {style}")
    table.add_column(title, no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    for name, value in rows:
        table.add_row(Text(name), Text(value, "dim" if value == UNKNOWN else ""))
    return table


def _rates(reading: Reading, rates: Sequence[float]) -> Iterator[tuple[str, str]]:
    yield "events in", _rate(reading, "rows_in_per_second")
    yield "rows out", _rate(reading, "rows_out_per_second")
    yield "events in, lately", _sparks(rates)


def _sessions(reading: Reading) -> Iterator[tuple[str, str]]:
    yield "open", _count(reading, "open_sessions")
    yield "opening", _rate(reading, "opened_per_second")
    yield "closing", _rate(reading, "closed_per_second")
    yield "oldest began", _instant(reading, "oldest_open_session_timestamp_seconds")
    yield "events that wait", _count(reading, "buffered_events")


def _time(reading: Reading) -> Iterator[tuple[str, str]]:
    yield "watermark", _instant(reading, "watermark_timestamp_seconds")
    yield "latest event", _instant(reading, "newest_event_timestamp_seconds")
    yield "lag", _span(reading, "watermark_lag_seconds")


def _rejected(reading: Reading) -> Iterator[tuple[str, str]]:
    events = reading.get(f"{PREFIX}events_total", 0.0)
    for shown, name in REJECTED.items():
        found = reading.get(PREFIX + name)
        share = f"  {PERCENT * found / events:.2f} %" if found and events else ""
        yield shown, f"{_count(reading, name)}{share}"


def _state(reading: Reading) -> Iterator[tuple[str, str]]:
    yield "stored", _bytes(reading, "stored_bytes")
    yield "largest bucket", _bytes(reading, "largest_bucket_bytes")
    yield "largest to mean", _number(reading, "bucket_skew_ratio", "{:.2f}")
    yield "memory of Spark", _bytes(reading, "state_bytes")


def _batch(reading: Reading) -> Iterator[tuple[str, str]]:
    yield "took", _number(reading, "batch_seconds", "{:.2f} s")
    start = f"{PREFIX}batch_part_seconds."
    parts = {name.removeprefix(start): took for name, took in reading.items() if start in name}
    longest = sorted(parts.items(), key=lambda part: -part[1])[:LONGEST_PARTS]
    most = max(parts.values(), default=0.0)
    for name, took in longest:
        bar = "▪" * round(BAR * took / most / 2) if most else ""
        yield f"  {printable(name)}", f"{bar} {took:.2f} s"


def _sparks(rates: Sequence[float]) -> str:
    most = max(rates, default=0.0)
    if not most:
        return ""
    return "".join(BLOCKS[round(rate / most * (len(BLOCKS) - 1))] for rate in rates[-BAR:])


def _number(reading: Reading, name: str, form: str) -> str:
    found = reading.get(PREFIX + name)
    return UNKNOWN if found is None else form.format(found)


def _count(reading: Reading, name: str) -> str:
    return _number(reading, name, "{:,.0f}")


def _rate(reading: Reading, name: str) -> str:
    return _number(reading, name, "{:,.1f} /s")


def _instant(reading: Reading, name: str) -> str:
    found = reading.get(PREFIX + name)
    if found is None:
        return UNKNOWN
    instant = datetime.fromtimestamp(found, UTC)
    return instant.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


def _span(reading: Reading, name: str) -> str:
    found = reading.get(PREFIX + name)
    if found is None:
        return UNKNOWN
    sign, whole = ("-" if found < 0 else ""), round(abs(found))
    return f"{sign}{timedelta(seconds=whole)}"


def _bytes(reading: Reading, name: str) -> str:
    found = reading.get(PREFIX + name)
    if found is None:
        return UNKNOWN
    for unit in ("bytes", "kB", "MB"):
        if found < KILO:
            return f"{found:,.0f} bytes" if unit == "bytes" else f"{found:,.1f} {unit}"
        found /= KILO
    return f"{found:,.1f} GB"


def watch(
    query: StreamingQuery, *, every: Duration = "1 second", console: Console | None = None
) -> QueryStatus:
    """
    Show how a query stands in the terminal, until it ends or Ctrl-C is pressed.

    Args:
        query: A query over the frame that `sessionize` or `apply_with_state` returned.
        every: How long to wait between two looks, in processing time.
        console: Where to draw; by default the terminal.

    Returns:
        How it stood last.

    Raises:
        SessionkitError: It is a query that sessionkit didn't build.
    """
    found = status(query)

    def readings() -> Iterator[dict[str, Reading]]:
        nonlocal found
        running = True
        while running:
            running = query.isActive
            found = status(query, found)
            yield {found.name: reading_of(found)}

    _show(readings(), every, console)
    return found


def watch_endpoint(
    url: str, *, every: Duration = "1 second", console: Console | None = None
) -> None:
    """
    Show how the queries of a metrics endpoint stand, until Ctrl-C is pressed.

    Args:
        url: Of a `PrometheusEndpoint`, such as `http://127.0.0.1:9108/metrics`.
        every: How long to wait between two looks, in processing time.
        console: Where to draw; by default the terminal.

    Raises:
        SessionkitError: Nothing answers there.
    """

    def readings() -> Iterator[dict[str, Reading]]:
        while True:
            yield read_endpoint(url)

    _show(readings(), every, console)


def read_endpoint(url: str) -> dict[str, Reading]:
    """Return the metrics of each query at an endpoint."""
    if not url.startswith(("http://", "https://")):
        hint = "write it as http://host:port/metrics"
        raise SessionkitError(with_hint(f"`{url}` isn't the URL of a metrics endpoint", hint))
    try:
        with urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: S310 (it's one of the two above)
            text = answer.read().decode()
    except (URLError, TimeoutError) as error:
        hint = "pass the `url` of a PrometheusEndpoint in a process that runs"
        raise SessionkitError(with_hint(f"no metrics at {url}: {error}", hint)) from error
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(PREFIX):
                part = sample.labels.get("part")
                name = sample.name if part is None else f"{sample.name}.{part}"
                found.setdefault(sample.labels["query"], {})[name] = sample.value
    return dict(found)


def reading_of(status: QueryStatus) -> Reading:
    """Return the metrics of a query as an endpoint would show them."""
    return {
        metric.full_name if part is None else f"{metric.full_name}.{part}": value
        for metric, part, value in samples(status)
    }


def _show(readings: Iterator[dict[str, Reading]], every: Duration, console: Console | None) -> None:
    pause_s = duration(every, "every").total_seconds()
    rates: dict[str, deque[float]] = {}
    with _interrupts_end_it(), Live(console=console, auto_refresh=False) as live:
        for found in readings:
            live.update(_picture(found, rates), refresh=True)
            time.sleep(pause_s)


@contextmanager
def _interrupts_end_it() -> Iterator[None]:
    """Let Ctrl-C end the block and nothing else: Spark's own handler would cancel all jobs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            yield
    finally:
        signal.signal(signal.SIGINT, before)


def _picture(found: dict[str, Reading], rates: dict[str, deque[float]]) -> RenderableType:
    for name, reading in found.items():
        rates.setdefault(name, deque(maxlen=RATES)).append(reading.get(RATE, 0.0))
    return picture(found, {name: list(values) for name, values in rates.items()})
