"""The cases about deduplication, on Spark."""

from pathlib import Path
from typing import Any, Final, TypeAlias

from pyspark.sql import SparkSession

from sessionkit._instants import EPOCH, micros_of
from sessionkit.spark.dedup import Deduplication, drop_duplicates_by_key, drop_duplicates_within
from sessionkit.spark.watermarks import explain_watermark
from tests.support.conformance.cases import CASES, Case
from tests.support.steps import Source, running

Event: TypeAlias = list[Any]

DEDUP_CASES: Final = [case for case in CASES if case["kind"] == "dedup"]


def dedup_case(case: Case, spark: SparkSession, folder: Path) -> tuple[list[Any], list[Event]]:
    """
    Run a case on a stream; return what it emitted and which events were late, in order of arrival.

    An event has the form that it has in the case. The watermark is moved by the events and by
    Spark's micro-batches without data; where a step tells where it is, that is asserted.
    """
    source = Source(spark, folder / "in")
    late: list[Event] = []
    rows = [event for step in case["steps"] for event in step.get("add", [])]
    with running(_rule(case).apply(source.stream()), folder / "checkpoint") as steps:
        for step in case["steps"]:
            if "watermark" in step:
                now = explain_watermark(steps.query).watermark or EPOCH
                assert step["watermark"] * 1_000 == micros_of(now)
                continue
            before = steps.dropped()
            source.put(*((key, time, value) for key, time, value in step["add"]))
            steps.run()
            dropped = steps.dropped() - before
            # Spark counts late rows and does not show them: all of a step are late, or none.
            assert dropped in {0, len(step["add"])}
            late += step["add"] if dropped else []
        emitted = [[row["id"], row["ts"], row["value"]] for row in steps.rows]
    emitted.sort(key=rows.index)
    return [_shown(case, event) for event in emitted], late


def _rule(case: Case) -> Deduplication:
    delay_ms = case["watermark_delay_ms"]
    by = "ts" if case["dedup_keys"] == "event time" else "id"
    if delay_ms is None:
        return drop_duplicates_by_key(by, unbounded_state=True)
    return drop_duplicates_within(f"{delay_ms} milliseconds", keys=by, event_time="ts")


def _shown(case: Case, event: Event) -> Any:
    """Return an emitted event as the case writes it: with its key, or as the value alone."""
    key, _, value = event
    has_keys = isinstance(case["expected_emitted"][0], list)
    return [key, value] if has_keys else value
