"""
How many micro-batches each file of tests runs: `pytest -p tests.support.micro_batches`.

Spark needs a third of a second of two cores for each, which is most of what the tests take. Queries
in other processes aren't counted.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

NAME: Final = "micro-batches"
_running: Final = Counter[str]()


class _Listener(StreamingQueryListener):
    def __init__(self) -> None:
        self.seen = set[tuple[str, int]]()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Spark calls this when a query starts."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Count a micro-batch once: a query that waits reports its last one again."""
        self.seen.add((str(event.progress.runId), int(event.progress.batchId)))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Spark calls this when a query ends."""


@pytest.fixture(scope="module", autouse=True)
def _count_micro_batches(request: pytest.FixtureRequest) -> Iterator[None]:
    listener = _Listener()
    session = SparkSession.getActiveSession()
    if session is None and not any(
        "spark" in getattr(item, "fixturenames", ())
        for item in request.session.items
        if item.path == request.path
    ):
        yield
        return
    spark: SparkSession = request.getfixturevalue("spark")
    spark.streams.addListener(listener)
    yield
    context: Any = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    spark.streams.removeListener(listener)
    _running[str(request.path)] += len(listener.seen)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand what a process has counted to the one that reports."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[NAME] = dict(_running)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Take what a process has counted."""
    _running.update(getattr(node, "workeroutput", {}).get(NAME, {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for each file, the one with most micro-batches first."""
    root = terminalreporter.config.rootpath
    for file, count in _running.most_common():
        terminalreporter.write_line(f"{count:6} micro-batches in {Path(file).relative_to(root)}")
    terminalreporter.write_line(f"{_running.total():6} micro-batches in all")
