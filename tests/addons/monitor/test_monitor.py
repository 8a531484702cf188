"""What a listener hands on, to every receiver and to the live view, of a real query."""

from collections.abc import Iterator
from io import StringIO
from threading import Event
from typing import Any
from urllib.request import urlopen

import attrs
import pyspark
import pytest
from pyspark.sql import SparkSession

from sessionkit import SessionkitError
from sessionkit.addons.monitor import monitor, status
from sessionkit.addons.monitor.query_status import QueryStatus
from sessionkit.spark.watermarks import explain_watermark
from tests.support.streams import FileStream
from tests.support.visits import SESSIONS, views

pytest.importorskip("prometheus_client")
pytest.importorskip("rich")
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from sessionkit.addons.monitor import PrometheusEndpoint, watch
from sessionkit.addons.monitor.metrics import METRICS

PARTS = "sessionkit_batch_part_seconds"
KNOWS_LESS = pyspark.__version__.startswith("3.")
"""Spark 3.5 reports nothing of the last micro-batch of the query below, which has no data."""


@attrs.frozen
class Watched:
    """A query that has ended, and what each receiver has of it; and one over no spec."""

    query: Any
    other: Any
    statuses: list[QueryStatus]
    endpoint: PrometheusEndpoint


def broken(status: QueryStatus) -> None:
    raise RuntimeError(status.name)


@pytest.fixture(name="watched", scope="module")
def _watched(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Run a query under a listener, with a receiver that fails before the others."""
    folder = tmp_path_factory.mktemp("watched")
    stream = FileStream(spark, SESSIONS, folder)
    stream.put(views(*((f"u{n}", n) for n in range(6)), (None, 3)), views(("u0", 38), ("u1", 100)))
    statuses: list[QueryStatus] = []
    ended = Event()

    def receive(found: QueryStatus) -> None:
        statuses.append(found)
        if not found.is_active:
            ended.set()

    endpoint = PrometheusEndpoint(0)
    listener = monitor(spark, broken, endpoint, receive)
    try:
        writer = stream.output().writeStream.format("noop").queryName("visits")
        query = (
            writer.option("checkpointLocation", stream.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        writer = stream.events().writeStream.format("noop").trigger(availableNow=True)
        other = writer.option("checkpointLocation", str(folder / "other")).start()
        other.awaitTermination()
        query.awaitTermination()
        assert ended.wait(60)
        yield Watched(query, other, statuses, endpoint)
    finally:
        spark.streams.removeListener(listener)
        endpoint.close()


@pytest.mark.nightly
def test_a_listener_says_what_a_look_at_the_query_says(watched: Watched) -> None:
    """Batch by batch, of queries over a spec only, and what one receiver raises harms no other."""
    last = watched.statuses[-1]

    assert ["visits"] == list({found.name for found in watched.statuses})
    assert [0, 1, 2, 2] == [found.batch for found in watched.statuses]
    assert (False, None) == (last.is_active, last.failure)
    assert 9 == last.totals.events
    assert (None if KNOWS_LESS else 1) == last.open_sessions
    assert status(watched.query) == last


def test_the_endpoint_has_all_that_is_known(watched: Watched) -> None:
    """Under the full name of each metric, with the query as a label."""
    with urlopen(watched.endpoint.url) as answer:  # noqa: S310 (a local one)
        families = [*text_string_to_metric_families(answer.read().decode())]
    samples = [one for family in families for one in family.samples]
    values: dict[str, Any] = {one.full_name: one.read(watched.statuses[-1]) for one in METRICS}
    parts = values.pop(PARTS)
    expected = {(name, None): value for name, value in values.items() if value is not None}
    expected |= {(PARTS, part): value for part, value in parts.items()}

    assert expected == {(one.name, one.labels.get("part")): one.value for one in samples}
    assert {"visits"} == {one.labels["query"] for one in samples}
    assert 9 == values["sessionkit_events_total"]


def test_the_watermark_of_a_spec_is_the_one_by_which_sessions_close(watched: Watched) -> None:
    """Wherever it's shown."""
    report = explain_watermark(watched.query)

    assert watched.statuses[-1].watermark == report.watermark


def test_the_live_view_shows_a_query_until_it_ends(watched: Watched) -> None:
    """Its last picture has the numbers of the query."""
    console = Console(file=StringIO(), width=110)

    last = watch(watched.query, every="1ms", console=console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]

    assert watched.statuses[-1] == last
    for text in ("visits", "stopped", "2026-03-08 13:30:00Z", "1  11.11 %", "addBatch"):
        assert text in shown
    assert ("unknown" in shown) == KNOWS_LESS


def test_a_query_of_something_else_is_refused(watched: Watched) -> None:
    """There is nothing to say of it."""
    with pytest.raises(SessionkitError, match="no observed metrics named 'sessionkit'"):
        status(watched.other)
    with pytest.raises(SessionkitError, match="what has been added up is of another"):
        status(watched.query, QueryStatus(query_id="another"))
