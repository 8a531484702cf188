"""
Measures what it costs to watch a query: `python -m benchmarks.monitoring`.

The same query runs again and again, in turn without anyone who watches and with a listener, an
endpoint, and a fetch of its metrics every second. A pair of neighbours gives a ratio; the median
of the ratios is what watching costs, and the middle half of them says how sure that is.
"""

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Final
from urllib.request import urlopen

import attrs
from pyspark.sql import SparkSession

from benchmarks.child import run_query, spark_session, stream_of
from benchmarks.entrants import ENTRANTS
from benchmarks.events import write_batches
from benchmarks.processes import usage_of
from benchmarks.workloads import Workload
from sessionkit.addons.monitor import PrometheusEndpoint, monitor

__all__ = ["Run", "main", "measured"]

FETCH_EVERY_S: Final = 1.0
WATCHED: Final = Workload(
    name="watched",
    about="a micro-batch of a second or so",
    entrants=("functions",),
    events=100_000,
    keys=20_000,
    batches=6,
)


@attrs.frozen
class Run:
    """
    One run of the query.

    Attributes:
        batch_s: The median duration of its micro-batches, without the first.
        cpu_s: What the driver, the JVM and the Python workers used in all.
    """

    batch_s: float
    cpu_s: float


def main() -> None:
    """Measure, and print both ratios."""
    parser = argparse.ArgumentParser("python -m benchmarks.monitoring")
    parser.add_argument("--pairs", type=int, default=10, help="how many pairs of runs")
    pairs = parser.parse_args().pairs
    with TemporaryDirectory() as folder:
        found = measured(spark_session({}), Path(folder), pairs)
    for name in ("batch_s", "cpu_s"):
        ratios = [getattr(watched, name) / getattr(alone, name) for alone, watched in found]
        low, _, high = quantiles(ratios, n=4)
        print(
            f"{name}: {median(getattr(alone, name) for alone, _ in found):.3f} alone, "
            f"{100 * (median(ratios) - 1):+.1f} % watched "
            f"(the middle half of {pairs} pairs: {100 * (low - 1):+.1f} to {100 * (high - 1):+.1f})"
        )


def measured(spark: SparkSession, folder: Path, pairs: int) -> Sequence[tuple[Run, Run]]:
    """Return pairs of runs: alone, and watched. One run before them warms up."""
    write_batches(WATCHED, folder / "files")
    _run(spark, folder, "warm")
    found = []
    for pair in range(pairs):
        # Which of the two is first changes from pair to pair.
        if pair % 2:
            with _watched(spark):
                watched = _run(spark, folder, f"watched-{pair}")
            alone = _run(spark, folder, f"alone-{pair}")
        else:
            alone = _run(spark, folder, f"alone-{pair}")
            with _watched(spark):
                watched = _run(spark, folder, f"watched-{pair}")
        found.append((alone, watched))
    return found


def _run(spark: SparkSession, folder: Path, name: str) -> Run:
    rows = ENTRANTS["functions"].ways[WATCHED.task](
        stream_of(spark, WATCHED, folder / "files"), WATCHED
    )
    before_s = usage_of(os.getpid()).cpu_s
    progress = run_query(rows.writeStream.format("noop"), folder / name)
    used_s = usage_of(os.getpid()).cpu_s - before_s
    took = [each["durationMs"]["triggerExecution"] / 1000 for each in progress[1:]]
    return Run(median(took), used_s)


@contextmanager
def _watched(spark: SparkSession) -> Iterator[None]:
    """Watch what runs inside of this, as a Prometheus would."""
    endpoint, ended = PrometheusEndpoint(0), Event()
    listener = monitor(spark, endpoint)

    def fetch() -> None:
        while not ended.wait(FETCH_EVERY_S):
            # What Prometheus does with the text isn't part of it.
            with urlopen(endpoint.url) as answer:  # noqa: S310 (an address of our own)
                answer.read()

    reader = Thread(target=fetch)
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join()
        spark.streams.removeListener(listener)
        endpoint.close()


if __name__ == "__main__":
    main()
