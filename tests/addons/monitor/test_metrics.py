"""The table of metrics, and what names them: the documentation, the rules and the dashboard."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

from sessionkit._engine.counts import COUNTED
from sessionkit.addons.monitor.metrics import METRICS, url_of
from sessionkit.addons.monitor.query_status import QueryStatus

ROOT: Final = Path(__file__).parents[3]
PACKAGE: Final = files("sessionkit.addons.monitor")
PAGES: Final = "".join(
    (ROOT / "docs" / page).read_text(encoding="utf-8")
    for page in ("reference/metrics.md", "how-to/troubleshoot.md")
)
RULES: Final = (PACKAGE / "alerts.yml").read_text(encoding="utf-8")
DASHBOARD: Final = (PACKAGE / "dashboard.json").read_text(encoding="utf-8")


def test_the_documentation_has_every_metric_and_every_alert() -> None:
    """A row each, in the order of the table and of the file."""
    assert [metric.full_name for metric in METRICS] == rows_of("sessionkit_")
    assert re.findall(r"- alert: (\w+)", RULES) == rows_of("Sessionkit")


def rows_of(prefix: str) -> list[str]:
    """Return the names with which the rows of a table on the page begin."""
    return re.findall(rf"^\| `({prefix}\w+)`", PAGES, re.MULTILINE)


def test_rules_and_dashboard_name_metrics_that_there_are() -> None:
    """A query of a metric that nobody exports would be silent forever."""
    expressions = re.findall(r"sessionkit_\w+", RULES) + re.findall(r"sessionkit_\w+", DASHBOARD)

    assert {metric.full_name for metric in METRICS} >= set(expressions)


def test_every_count_of_a_micro_batch_is_a_metric() -> None:
    """Of those that grow: how many events wait is a gauge."""
    shown = {metric.name for metric in METRICS}

    assert {"sessions_closed" if name == "sessions" else name for name in COUNTED} - shown == {
        "buffered"
    }
    assert "buffered_events" in shown


def test_what_is_not_known_has_no_value() -> None:
    """Before the first micro-batch there are counters at 0, and no gauge of a bucket."""
    values = {metric.name: metric.read(QueryStatus()) for metric in METRICS}

    assert {0} == {values[metric.name] for metric in METRICS if metric.kind == "counter"}
    assert values["open_sessions"] is values["bucket_skew_ratio"] is values["state_bytes"] is None


@pytest.mark.parametrize(
    ("address", "host"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("fe80::1%eth0", "[fe80::1%25eth0]")],
)
def test_an_address_of_ipv6_stands_in_brackets(address: str, host: str) -> None:
    """Its colons would be taken for that of the port."""
    url = url_of(address, 9_100)

    assert f"http://{host}:9100/metrics" == url
    assert 9_100 == urlsplit(url).port
