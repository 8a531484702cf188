"""What a listener hands on, to every receiver and to the live view, of a real query."""

import logging
from collections.abc import Iterator
from io import StringIO
from logging.handlers import QueueHandler
from queue import SimpleQueue
from threading import Event
from typing import Any

import attrs
import pyspark
import pytest
from pyspark.sql import SparkSession

from sessionkit import SessionkitError
from sessionkit.addons.monitor import QueryStatus, monitor, status, to_log, to_opentelemetry
from sessionkit.spark.progress import instant_in
from sessionkit.spark.watermarks import explain_watermark, watermark_of
from tests.support.streams import FileStream
from tests.support.visits import SESSIONS, views

pytest.importorskip("prometheus_client")
pytest.importorskip("rich")
from rich.console import Console

from sessionkit.__main__ import main
from sessionkit.addons.monitor import PrometheusEndpoint, watch
from sessionkit.addons.monitor.metrics import known_metrics
from sessionkit.addons.monitor.watching import picture, read_endpoint

KNOWS_LESS = pyspark.__version__.startswith("3.")
"""Spark 3.5 reports nothing of the last micro-batch of the query below, which has no data."""


@attrs.frozen
class Watched:
    """A query that has ended, and what each receiver has of it; and one over no spec."""

    query: Any
    other: Any
    statuses: list[QueryStatus]
    endpoint: PrometheusEndpoint
    metrics: Any
    log: list[logging.LogRecord]


def broken(status: QueryStatus) -> None:
    raise RuntimeError(status.name)


@pytest.fixture(name="watched", scope="module")
def _watched(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Run a query under a listener, with a receiver that fails before the others."""
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 (slow to import)
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("watched")
    stream = FileStream(spark, SESSIONS, folder)
    stream.put(views(*((f"u{n}", n) for n in range(6)), (None, 3)), views(("u0", 38), ("u1", 100)))
    metrics = InMemoryMetricReader()
    meter = MeterProvider(metric_readers=[metrics]).get_meter("tests")
    statuses: list[QueryStatus] = []
    records: SimpleQueue[logging.LogRecord] = SimpleQueue()
    ended, logger = Event(), logging.getLogger("tests.watched")
    logger.setLevel(logging.INFO)
    logger.addHandler(QueueHandler(records))

    def receive(found: QueryStatus) -> None:
        statuses.append(found)
        if not found.is_active:
            ended.set()

    endpoint = PrometheusEndpoint(0)
    receivers = (broken, to_log(logger), to_opentelemetry(meter), endpoint, receive)
    listener = monitor(spark, *receivers)
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
        log = [records.get() for _ in statuses]
        yield Watched(query, other, statuses, endpoint, metrics, log)
    finally:
        spark.streams.removeListener(listener)
        endpoint.close()


def test_a_listener_says_what_a_look_at_the_query_says(watched: Watched) -> None:
    """Batch by batch, of queries over a spec only, and what one receiver raises harms no other."""
    last = watched.statuses[-1]

    assert ["visits"] == list({found.name for found in watched.statuses})
    assert [0, 1, 2, 2] == [found.batch for found in watched.statuses]
    assert (False, None) == (last.is_active, last.failure)
    assert 9 == last.totals.events
    assert (None if KNOWS_LESS else 1) == last.open_sessions
    assert status(watched.query) == last


def test_the_endpoint_and_open_telemetry_have_all_that_is_known(watched: Watched) -> None:
    """The same numbers under the same names, with the query as a label."""
    expected = known_metrics(watched.statuses[-1])
    found: dict[str, float] = {}
    for resource in watched.metrics.get_metrics_data().resource_metrics:
        for metric in resource.scope_metrics[0].metrics:
            for point in metric.data.data_points:
                assert "visits" == point.attributes["query"]
                part = point.attributes.get("part")
                name = metric.name + ("_total" if f"{metric.name}_total" in expected else "")
                found[name if part is None else f"{name}.{part}"] = point.value

    assert expected == read_endpoint(watched.endpoint.url)["visits"]
    assert expected == found
    assert 9 == expected["sessionkit_events_total"]
    assert 0 < expected["sessionkit_batch_part_seconds.addBatch"]


def test_the_watermark_of_a_spec_is_explained_without_what_is_internal(watched: Watched) -> None:
    """Its report doesn't name the column with which sessionkit moves it."""
    report = explain_watermark(watched.query)

    assert watched.statuses[-1].watermark == report.watermark == watermark_of(watched.query)
    assert "It is computed from: the event time of the spec - 10 minutes." in report.text


def test_the_log_has_a_line_for_each_report(watched: Watched) -> None:
    """A line names the query, the micro-batch and what is known."""
    lines = [record.getMessage() for record in watched.log]

    assert 4 == len(lines)
    assert lines[0].startswith("visits batch=0 events_total=7 processed_total=6 ")
    assert " quarantined_total=1 " in lines[0]
    assert {logging.INFO} == {record.levelno for record in watched.log}


def test_the_live_view_shows_a_query_until_it_ends(watched: Watched) -> None:
    """Its last picture has the numbers of the query, and `unknown` for what nobody knows."""
    console = Console(file=StringIO(), width=110)

    last = watch(watched.query, every="1ms", console=console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    with console.capture() as captured:
        console.print(picture({"visits": {}}))

    assert watched.statuses[-1] == last
    for text in ("visits", "stopped", "2026-03-08 13:30:00Z", "1  11.11 %", "addBatch"):
        assert text in shown
    assert ("unknown" in shown) == KNOWS_LESS
    assert "unknown" in captured.get()


def test_a_query_of_something_else_is_refused(watched: Watched) -> None:
    """There is nothing to say of it."""
    with pytest.raises(SessionkitError, match="no observed metrics named 'sessionkit'"):
        status(watched.other)
    with pytest.raises(SessionkitError, match="what has been added up is of another"):
        status(watched.query, QueryStatus(query_id="another"))


def test_any_name_and_any_instant_can_be_drawn() -> None:
    """A name in brackets isn't markup, and Spark knows years that Python doesn't."""
    far = QueryStatus(newest_event=instant_in("+57153-11-19T19:00:00.000Z"))
    console = Console(width=100, file=StringIO())
    with console.capture() as captured:
        console.print(picture({"visits [/] [red]": known_metrics(far)}))

    for text in ("visits [/] [red]", "9999-12-31 23:59:59Z"):
        assert text in captured.get()


def test_what_a_terminal_would_obey_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a query's name, of the parts of an endpoint, and of an error on the command line."""
    escape, out = "\x1b]0;mine\x07\x9b31m\u202e\r\n", Console(width=200, file=StringIO())
    reading = {"sessionkit_batch_part_seconds." + escape: 1.0}
    with out.capture() as captured:
        out.print(picture({"visits" + escape: reading}))
    shown = captured.get()

    assert 2 == shown.count(r"\x1b]0;mine\x07\x9b31m\u202e\r\n")
    assert shown.replace("\n", "").isprintable()
    assert 1 == main(["watch", "visits" + escape])
    assert capsys.readouterr().err.replace("\n", "").isprintable()


def test_a_line_of_the_log_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the name of the query."""
    with caplog.at_level(logging.INFO, "sessionkit.monitor"):
        to_log()(QueryStatus(name="visits\nroot batch=1 \x1b[31m"))

    assert caplog.messages[0].startswith(r"visits\nroot batch=1 \x1b[31m batch=None ")


@pytest.mark.parametrize(
    ("url", "found"),
    [("nowhere", "`nowhere` isn't the URL"), ("http://127.0.0.1:9/metrics", "no metrics at http:")],
)
def test_an_endpoint_that_does_not_answer_is_named(
    url: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the command line, with a hint."""
    assert 1 == main(["watch", url])
    assert found in capsys.readouterr().err
