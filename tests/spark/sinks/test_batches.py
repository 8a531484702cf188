"""Which rows go to which sink, and which places may take the micro-batches of a query."""

from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import attrs
import pytest
from pyspark.sql import types as T

from sessionkit import SpecError
from sessionkit.spark import (
    AtLeastOnce,
    Console,
    ExactlyOnce,
    Files,
    Kafka,
    Routes,
)
from sessionkit.spark._columns import OF_REJECTED, ROW_KIND
from sessionkit.spark.sinks import Ledger, RowsToWrite
from sessionkit.spark.sinks.batches import Part, Route, Start, check_places, routes_of
from sessionkit.spark.sinks.writers import TopicWriter


def ledger(last: int | None, *, may_join: bool = True) -> Ledger:
    """Return what a table says that has the micro-batches up to one."""
    return Ledger("the table t", last, "rewind to {}".format, may_join)


@pytest.mark.parametrize(
    ("planned", "finished", "last"),
    [
        (-1, -1, None),  # a first start
        (0, -1, None),  # the first micro-batch never reached the table
        (0, -1, 0),  # it did, and the checkpoint doesn't know
        (7, 7, 7),  # all is done
        (8, 7, 7),  # a crash before the sink
        (8, 7, 8),  # a crash between the sink and the checkpoint
    ],
)
def test_a_micro_batch_that_a_crash_left_unfinished_runs_again(
    planned: int, finished: int, last: int | None
) -> None:
    """A micro-batch beyond the finished ones is legal where it's planned: it runs again."""
    Start("/c", planned, finished).check(ledger(last))


@pytest.mark.parametrize(
    ("planned", "finished", "last", "found", "hint"),
    [
        (7, 7, 8, "hasn't planned yet, whose last one is 7", "rewind to 7"),
        (8, 7, 9, "hasn't planned yet, whose last one is 8", "rewind to 7"),
        (-1, -1, 0, "hasn't planned yet, whose last one is none", "rewind to -1"),
        (7, 7, 6, "doesn't have micro-batch 7, which", "restore both"),
        (8, 7, 0, "older than the checkpoint", "restore both"),
        (7, 7, None, "nor any other of its query", "sink_since=8"),
        (0, 0, None, "nor any other of its query", "sink_since=1"),
    ],
)
def test_a_checkpoint_and_a_table_of_two_moments_are_refused(
    planned: int, finished: int, last: int | None, found: str, hint: str
) -> None:
    """An older checkpoint would lose rows in silence, and so would an older table."""
    with pytest.raises(SpecError) as refused:
        Start("/c", planned, finished).check(ledger(last))

    message, _, advice = str(refused.value).partition("\n\nHint: ")
    assert found in message
    assert "the table t" in message
    assert "the checkpoint /c" in message
    assert hint in advice


def test_a_place_joins_a_query_where_that_is_said() -> None:
    """From then on its number is that of the query, so losing it is found."""
    Start("/c", 8, 7, since=8).check(ledger(None))
    Start("/c", 9, 8, since=8).check(ledger(8))
    with pytest.raises(SpecError, match="nor any other of its query"):
        Start("/c", 9, 8, since=8).check(ledger(None))
    with pytest.raises(SpecError, match="nor any other of its query") as refused:
        Start("/c", 7, 7, since=8).check(ledger(None, may_join=False))
    assert "sink_since" not in str(refused.value)


def test_what_knows_no_micro_batches_is_not_checked() -> None:
    """A topic takes all of them."""
    nothing: Any = MagicMock()
    route = Route(Kafka("h:1", "t"), T.StructType())
    check_places(nothing, [Part(route, TopicWriter(Kafka("h:1", "t")))], "q", Start("/c", 7, 7))


COLUMNS = ("kind", "user", "session_id", "pages", "reason", "event_time", "event_id", "event")
SCHEMA = T.StructType([T.StructField(name, T.StringType()) for name in COLUMNS])
WRITE: Any = repr
LAST: Any = max
VISITS, REJECTED = Files("json", "/visits"), Files("json", "/rejected")


@attrs.frozen
class Table:
    """A sink that isn't Spark's own."""

    place: object

    @property
    def label(self) -> str:
        return f"the table {self.place}"

    def writer(self, rows: RowsToWrite, spark: object) -> Any:
        raise NotImplementedError


def without(*names: str) -> T.StructType:
    return T.StructType([field for field in SCHEMA.fields if field.name not in names])


def test_rejected_rows_are_those_of_no_named_kind() -> None:
    """A kind that nobody has named yet goes there too; results have their own columns."""
    late = AtLeastOnce(lambda frame, batch_id: None)
    session, other, rest = routes_of(SCHEMA, Routes(session=VISITS, late=late, rejected=REJECTED))

    assert (VISITS, "session") == (session.sink, session.name)
    assert ["user", "session_id", "pages"] == session.schema.names
    assert (late, "late", SCHEMA) == (other.sink, other.name, other.schema)
    assert (REJECTED, "rejected", ("session", "late")) == (rest.sink, rest.name, rest.others)
    assert [True, False, False] == [one.of_results for one in (session, other, rest)]


def test_rejected_rows_may_be_left_out_by_saying_so() -> None:
    """None is an answer; no answer isn't."""
    assert [VISITS] == [
        one.sink for one in routes_of(SCHEMA, Routes(session=VISITS, rejected=None))
    ]
    with pytest.raises(SpecError, match=r"Routes needs `rejected`\n\nHint: add rejected=None, or"):
        Routes(session=VISITS)  # type: ignore[call-arg]


def test_a_sink_alone_takes_all_rows() -> None:
    """With every column, also where the frame has kinds of rows."""
    (route,) = routes_of(SCHEMA, VISITS)

    assert (VISITS, SCHEMA, "all") == (route.sink, route.schema, route.name)


@pytest.mark.parametrize(
    ("schema", "sink", "found", "hint"),
    [
        (
            without("kind", "reason"),
            Routes(session=VISITS, rejected=None),
            "the frame has one kind",
            "with_rejected=True",
        ),
        (
            without("reason"),
            Routes(session=VISITS, rejected=None),
            "the frame has `kind` alone",
            "keep both of them",
        ),
        (SCHEMA, Routes(rejected=VISITS), "no sink for them", "Routes(session="),
        (SCHEMA, Routes(result=VISITS, rejected=None), "no sink for them", "Routes(session="),
        (
            without("session_id"),
            Routes(result=VISITS, session=VISITS, rejected=None),
            "a sink for `session`",
            "Routes(result=",
        ),
        (
            SCHEMA,
            Routes(session=VISITS, rejected=Console()),  # type: ignore[arg-type]
            "`rejected` of Routes must be a sink that takes micro-batches",
            "pass one of TableSink",
        ),
        (
            SCHEMA,
            Routes(session="postgresql://ann@db.example/shop", rejected=None),  # type: ignore[arg-type]
            "must be a sink that takes micro-batches, found a str",
            "pass one of TableSink",
        ),
    ],
)
def test_what_cannot_be_routed_is_refused(
    schema: T.StructType, sink: Any, found: str, hint: str
) -> None:
    """Before Spark starts anything."""
    with pytest.raises(SpecError) as refused:
        routes_of(schema, sink)

    message, _, advice = str(refused.value).partition("\n\nHint: ")
    assert found in message
    assert hint in advice


@pytest.mark.parametrize(
    ("sink", "same", "place"),
    [
        (Files("json", "/rejected"), Files("csv", "/rejected/"), "the folder /rejected"),
        (Files("json", "/rejected"), Files("csv", "file:///rejected"), "the folder /rejected"),
        (Files("json", "/rejected"), Table(Path("/rejected")), "the folder /rejected"),
        (Table("late"), Table("late"), "the table late"),
        (Kafka("h:1,i:2", "t"), Kafka("i:2,j:3", "t"), "the topic t"),
        (ExactlyOnce(WRITE, LAST), ExactlyOnce(print, LAST), "the store"),
    ],
)
def test_two_sinks_of_one_place_are_refused(sink: Any, same: Any, place: str) -> None:
    """After the rows of the first, the place would have the micro-batch, and not those of both."""
    with pytest.raises(SpecError, match=f"`late` and `rejected` of Routes write to {place}"):
        routes_of(SCHEMA, Routes(session=VISITS, late=sink, rejected=same))


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (Files("json", "/data"), Files("json", "/data/late")),
        (Files("json", "/data"), Table(Path("/data/tables/late"))),
        (Files("json", "s3://b/data/"), Files("json", "s3://b/data/late")),
    ],
)
def test_a_place_within_another_one_is_refused(outer: Any, inner: Any) -> None:
    """Who reads the outer folder would find the rows of both, in either order of the routes."""
    for late, rejected in ((outer, inner), (inner, outer)):
        with pytest.raises(SpecError, match="and, within it, to"):
            routes_of(SCHEMA, Routes(session=VISITS, late=late, rejected=rejected))


def test_places_that_only_look_alike_are_two() -> None:
    """A name that begins with another one isn't within it; a topic has its brokers."""
    for late, rejected in (
        (Files("json", "/data"), Files("json", "/data-late")),
        (Table("late"), Table("Late")),
        (Kafka("h:1", "t"), Kafka("j:3", "t")),
        (Kafka("h:1", "t"), Kafka("h:1", "u")),
        (AtLeastOnce(print), AtLeastOnce(print)),
    ):
        assert 3 == len(routes_of(SCHEMA, Routes(session=VISITS, late=late, rejected=rejected)))


def test_rows_of_keys_have_their_route_whatever_the_key_is_called() -> None:
    """A key may be called `session_id`: the frame says itself that its rows are no sessions."""
    kind, *fields = SCHEMA.fields
    kind = T.StructField(kind.name, kind.dataType, metadata={ROW_KIND: "result"})
    (route,) = routes_of(T.StructType([kind, *fields]), Routes(result=VISITS, rejected=None))

    assert "result" == route.name
    with pytest.raises(SpecError, match="the frame has rows of kind `result`"):
        routes_of(T.StructType([kind, *fields]), Routes(session=VISITS, rejected=None))


def test_a_result_row_has_the_columns_that_a_user_adds() -> None:
    """Wherever they are in the frame; those of rejected rows are known by name, or marked."""
    passed = T.StructField("line", T.LongType(), metadata={OF_REJECTED: True})
    first, last = (T.StructField(name, T.DateType()) for name in ("day", "hour"))
    frame = T.StructType([first, *SCHEMA.fields, passed, last])
    results, rest = routes_of(frame, Routes(session=VISITS, rejected=REJECTED))

    assert ["day", "user", "session_id", "pages", "hour"] == results.schema.names
    assert frame == rest.schema
