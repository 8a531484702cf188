"""What Spark's own API lets one write, where sessionkit takes something else: errors of ours."""

from collections.abc import Callable
from typing import Any, Final

import attrs
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import SessionSpec
from sessionkit import aggregates as agg
from sessionkit.spark import sessionize, sessions
from sessionkit.spark.dedup import (
    drop_duplicates_by_key,
    drop_duplicates_by_key_and_time,
    drop_duplicates_within,
)
from sessionkit.spark.shorthand import Sessions
from sessionkit.spark.watermarks import declare_watermark
from sessionkit.spark.windows import session, sliding, tumbling
from tests.support.refusals import refusal, says

LONGEST: Final = 300
Use = Callable[[DataFrame], object]


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT 'ann' user, TIMESTAMP '2026-03-02 10:00:00Z' ts, '/x' page")


@attrs.frozen
class View:
    page: str


def visits(views: Any, **changes: Any) -> Sessions:
    return sessions(views, **{"keys": "user", "event_time": "ts", "gap": "30m", **changes})


def spec_of(**changes: Any) -> object:
    named: dict[str, Any] = {"keys": {"user": str}, "event_time": "ts", "watermark_delay": "1m"}
    return SessionSpec.aggregate(View, {"n": agg.count()}, gap="30m", **{**named, **changes})


@pytest.mark.parametrize(
    ("use", "facts"),
    [
        (
            lambda views: visits(views, keys=F.col("user")),
            ("`keys`", "'user'", 'write keys="user"'),
        ),
        (lambda views: visits(views, keys=[F.col("user")]), ("`keys`", "'user'")),
        (lambda views: visits(views, keys=None), ("`keys`", "None")),
        (
            lambda views: visits(views, event_time=F.col("ts")),
            ("`event_time`", "'ts'", 'write event_time="ts"'),
        ),
        (lambda _: spec_of(event_time=F.col("ts")), ("`event_time`", "'ts'")),
        (lambda _: spec_of(keys=F.col("user")), ("`keys`", "'user'")),
        (lambda _: drop_duplicates_by_key(F.col("id"), unbounded_state=True), ("`keys`", "'id'")),  # type: ignore[arg-type]
        (
            lambda _: drop_duplicates_by_key_and_time(
                [F.col("id")],  # type: ignore[list-item]
                event_time="ts",
                watermark_delay="1m",
            ),
            ("`keys`", "'id'"),
        ),
        (
            lambda _: drop_duplicates_within("1h", keys="id", event_time=F.col("ts")),  # type: ignore[arg-type]
            ("`event_time`", "'ts'"),
        ),
        (lambda _: tumbling("1h", event_time=F.col("ts")), ("`event_time`", "'ts'")),  # type: ignore[arg-type]
        (lambda _: sliding("1h", every="5m", event_time=F.col("ts")), ("`event_time`", "'ts'")),  # type: ignore[arg-type]
        (lambda _: session("1h", event_time=F.col("ts")), ("`event_time`", "'ts'")),  # type: ignore[arg-type]
        (lambda _: tumbling("1h", event_time="ts", keys=F.col("page")), ("`keys`", "'page'")),  # type: ignore[arg-type]
        (lambda views: declare_watermark(views, F.col("ts"), "1m"), ("`event_time`", "'ts'")),  # type: ignore[arg-type]
    ],
)
def test_a_column_is_refused_where_a_name_belongs(
    use: Use, facts: tuple[str, ...], views: Any
) -> None:
    """The argument and the column are named, and what to write."""
    text = refusal(use, views)

    assert says(text, "name", *facts)
    assert len(text) <= LONGEST


@pytest.mark.parametrize(
    ("use", "facts"),
    [
        (lambda views: visits(views).agg(F.count("*")), ("agg", "(n=")),  # type: ignore[call-arg]
        (lambda views: visits(views).agg({"page": "count"}), ("agg", "(n=")),  # type: ignore[call-arg]
        (lambda views: visits(views).agg(n=F.count("*")), ("`n`", "count", "agg.count()")),  # type: ignore[arg-type]
        (lambda views: visits(views).spec(n="count(*)"), ("`n`", "'count(*)'", "agg.count()")),  # type: ignore[arg-type]
        (lambda _: tumbling("1h", event_time="ts").agg(F.count("*")), ("agg", "(n=")),  # type: ignore[call-arg]
        (lambda _: tumbling("1h", event_time="ts").agg(n=agg.count()), ("`n`", '"count(*)"')),  # type: ignore[arg-type]
        (
            lambda views: visits(views).agg(n=agg.count(where="page = '/x'")),
            ("`page = '/x'`", "pc.field("),
        ),
        (lambda views: visits(views).agg(n=agg.any("page = '/x'")), ("`page = '/x'`", "pc.field(")),
        (lambda views: visits(views).agg(n=agg.first("upper(page)")), ("`upper(page)`", "before")),
        (
            lambda views: visits(views).agg(n=agg.count(where=F.col("page") == "/x")),
            ("`where`", "pc.field("),
        ),
    ],
)
def test_what_is_no_aggregate_or_condition_is_refused(
    use: Use, facts: tuple[str, ...], views: Any
) -> None:
    """With what to write in its place."""
    text = refusal(use, views)

    assert says(text, *facts)
    assert len(text) <= LONGEST


@pytest.mark.parametrize("name", ["count", "show", "toPandas", "writeStream", "columns"])
def test_what_makes_a_frame_is_none_yet(name: str, views: Any) -> None:
    """A method of a frame is refused with what gives the frame; for Python it isn't there."""
    windows = tumbling("1h", event_time="ts")
    made: list[tuple[Any, str]] = [
        (visits(views), ".agg(n=agg.count())"),
        (drop_duplicates_within("1h", keys="user", event_time="ts"), ".apply(frame)"),
        (windows, ".apply(frame)"),
        (windows.agg(n="count(*)"), ".apply(frame)"),
    ]

    for one, hint in made:
        if name == "columns" and hasattr(type(one), name):
            continue
        text = refusal(getattr, one, name)
        assert says(text, f"`{name}`", hint)
        assert len(text) <= LONGEST
        assert not hasattr(one, name)
        assert not hasattr(one, f"_{name}_")
    text = refusal(sessionize, visits(views), visits(views).spec(n=agg.count()))
    assert says(text, "`events`", "Sessions", ".agg(...)")


def test_conditions_are_combined_as_the_docstring_says(views: Any) -> None:
    """By `&`, `|`, `~` and `isin`."""
    page = pc.field("page")
    where = page.isin(["/x", "/y"]) & ~(page == "/y") | page.is_null()

    assert [1] == [row.n for row in visits(views).agg(n=agg.count(where=where)).collect()]
