"""Sessions of a frame in one call: the rows of the typed spec, on a batch, a stream and a test."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from sessionkit import (
    EventTimeGap,
    Inputs,
    Memory,
    Results,
    SchemaError,
    SessionRules,
    SessionSpec,
    SpecError,
)
from sessionkit import aggregates as agg
from sessionkit.addons import presets
from sessionkit.spark import Files, Routes, reconcile, sessionize, sessions, start_query
from sessionkit.spark.shorthand import Sessions
from sessionkit.spark.sinks.batches import routes_of
from sessionkit.testing import SessionDriver
from tests.support.frames import assert_same_rows
from tests.support.refusals import refusal, says
from tests.support.streams import write_files

NOON = datetime(2026, 3, 8, 12, tzinfo=UTC)
ROWS = [
    ("ann", 0, "/shoes", 3),
    ("bob", 10, "/hats", None),
    ("ann", 20, "/thanks", 4),
    ("ann", 5, None, 5),
    ("ann", 90, "/jobs", 6),
]
TABLE = pa.table(
    {
        "user": [user for user, *_ in ROWS],
        "ts": pa.array(
            [NOON + timedelta(minutes=minute) for _, minute, *_ in ROWS],
            pa.timestamp("us", tz="UTC"),
        ),
        "page": [page for *_, page, _ in ROWS],
        "seconds": pa.array([seconds for *_, seconds in ROWS], pa.int32()),
    }
)
WANTED = {
    "pages": agg.count(),
    "landing": agg.first("page"),
    "seconds": agg.sum("seconds"),
    "bought": agg.any(pc.field("page") == "/thanks"),
    "long": agg.count(where=pc.field("seconds") >= 3) > 2,
}


@attrs.frozen
class View:
    page: str | None
    seconds: int | None


TYPED = SessionSpec.aggregate(
    View, WANTED, keys={"user": str}, event_time="ts", gap="30 minutes", watermark_delay="10m"
)


@pytest.fixture(scope="module")
def views(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    folder = tmp_path_factory.mktemp("views")
    write_files(folder, [TABLE])
    return spark.read.parquet(str(folder))


def visits(frame: DataFrame) -> Sessions:
    return sessions(
        frame, keys="user", event_time="ts", gap="30 minutes", watermark_delay="10 minutes"
    )


def test_a_batch_gives_the_rows_of_the_typed_spec(views: DataFrame) -> None:
    found = visits(views).agg(**WANTED)
    wanted = sessionize(views, TYPED)
    assert found.schema == wanted.schema
    assert_same_rows(wanted, found)
    assert {row.landing for row in found.collect()} == {"/shoes", "/hats", "/jobs"}


def test_a_stream_goes_on_with_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    """The classes are made anew at each start, and fit what is stored."""
    out = str(tmp_path / "out")
    for number in (0, 1):
        write_files(tmp_path / "in", [TABLE.slice(3 * number, 3)], first=number)
        schema = "user string, ts timestamp, page string, seconds int"
        frame = spark.readStream.schema(schema).parquet(str(tmp_path / "in"))
        start_query(
            visits(frame).agg(**WANTED),
            sink=Files("parquet", out),
            trigger="availableNow",
            checkpoint=str(tmp_path / "checkpoint"),
        ).awaitTermination()
    rows = {row.user: row for row in spark.read.parquet(out).collect()}
    assert (rows["ann"].pages, rows["ann"].seconds, rows["ann"].bought) == (3, 12, True)
    assert (rows["bob"].pages, rows["bob"].seconds, rows["bob"].long) == (1, 0, False)


def test_the_spec_of_the_shorthand_runs_without_spark(views: DataFrame) -> None:
    spec = visits(views).spec(pages=agg.count(), landing=agg.first("page"))
    assert [field.name for field in attrs.fields(spec.event)] == ["page"]
    driver = SessionDriver(spec)
    driver.add("ann", NOON, spec.event("/shoes"))
    driver.run_batch()
    driver.advance_watermark_to(NOON + timedelta(minutes=30))
    driver.run_batch()
    assert [(row.pages, row.landing) for row in driver.take_results()] == [(1, "/shoes")]


def test_events_keep_their_columns_and_get_a_session(views: DataFrame) -> None:
    numbered = visits(views).events()
    assert {*views.columns, "session_id", "number"} <= set(numbered.columns)
    ids = {
        (row.user, row.session_start): row.session_id
        for row in visits(views).agg(n=agg.count()).collect()
    }
    found = [(row.user, row.number, row.page, row.seconds) for row in numbered.collect()]
    assert sorted(found, key=str) == sorted(
        [
            ("ann", 1, "/shoes", 3),
            ("ann", 2, None, 5),
            ("ann", 3, "/thanks", 4),
            ("ann", 1, "/jobs", 6),
            ("bob", 1, "/hats", None),
        ],
        key=str,
    )
    assert {row.session_id for row in numbered.collect()} == set(ids.values())


def test_every_type_that_can_be_read_is(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, NOON)], "k int, at timestamp").select(
        "k",
        "at",
        F.lit(2).cast("short").alias("short"),
        F.lit(1.5).cast("float").alias("float"),
        F.lit("x").cast("binary").alias("raw"),
        F.expr("date'2026-03-08'").alias("day"),
        F.expr("cast(1.25 as decimal(9, 2))").alias("price"),
        F.expr("interval 90 seconds").alias("spent"),
        F.expr("array(1, null)").alias("list"),
        F.expr("map('a', true)").alias("flags"),
        F.expr("named_struct('x', 1, 'ys', array('y'))").alias("inner"),
    )
    (row,) = sessions(frame, keys="k", event_time="at", gap="1 minute").events().collect()
    assert (row.k, row.short, row.float, bytes(row.raw)) == (1, 2, 1.5, b"x")
    assert (row.day, row.price, row.spent) == (
        date(2026, 3, 8),
        Decimal("1.25"),
        timedelta(seconds=90),
    )
    assert (row.list, row.flags, row.inner.x, row.inner.ys) == ([1, None], {"a": True}, 1, ["y"])


def test_several_keys_and_groups_of_the_spec(views: DataFrame) -> None:
    of = sessions(
        views,
        keys=["user", "page"],
        event_time="ts",
        gap="30 minutes",
        results=Results(emit="on_update"),
    )
    rows = of.agg(n=agg.count()).collect()
    assert [row.is_final for row in rows] == [True] * len(rows)
    assert {(row.user, row.page) for row in rows} == {
        ("ann", "/shoes"),
        ("bob", "/hats"),
        ("ann", "/thanks"),
        ("ann", "/jobs"),
    }


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (
            lambda of: of.agg(x=agg.first("pag")),
            SchemaError,
            "reads `pag`; the frame has user, ts",
        ),
        (lambda of: of.agg(x=agg.any(pc.field("pge") == "x")), SchemaError, "reads `pge`"),
        (lambda of: of.agg(x=agg.count(where="here")), SchemaError, "reads `here`"),
        (lambda of: of.agg(x=agg.sum("page")), SpecError, "`Event.page` is none of int, float"),
        (lambda of: of.agg(x=3), SpecError, "`x` must be an aggregate of sessionkit, found 3"),
        (
            lambda of: of.agg(x=agg.count() == agg.sum("seconds")),
            SpecError,
            "by .eq(...): `==` compares",
        ),
        (lambda of: of.agg(), SpecError, "write .agg(events=agg.count())"),
    ],
)
def test_an_aggregate_that_cannot_work_is_refused(
    views: DataFrame, call: Callable[[Sessions], Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as raised:
        call(visits(views))
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"keys": "usr"}, SchemaError, "the key `usr` is missing; the frame has user, ts, page"),
        ({"event_time": "at"}, SchemaError, "the event time `at` is missing"),
        ({"event_time": "page"}, SchemaError, "must be a timestamp, found string"),
        ({"gap": "soon"}, SpecError, "`gap`"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(
    views: DataFrame, arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as raised:
        sessions(views, **{"keys": "user", "event_time": "ts", "gap": "1m", **arguments}).agg(
            n=agg.count()
        )
    assert said in str(raised.value)


def longer_by_page(view: Any) -> timedelta:
    return timedelta(minutes=5 if view.page in {None, "/shoes"} else 30)


def is_blank(view: Any) -> bool:
    return view.page is None


THANKS = pc.field("page") == "/thanks"
IN_ORDER: dict[str, Any] = {"order": "event_time"}


@pytest.mark.parametrize(
    ("arguments", "reads", "needs"),
    [
        ({"timeout": SessionRules("30m", max_duration="10m")}, [], IN_ORDER),
        ({"timeout": SessionRules("30m", max_events=2)}, [], IN_ORDER),
        ({"timeout": SessionRules("30m", until=THANKS)}, ["page"], IN_ORDER),
        ({"timeout": SessionRules("30m", until=is_blank)}, ["page", "seconds"], IN_ORDER),
        ({"timeout": SessionRules("30m", starts_with=pc.field("page") == "/")}, ["page"], IN_ORDER),
        ({"timeout": SessionRules("30m", changes_of=["seconds"])}, ["seconds"], IN_ORDER),
        ({"timeout": SessionRules("30m", changes_of="user")}, ["user"], IN_ORDER),
        ({"timeout": SessionRules("30m", opens_with=THANKS)}, ["page"], {}),
        ({"timeout": SessionRules("30m", extends=THANKS)}, ["page"], {}),
        ({"timeout": SessionRules("30m", midnight="Europe/Berlin")}, [], {}),
        ({"timeout": presets.amplitude("mobile")}, [], {}),
        ({"timeout": presets.posthog(opens_with=THANKS)}, ["page"], IN_ORDER),
        ({"timeout": presets.snowplow_unified()}, [], IN_ORDER),
        ({"timeout": EventTimeGap(longer_by_page, max_gap="1h")}, ["page", "seconds"], {}),
        ({"gap": "30m", "sequence": "seconds"}, ["seconds"], {}),
        ({"gap": "30m", "inputs": Inputs(event_id="page")}, ["page"], {}),
        ({"gap": "30m", "inputs": Inputs(event_id=["user", "seconds"])}, ["seconds"], {}),
        (
            {"gap": "30m", "inputs": Inputs(event_id="page", passthrough={"page": str})},
            [],
            {},
        ),
        ({"gap": "30m", "inputs": Inputs(drop_duplicates_for="1m")}, ["page", "seconds"], {}),
        (
            {"gap": "30m", "inputs": Inputs(drop_duplicates_for="1m", event_id="page")},
            ["page"],
            {},
        ),
    ],
)
def test_the_shorthand_takes_the_arguments_of_a_spec_and_reads_their_columns(
    views: DataFrame, arguments: dict[str, Any], reads: list[str], needs: dict[str, Any]
) -> None:
    """Those that no aggregate reads, too; and in time order where a rule depends on it."""
    of = sessions(views, keys="user", event_time="ts", **arguments)
    spec = of.spec(pages=agg.count())

    assert reads == [field.name for field in attrs.fields(spec.event)]
    assert needs.get("order", "arrival") == spec.order
    assert {"user", "page", "seconds", "session_id"} <= {*of.events().columns}


@pytest.mark.parametrize(
    ("arguments", "pages"),
    [
        ({"timeout": SessionRules("30m", until=is_blank)}, [1, 1, 1, 2]),
        ({"timeout": SessionRules("30m", max_events=2)}, [1, 1, 1, 2]),
        ({"timeout": EventTimeGap(longer_by_page, max_gap="1h")}, [1, 1, 1, 2]),
        ({"gap": "2h", "inputs": Inputs(drop_duplicates_for="0s")}, [1, 4]),
        ({"gap": "2h", "inputs": Inputs(drop_duplicates_for="0s", event_id="user")}, [1, 1]),
        ({"gap": "2h", "sequence": "number"}, [1, 4]),
    ],
)
def test_each_argument_of_the_shorthand_shows_in_the_rows(
    views: DataFrame, arguments: dict[str, Any], pages: list[int]
) -> None:
    """By rules and functions that read columns which no aggregate does."""
    numbered = views.withColumn("number", F.lit(1))
    of = sessions(numbered, keys="user", event_time="ts", **arguments)
    assert pages == sorted(row.pages for row in of.agg(pages=agg.count()).collect())


def test_an_order_that_is_asked_for_is_taken(views: DataFrame) -> None:
    """A spec refuses it where it only holds events back."""
    of: dict[str, Any] = {"keys": "user", "event_time": "ts", "gap": "1m"}
    found = sessions(views, order="event_time", **of, inputs=Inputs(drop_duplicates_for="1m"))
    assert "event_time" == found.spec(n=agg.count()).order
    with pytest.raises(SpecError, match="leave `order` out"):
        sessions(views, order="event_time", **of).agg(n=agg.count())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"timeout": SessionRules("1m", until=pc.field("pge") == "/")}, "`until` reads `pge`"),
        ({"timeout": SessionRules("1m", changes_of="pge")}, "`changes_of` reads `pge`"),
        ({"timeout": SessionRules("1m", opens_with="is_view")}, "`opens_with` reads `is_view`"),
        ({"gap": "1m", "inputs": Inputs(event_id="pge")}, "`event_id` reads `pge`"),
        ({"gap": "1m", "sequence": "pge"}, "`sequence` reads `pge`"),
    ],
)
def test_a_column_that_an_argument_reads_and_the_frame_lacks_is_named(
    views: DataFrame, arguments: dict[str, Any], said: str
) -> None:
    """At the call, with the columns of the frame, not with a class that the user doesn't have."""
    with pytest.raises(SchemaError) as raised:
        sessions(views, keys="user", event_time="ts", **arguments)
    assert f"{said}; the frame has user, ts, page, seconds" in str(raised.value)


def test_a_memory_carries_aggregates_and_says_so(views: DataFrame) -> None:
    """Who names a column of the frame is told how to have it in the row."""
    memory = Memory(time_to_live="1 day", first={"first_page": "page"})
    of = sessions(views, keys="user", event_time="ts", gap="30m", memory=memory)
    text = refusal(lambda: of.agg(n=agg.count()))

    assert says(text, "`page` of the frame", 'write .agg(page=agg.first("page"), ...)'[6:])
    rows = of.agg(page=agg.first("page")).collect()
    assert {"/shoes", "/hats"} == {row.first_page for row in rows}


def test_a_stream_needs_a_delay(spark: SparkSession) -> None:
    frame = spark.readStream.format("rate").load()
    with pytest.raises(SpecError, match="a stream needs `watermark_delay`"):
        sessions(frame, keys="value", event_time="timestamp", gap="1 minute")


def test_a_column_that_cannot_be_read_is_named(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, NOON)], "k int, at timestamp")
    frame = frame.withColumn("odd", F.expr("array(map(1, 2))"))
    with pytest.raises(SchemaError, match=r"`odd\[\]` is map<int,int>"):
        sessions(frame, keys="k", event_time="at", gap="1 minute").events()


@pytest.mark.parametrize("name", ["the page", "class", "self"])
def test_a_column_that_cannot_be_a_field_is_refused(spark: SparkSession, name: str) -> None:
    """Its name, and what to do, come before anything runs; others may still be read."""
    frame = spark.createDataFrame(TABLE.to_pandas()).withColumnRenamed("page", name)
    found = sessions(frame, keys="user", event_time="ts", gap="30 minutes")
    for asked in (found.events, lambda: found.agg(landing=agg.first(name))):
        with pytest.raises(SpecError, match="Hint: rename it") as refused:
            asked()
        assert f"the column `{name}`" in str(refused.value)

    assert 3 == found.agg(seconds=agg.sum("seconds")).count()


CLICKS = "kind string, event_time timestamp, event string, event_id string, reason string"


def test_a_clickstream_keeps_the_names_of_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Those of rejected rows clash only where these are asked for: the error says which one."""
    clicks = spark.createDataFrame([("buy", NOON, "pay", "e1", None)], CLICKS)
    of = sessions(clicks, keys="kind", event_time="event_time", gap="30 minutes")
    (row,) = of.events().collect()
    (counted,) = of.agg(reason=agg.first("event_id")).collect()

    assert ("buy", NOON) == (row.kind, row.event_time.astimezone(UTC))
    assert ("pay", "e1", None) == (row.event, row.event_id, row.reason)
    assert ("buy", "e1") == (counted.kind, counted.reason)

    told = sessions(clicks, keys="kind", event_time="event_time", gap="1 hour", with_rejected=True)
    assert says(refusal(told.events), "rejected rows", "the key `kind`", "withColumnRenamed")

    frame = spark.readStream.schema(CLICKS).parquet(str(tmp_path))
    of = sessions(
        frame, keys="kind", event_time="event_time", gap="1 hour", watermark_delay="1 minute"
    )
    rows = of.agg(reason=agg.first("event_id"))
    files = Files("parquet", str(tmp_path / "out"))
    routes = Routes(session=files, rejected=None)
    (route,) = routes_of(rows.schema, files)
    assert route.of_results
    assert says(refusal(routes_of, rows.schema, routes), "the frame has one kind")


def test_a_batch_returns_the_rows_that_it_leaves_out_and_counts_them(spark: SparkSession) -> None:
    """Epoch milliseconds read as seconds are in the year 58000: all of them are quarantined."""
    counts = Observation()
    rows = [(None, NOON.timestamp()), ("ann", None), ("ann", NOON.timestamp() * 1000)]
    frame = spark.createDataFrame(rows, "user string, at double")
    frame = frame.withColumn("at", F.timestamp_seconds("at"))
    found = sessions(
        frame, keys="user", event_time="at", gap="1 hour", with_rejected=True, observation=counts
    ).agg(n=agg.count())

    assert {
        "`user` is null",
        "its event time is null",
        "its event time, or an end counted from it, is after the year 9999",
    } == {row.reason for row in found.collect()}
    found_counts = reconcile(counts).counts
    assert (3, 3) == (found_counts.events, found_counts.quarantined)
