"""Specs for any state per key on real Spark: what is refused, counted, ended, and given back."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Observation, Row, SparkSession

from sessionkit import Counts, EventTimeGap, Lateness, StatefulSpec, Storage, TimeToLive
from sessionkit.errors import StateError
from sessionkit.spark import apply_with_state, check_checkpoint, read_state
from sessionkit.spark._columns import ROW_KIND
from sessionkit.spec import BucketResult, by_bucket
from tests.support.scenarios import SCHEMA, Log, command, commanded, instant, tick
from tests.support.streams import FileStream, observed


def commands(*rows: dict[str, Any]) -> pa.Table:
    """Return commands as the rows of a file."""
    return pa.Table.from_pylist(list(rows), SCHEMA)


def calls(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Return the result rows, in the order of their keys and of what was done."""
    found = [row for row in rows if row["kind"] == "result"]
    return sorted((row["key"], row["by"], row["notes"], row["timers"]) for row in found)


@attrs.frozen
class Ran:
    """A query that has stopped, and the counts of its micro-batches."""

    stream: FileStream
    counts: list[Counts]


POLICY: Final = TimeToLive("25 seconds", clock="event_time") | EventTimeGap("10 seconds")
LIVES: Final = [
    commands(
        command("a", 1, "note", "x"),
        command("b", 1, "note", "y"),
        command("c", 1, "note", "z"),
        command("f", 2, "note", "undone", offset=11),
        command("f", 3, "fail", "boom", offset=12),
        command("t", 1, "note", "t"),
        command("t", 2, "event", "fail by timer", 4),
        command(None, 2, "note", offset=1),
        command("n", None, "note", offset=2),
        command("n", 2, None, offset=3),
        tick(5),
    ),
    commands(
        command("a", 9, "look"),
        command("c", 9, "look"),
        command("f", 9, "note", "again"),
        command("l", 5, "note", offset=4),
        tick(12),
    ),
    commands(command("c", 18, "look"), tick(27)),
    commands(command("z", 28, "note", "last"), tick(100)),
]


@pytest.fixture(scope="module")
def lives(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """
    A query in event time alone, which ends by itself under the `availableNow` trigger.

    It reads bad rows, late ones, and such as functions fail over; its keys end.
    """
    spec = commanded(timeout=POLICY, processing_timers=False, on_error="reject")
    stream = FileStream(spark, spec, tmp_path_factory.mktemp("lives"), with_rejected=True)
    stream.put(*LIVES)
    return Ran(stream, stream.run())


def test_the_frame_says_that_its_rows_are_of_keys(lives: Ran) -> None:
    """For `Routes`, whatever the columns of the key are called."""
    assert "result" == lives.stream.output().schema["kind"].metadata[ROW_KIND]


def test_keys_end_by_gap_and_by_age(lives: Ran) -> None:
    """The policy that ends a key has the last call; where two do, that is the earlier end."""
    expected = [
        ("a", "event_time_gap", ["x"], []),
        ("a", "look", ["x"], []),
        ("a", "note", ["x"], []),
        ("b", "event_time_gap", ["y"], []),
        ("b", "note", ["y"], []),
        ("c", "look", ["z"], []),
        ("c", "look", ["z"], []),
        ("c", "note", ["z"], []),
        ("c", "time_to_live", ["z"], []),
        *[("clock", "look", None, [])] * 4,
        ("f", "event_time_gap", ["again"], []),
        ("f", "note", ["again"], []),
        ("t", "event_time_gap", ["t"], []),
        ("t", "note+event", ["t"], ["fail by timer"]),
        ("z", "event_time_gap", ["last"], []),
        ("z", "note", ["last"], []),
    ]

    assert expected == calls(lives.stream.rows())


@pytest.mark.since_spark("4.0", "Spark 3.5 can't read state")
def test_nothing_is_stored_of_keys_that_have_ended(lives: Ran, spark: SparkSession) -> None:
    """The last one ends in the batch without data, and Spark's table of state is empty."""
    assert 0 == spark.read.format("statestore").load(lives.stream.checkpoint).count()


@pytest.mark.since_spark("4.0", "Spark 3.5 reports no counts of a micro-batch without data")
def test_every_row_is_accounted_for(lives: Ran) -> None:
    """The counts of each micro-batch tell what became of its rows, and add up."""
    expected = [
        Counts(events=11, processed=6, quarantined=3, failed=2, rows=5),
        Counts(events=5, processed=4, late=1, timers=1, rows=4, failed_output=1),
        Counts(events=2, processed=2, timers=2, rows=4),
        Counts(events=2, processed=2, timers=3, rows=5),
        Counts(timers=1, rows=1),
    ]

    assert expected == lives.counts
    assert all(counts.is_balanced for counts in lives.counts)


def test_what_was_rejected_comes_with_its_reason(lives: Ran) -> None:
    """Null keys and times, nulls in a required field, late rows, and calls that failed."""
    rejected = [row for row in lives.stream.rows() if row.kind != "result" and row.offset != 0]
    found = {(row.kind, row.key, row.offset): row.reason.splitlines()[0] for row in rejected}
    boom = "`process` (tests.support.scenarios.process) raised ValueError: told to fail: boom, for"
    by_timer = (
        "timer 'fail by timer': `on_timer` (tests.support.scenarios.on_timer) raised ValueError"
    )

    assert found.pop(("failed", "f", 11)).startswith(boom)
    assert found.pop(("failed", "f", 12)).startswith(boom)
    assert found.pop(("failed_output", "t", None)).startswith(by_timer)
    assert found == {
        ("quarantined", None, 1): "`key` is null",
        ("quarantined", "n", 2): "its event time is null",
        ("quarantined", "n", 3): "`event.act` is null",
        ("late", "l", 4): "it is at or before the watermark",
    }


YEARS_S: Final = 60 * 365 * 24 * 3600
"""So many seconds before the noon of the scenarios is before 1970."""

CHANGED: Final[dict[str, Any]] = {
    "watermark_delay": "1 second",
    "storage": Storage(bucket_count=3, version=2),
}
NAMED: Final = [
    "`bucket_count` is 3 in the spec, 2 in the checkpoint",
    "`state_version` is 2 in the spec, 1 in the checkpoint",
]


@pytest.mark.nightly
def test_late_rows_are_processed_where_the_spec_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    """They are folded however late they are: Spark drops none of them."""
    spec = commanded(processing_timers=False, lateness=Lateness(late_events="process"))
    stream = FileStream(spark, spec, tmp_path, with_rejected=True)
    stream.put(
        commands(command("a", 100, "note", "first"), tick(100)),
        commands(command("a", 1, "note", "late")),
        commands(command("a", 95, "note", "later"), command("a", -YEARS_S, "note", "by years")),
    )

    counts = stream.run()

    assert [
        Counts(events=2, processed=2, rows=2),
        Counts(events=1, processed=1, rows=1),
        Counts(events=2, processed=2, rows=1),
    ] == counts
    (stored,) = read_state(stream.checkpoint, spec, spark=spark)
    assert Log(["first", "late", "by years", "later"]) == stored.state
    _check_refused(stream, attrs.evolve(spec, **CHANGED))


def _check_refused(stream: FileStream, changed: StatefulSpec[Any, Any, Any]) -> None:
    """Check that a restart under other rules is refused, on the driver and by the query."""
    check_checkpoint(stream.checkpoint, attrs.evolve(changed, **_unchanged(stream)))
    with pytest.raises(StateError, match="under other rules") as refused:
        check_checkpoint(stream.checkpoint, changed)
    stream.put(commands(command("a", 200, "look")))
    with pytest.raises(StreamingQueryException, match="under other rules") as stopped:
        attrs.evolve(stream, spec=changed).run()

    for text in NAMED:
        assert text in str(refused.value)
        assert text in str(stopped.value)
    _, _, hint = str(stopped.value).partition("Hint: ")
    assert "carry the state over to a new checkpoint: seed = " in hint


def _unchanged(stream: FileStream) -> dict[str, Any]:
    spec = stream.spec
    return {"watermark_delay": spec.watermark_delay, "storage": spec.storage}


# -- a batch and a stream, however the events are handed over ----------------------------------


@attrs.frozen
class Amount:
    """An event: a number that may be NaN, and one that may be missing."""

    value: float
    extra: float | None


@attrs.define
class Total:
    """What came so far; the order in which it came does not show."""

    count: int
    total: float
    best: float | None


def is_balanced(key: Any, events: list[Amount], state: Any, times: Any) -> None:
    held = state.get(Total(0, 0.0, None))
    extras = [e.extra for e in events if e.extra is not None]
    extras += [] if held.best is None else [held.best]
    total = held.total + sum(event.value for event in events)
    state.set(Total(held.count + len(events), total, max(extras, default=None)))


def add_up_bucket(events: pa.Table, states: pa.Table, times: Any) -> BucketResult:
    """Add the events of many keys at once."""
    counted = events.group_by("key").aggregate(
        [([], "count_all"), ("value", "sum"), ("extra", "max")]
    )
    fresh = counted.select(["key", "count_all", "value_sum", "extra_max"])
    both = pa.concat_tables([states, fresh.rename_columns(["key", "count", "total", "best"])])
    added = both.group_by("key").aggregate([("count", "sum"), ("total", "sum"), ("best", "max")])
    added = added.select(["key", "count_sum", "total_sum", "best_max"])
    return BucketResult(added.rename_columns(["key", "count", "total", "best"]))


def show(key: Any, name: str, state: Any, times: Any) -> Total:
    held: Total = state.get()
    return held


def totals(process: Any) -> StatefulSpec[Amount, Total, Total]:
    """Return the spec with one of the three functions."""
    return StatefulSpec(
        keys={"key": str},
        event=Amount,
        state=Total,
        result=Total,
        on_timer=show,
        timeout=EventTimeGap("1 hour"),
        event_time="at",
        watermark_delay="10 seconds",
        process=process,
        storage=Storage(bucket_count=2),
    )


NAN: Final = float("nan")
AMOUNTS: Final = [
    [("nan", 1, 1.5, None), ("none", 2, 1.0, None), ("both", 3, 0.5, 2.0), ("one", 3, 9.0, 9.0)],
    [("both", 4, 2.0, None), ("nan", 5, NAN, 3.0), ("none", 5, 0.25, None)],
    [("both", 1, 4.0, -1.0), ("nan", 6, 1.0, 4.0), ("tick", 9_000, 0.0, None)],
]
TOTALS: Final = [
    ("both", 3, "6.5", 2.0),
    ("nan", 3, "nan", 4.0),
    ("none", 2, "1.25", None),
    ("one", 1, "9.0", 9.0),
]


def amounts() -> list[pa.Table]:
    schema = pa.schema({"key": pa.string(), "at": SCHEMA.field("at").type})
    for name in ("value", "extra"):
        schema = schema.append(pa.field(name, pa.float64()))
    return [
        pa.Table.from_pylist(
            [
                {"key": key, "at": instant(seconds), "value": value, "extra": extra}
                for key, seconds, value, extra in rows
            ],
            schema,
        )
        for rows in AMOUNTS
    ]


def shown(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """Return totals in the order of their keys; NaN as text, since it equals nothing."""
    return sorted((row.key, row["count"], str(row.total), row.best) for row in rows)


@pytest.mark.parametrize(
    "process",
    [
        pytest.param(is_balanced, id="events", marks=pytest.mark.long),
        pytest.param(by_bucket(add_up_bucket), id="bucket"),
    ],
)
def test_a_stream_and_a_batch_give_the_same_rows(
    spark: SparkSession, tmp_path: Path, process: Any
) -> None:
    """NaN and null are kept apart, in state and in results, whichever function takes the events."""
    spec = totals(process)
    stream = FileStream(spark, spec, tmp_path)
    stream.put(*amounts())

    counts = stream.run()

    assert TOTALS == shown(stream.rows())
    assert [4, 3, 3, 0] == [count.processed for count in counts]
    observation = Observation()
    rows = apply_with_state(stream.batch(), spec, observation=observation).collect()
    assert sorted([*TOTALS, ("tick", 1, "0.0", None)]) == shown(rows)
    assert (10, 10, 5) == tuple(
        observed(observation)[name] for name in ("events", "processed", "timers")
    )
