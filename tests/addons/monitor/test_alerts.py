"""Each alert fires on a real query and a real Prometheus; the dashboard's queries answer there."""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from threading import Event
from typing import Any, Final

import attrs
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit import SessionSpec
from sessionkit.addons.monitor import monitor
from tests.support.figures import FIGURES, Record
from tests.support.prometheus import Prometheus, PrometheusMissingError, running_prometheus
from tests.support.streams import FileStream, needs_own_process
from tests.support.visits import SHARED, View, views

pytest.importorskip("prometheus_client")
from sessionkit.addons.monitor import PrometheusEndpoint

PACKAGE: Final = files("sessionkit.addons.monitor")
RULES: Final = (PACKAGE / "alerts.yml").read_text(encoding="utf-8")
DASHBOARD: Final = json.loads((PACKAGE / "dashboard.json").read_text(encoding="utf-8"))
ALERTS: Final = re.findall(r"- alert: (\w+)", RULES)
SOON: Final = {"SessionkitNoProgress", "SessionkitLagGrowing", "SessionkitStateGrowing"}
"""Where rules look back for seconds, a query that has just started may well be like this."""
FIRED: Final = "count_over_time(ALERTS"
SPAN: Final = "5s"
"""Stands for all spans of the rules."""
EXPRESSIONS: Final = [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]


def hurried(rules: str) -> str:
    """Return the same rules, which look back for seconds only, and fire at once."""
    rules = re.sub(r"(?<=\[)\d+[mh](?=\])|(?<=offset )\d+[mh]", SPAN, rules)
    return re.sub(r"(?<= for: )\d+m", "0s", rules)


@attrs.define
class Visit:
    """The pages of a visit; one of them breaks it."""

    pages: list[str] = attrs.field(factory=list)

    def update(self, view: View) -> None:
        if view.url == "broken":
            raise ValueError(view.url)
        self.pages.append(view.url)

    def merge(self, later: "Visit") -> None:
        self.pages += later.pages


VISITS: Final = SessionSpec.of(Visit, event=View, gap="30m", on_error="reject", **SHARED)


@attrs.define
class Sink:
    """A sink that does what a test asks for."""

    runs: int = 1
    is_stuck: bool = False
    freed: Event = attrs.field(factory=Event)

    def write(self, frame: DataFrame, batch: int) -> None:
        if self.is_stuck:
            self.freed.wait(120)
            message = "the sink is full"
            raise RuntimeError(message)
        for _ in range(self.runs):
            frame.write.format("noop").mode("append").save()


@attrs.frozen
class Site:
    """A query with a sink, and the Prometheus that watches it."""

    stream: FileStream
    query: Any
    sink: Sink
    prometheus: Prometheus


@pytest.fixture(name="site", scope="module")
def _site(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run a query that waits for files; the tests are skipped where no Prometheus can be had."""
    needs_own_process(spark)
    folder, sink, endpoint = tmp_path_factory.mktemp("alerts"), Sink(), PrometheusEndpoint(0)
    stream = FileStream(spark, VISITS, folder)
    stream.put(views(*((f"u{n}", n) for n in range(6))))
    listener = monitor(spark, endpoint)
    try:
        with running_prometheus(folder, endpoint.url, hurried(RULES)) as prometheus:
            writer = stream.output().writeStream.foreachBatch(sink.write).queryName("alerted")
            query = writer.option("checkpointLocation", stream.checkpoint).start()
            try:
                yield Site(stream, query, sink, prometheus)
            finally:
                sink.freed.set()
                query.stop()
    except PrometheusMissingError as error:
        pytest.skip(f"alerts fired: 0, not tried: {len(ALERTS)} ({error})")
    finally:
        spark.streams.removeListener(listener)
        endpoint.close()


def fired(prometheus: Prometheus) -> set[str]:
    """Return the names of the alerts that have fired."""
    found = prometheus.ask(f'{FIRED}{{alertstate="firing", query="alerted"}}[10m])')
    return {one["metric"]["alertname"] for one in found}


def wait_for_alerts(prometheus: Prometheus, *names: str) -> None:
    """Wait until each of these alerts has fired."""
    for name in names:
        prometheus.wait_for(
            f'count_over_time(ALERTS{{alertstate="firing", alertname="{name}"}}[10m])'
        )


@pytest.mark.long
def test_every_alert_fires(site: Site, record_property: Record) -> None:
    """A quiet query, then what each alert is for; and the dashboard shows the query meanwhile."""
    prometheus, sink = site.prometheus, site.sink
    site.stream.put(views(("u0", 200), ("u1", 201)))
    prometheus.wait_for("sessionkit_sessions_closed_total >= 6")
    # The watermark has stood still for as long as the rules look back.
    prometheus.wait_for(f"deriv(sessionkit_watermark_timestamp_seconds[{SPAN}]) == 0")
    early = fired(prometheus) - SOON

    sink.runs = 2
    site.stream.put(views(("u3", 5), ("u4", 6)), views(("u5", 202), url="broken"))
    site.stream.put(views(("u6", 199), url="/" * 2_000_000), views((None, 202)))
    wait_for_alerts(
        prometheus,
        "SessionkitLateEvents",
        "SessionkitQuarantinedRows",
        "SessionkitFailedEvents",
        "SessionkitImbalance",
        "SessionkitStateGrowing",
        "SessionkitSkew",
        "SessionkitLagGrowing",
    )
    silent = [one for one in EXPRESSIONS if not prometheus.ask(asked(one))]

    sink.is_stuck = True
    site.stream.put(views(("u7", 203)))
    wait_for_alerts(prometheus, "SessionkitNoProgress")
    sink.freed.set()
    wait_for_alerts(prometheus, "SessionkitQueryFailed")
    record_property(FIGURES, f"alerts: {len(ALERTS)} fired; {len(EXPRESSIONS)} queries answered")

    assert set() == early
    assert [] == silent
    assert set(ALERTS) == fired(prometheus)


def asked(expression: str) -> str:
    """Return a query of the dashboard as Grafana sends it, for all queries and a short span."""
    return expression.replace("$query", ".*").replace("$__rate_interval", SPAN)
