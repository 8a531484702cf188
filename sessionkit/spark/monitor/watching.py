"""A live view of queries in the terminal, from a query of this process or from an endpoint."""

import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console, RenderableType
from rich.live import Live

from sessionkit._instants import Duration, duration
from sessionkit.errors import SessionkitError, with_hint
from sessionkit.spark.monitor.metrics import samples
from sessionkit.spark.monitor.picture import PREFIX, Reading, picture
from sessionkit.spark.monitor.query_status import QueryStatus, status

__all__ = ["read_endpoint", "reading_of", "watch", "watch_endpoint"]

RATES: Final = 120
RATE: Final = f"{PREFIX}rows_in_per_second"
PATIENCE_S: Final = 5


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
    """
    Return the metrics of each query at an endpoint.

    Raises:
        SessionkitError: Nothing answers there.
    """
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
