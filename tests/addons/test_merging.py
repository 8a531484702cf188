"""Rows that take their places in a table of Delta or Iceberg, each once, whatever runs again."""

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import Formatter
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlparse
from uuid import UUID

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionkit import SpecError
from sessionkit.addons.merging import ATTEMPTS, check_alone, check_types, merge_statement
from sessionkit.errors import SinkError, UnsupportedError
from sessionkit.spark import Routes, start_query
from sessionkit.spark.sinks import Batch, BatchWriter, RowsToWrite
from tests.support.lakes import LAKES, SPEC, IcebergSchema, Lake, events, lake_of, minute, rows_in
from tests.support.streams import FileStream, refused_by_sink

SESSIONS = "session_id string, session_start timestamp, session_end timestamp"
REVISED = "session_id string, n int, revision long, supersedes array<string>"


@pytest.fixture(params=LAKES)
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Lake:
    """Give a place for tables."""
    return lake_of(request.param, spark, tmp_path)


def writer_of(lake: Lake, table: str, schema: str, key: Any = None, mode: Any = "append") -> Any:
    """Return a function that writes a micro-batch, and its writer."""
    rows = RowsToWrite(lake.spark.createDataFrame([], schema).schema, mode=mode)
    writer: BatchWriter = lake.sink(table, key).writer(rows, lake.spark)

    def write(number: int, *values: Any) -> None:
        frame = lake.spark.createDataFrame([*values], schema)
        writer.write(Batch(frame, number, "query", "run"))

    return write


class FilesByPattern:
    """Spark's reader of text files, as far as paths matter: each is a pattern."""

    def text(self, paths: list[str], *, wholetext: bool) -> "FilesByPattern":
        assert wholetext
        self.paths = [re.sub(r"\\(.)", r"[\1]", path) for path in paths]
        return self

    def limit(self, number: int) -> "FilesByPattern":
        self.number = number
        return self

    def collect(self) -> list[tuple[str]]:
        found = [file for path in self.paths for file in Path("/").glob(path.removeprefix("/"))]
        return [(file.read_text(),) for file in found[: self.number]]


def remote_session(active: str) -> Any:
    """Return a session of Connect with an active query, as far as `check_alone` looks at it."""
    settings: dict[str, str] = {}
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__)
    streams = SimpleNamespace(active=[SimpleNamespace(id=active)])
    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    session: Any = kind()
    vars(session).update(version="4.2.0", conf=conf, streams=streams, read=FilesByPattern())
    return session


@pytest.mark.parametrize("name", ["a{b}", "{new}", "{}", "x}", "{{y", "a`{0}"])
def test_a_column_whose_name_has_braces_is_merged_by_its_name(name: str) -> None:
    """Spark formats the statement, to put the rows in: a brace of a name isn't a place for them."""
    table, column = "lake.`t{1}`", f"`{name.replace('`', '``')}`"
    upsert: Any = SimpleNamespace(refuses_duplicates=False)
    matches = f"old.{column} <=> new.{column}"
    statement = merge_statement(table, ["session_id", name], matches, upsert)
    shown = Formatter().format(statement, new="(rows)")

    assert table in shown
    assert " AS old USING (rows) AS new ON new." in shown
    assert f" AND {matches} WHEN MATCHED" in shown
    assert shown.endswith(f"(`session_id`, {column}) VALUES (new.`session_id`, new.{column})")


def test_the_path_of_another_querys_checkpoint_is_taken_as_it_is(tmp_path: Path) -> None:
    """Spark takes a path for a pattern; without its id, a second merge would begin beside it."""
    session = remote_session(active := str(UUID(int=7)))
    checkpoint = tmp_path / "a [b] {c}"
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text(json.dumps({"id": active}))

    check_alone(session, str(checkpoint), "the table", "t")
    check_alone(session, str(checkpoint), "the table", "t")
    with pytest.raises(UnsupportedError, match="from another session"):
        check_alone(session, str(tmp_path / "other"), "the table", "t")


def test_a_replayed_batch_changes_nothing(lake: Lake, tmp_path: Path) -> None:
    """Sessions are replaced and rejected rows added once."""
    stream = FileStream(lake.spark, SPEC, tmp_path / "stream", with_rejected=True)
    stream.put(
        events(("ann", 0, 1), ("bob", 1, 2), (None, 2, 3), ("ann", 5, 4), ("end", 100, 5)),
        events(("ann", 1, 6), (None, 101, 7)),
    )
    sink = Routes(session=lake.sink("visits"), rejected=lake.sink("others"))

    def run() -> tuple[Any, ...]:
        stream.run_to(sink)
        return (
            rows_in(lake, "visits", "key", "values"),
            rows_in(lake, "others", "kind", "line"),
            [lake.commits(table) for table in ("visits", "others")],
        )

    first = run()
    for number in (2, 1):
        stream.forget_end_of(number)

    assert [("ann", [1, 4]), ("bob", [2])] == first[0]
    assert [("late", 600), ("quarantined", 300), ("quarantined", 700)] == first[1]
    assert first == run()


@pytest.mark.parametrize("key", ["id", ()])
def test_a_table_that_is_dropped_is_not_made_again(lake: Lake, key: Any) -> None:
    """The rows of earlier micro-batches would be gone, and nobody would know."""
    frame = lake.spark.createDataFrame([(1,)], "id long")
    rows = RowsToWrite(frame.schema, of_results=False, mode="update" if key else "append")
    first, later = (lake.sink("dropped", key).writer(rows, lake.spark) for _ in range(2))
    first.write(Batch(frame, 0, "query", "run"))
    later.ledger(frame, "query")
    if isinstance(lake, IcebergSchema):
        lake.spark.sql(f"DROP TABLE {lake.name('dropped')}")
    else:
        shutil.rmtree(Path(lake.sink("dropped").table))
    for writer in (first, later):
        batch = Batch(frame, 1, "query", "run")
        assert not writer.is_written(batch)
        with pytest.raises(SinkError, match="is gone, to which this query was writing"):
            writer.write(batch)


@pytest.mark.cell("classic")
def test_merges_that_meet_are_tried_again(lake: Lake) -> None:
    """
    Of two queries that change one row at once, each is there with its last micro-batch.

    On Connect, they would share a session.
    """

    def write(query: str) -> None:
        spark = lake.spark.newSession()
        schema = "id long, query string, n long"
        rows = RowsToWrite(
            spark.createDataFrame([], schema).schema, of_results=False, mode="update"
        )
        writer = lake.sink("met", "id").writer(rows, spark)
        for number in range(ATTEMPTS - 1):  # as often may the other query be first
            frame = spark.createDataFrame([(1, query, number)], schema)
            writer.write(Batch(frame, number, query, "run"))

    writer_of(lake, "met", "id long, query string, n long", "id", "update")(0, (1, "", 0))
    with ThreadPoolExecutor(2) as threads:
        assert [None, None] == list(threads.map(write, ["a", "b"]))
    assert [(1, ATTEMPTS - 2)] == rows_in(lake, "met", "id", "n")


def test_the_highest_revision_stays(lake: Lake) -> None:
    """Within a micro-batch and over several, in any order, and without what is superseded."""
    own = writer_of(lake, "revised", REVISED, ("session_id", "n"), "update")

    def write(number: int, *rows: tuple[str, int, int, list[str]]) -> list[Any]:
        own(number, *rows)
        return rows_in(lake, "revised", "session_id", "n", "revision")

    assert [("a", 0, 2), ("b", 0, 1), ("b", 1, 1)] == write(
        0, ("a", 0, 2, []), ("a", 0, 1, []), ("a", 1, 1, []), ("b", 0, 1, []), ("b", 1, 1, [])
    )
    second: Any = (("a", 0, 1, []), ("b", 0, 2, []), ("c", 0, 3, []))
    assert [("a", 0, 2), ("b", 0, 2), ("c", 0, 3)] == write(1, *second)
    assert [("d", 0, 3)] == write(2, ("d", 0, 3, ["a", "b", "e"]), ("e", 0, 1, ["c"]))


@pytest.mark.parametrize("columns", ["", ", revision long, is_final boolean"])
def test_a_second_session_with_one_id_is_refused(lake: Lake, columns: str) -> None:
    """It would take the place of the first one, whose times the error shows."""
    more: Any = (1, True) if columns else ()
    write = writer_of(lake, "sessions", f"{SESSIONS}{columns}")
    write(0, ("a", minute(1), minute(9), *more), ("b", minute(2), minute(9), *more))
    with pytest.raises(SinkError, match="session_end") as refused:
        write(1, ("a", minute(1), minute(8), *more), ("c", minute(4), minute(9), *more))

    assert str(minute(8).astimezone().minute) in str(refused.value)
    assert 2 == len(rows_in(lake, "sessions", "session_id"))
    write(1, ("c", minute(4), minute(9), *more))
    if columns:
        write(2, ("a", minute(0), minute(9), 2, True))
        assert [("a", 2), ("b", 1), ("c", 1)] == rows_in(lake, "sessions", "session_id", "revision")


def test_what_is_replaced_is_looked_for_at_its_time(lake: Lake) -> None:
    """Files of other times may as well be gone: a session's start only moves back."""
    schema = f"{SESSIONS}, revision long, is_final boolean, supersedes array<string>"
    write = writer_of(lake, "sessions", schema)
    for number in range(4):
        at = 1000 * number
        write(
            number,
            (f"{number}a", minute(at + 10), minute(at + 20), 1, False, []),
            (f"{number}b", minute(at + 30), minute(at + 40), 1, False, []),
        )
    of_files = {row.file: row.n for row in files_of(lake, "sessions").collect()}
    others = [Path(urlparse(file).path) for file, number in of_files.items() if number != "1"]
    for path in others:
        path.rename(path.with_suffix(".away"))
    write(4, ("1a", minute(1005), minute(1045), 2, True, ["1b"]))
    for path in others:
        path.with_suffix(".away").rename(path)
    write(5)

    found = rows_in(lake, "sessions", "session_id", "revision")
    assert 3 == len(others)
    assert sorted([("1a", 2), *((f"{n}{x}", 1) for n in (0, 2, 3) for x in "ab")]) == found


def files_of(lake: Lake, table: str) -> DataFrame:
    """Return the files of a table, with the first letter of the ids in each."""
    number = F.min(F.substring("session_id", 1, 1)).alias("n")
    return lake.spark.table(lake.name(table)).groupBy(F.input_file_name().alias("file")).agg(number)


def test_rows_with_one_key_replace_each_other_or_are_refused(lake: Lake) -> None:
    """Without revisions, neither of two rows in a micro-batch is the right one."""
    write = writer_of(lake, "keyed", "id long, text string", "id", "update")
    write(0, (1, "a"), (2, "b"))
    write(1, (2, "c"), (3, "d"))
    with pytest.raises(SinkError, match=r"two rows of a micro-batch have the same \(id\)"):
        write(2, (4, "e"), (4, "f"))

    assert [(1, "a"), (2, "c"), (3, "d")] == rows_in(lake, "keyed", "id", "text")


def test_a_column_that_a_table_cannot_take_is_refused(lake: Lake, tmp_path: Path) -> None:
    """Before the query starts; so is a table that lacks one, and a name of the sink's own."""
    kind = "delta" if hasattr(lake, "folder") else "iceberg"
    lake.spark.sql(f"CREATE TABLE {lake.name('t')} (parts string) USING {kind}")
    rows = lake.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    for folder, columns, reason in (
        ("one", "struct(value) AS parts", "column `parts` of the table .* is string"),
        ("two", "value", "has no column `value`; it has parts"),
        ("three", "value AS _Sessionkit_Deletes", "has a name as the sink .* gives to its own"),
    ):
        with refused_by_sink(lake.spark, reason):
            start_query(
                rows.selectExpr(columns),
                sink=lake.sink("t", key=()),
                trigger="availableNow",
                checkpoint=tmp_path / folder,
            ).awaitTermination()


@pytest.mark.parametrize(
    "kind",
    [
        T.DayTimeIntervalType(),
        T.ArrayType(T.DayTimeIntervalType()),
        T.MapType(T.StringType(), T.StructType([T.StructField("took", T.DayTimeIntervalType())])),
    ],
)
def test_an_interval_is_refused(kind: T.DataType) -> None:
    """Also inside of a column, but not where only a name says so."""
    fine = T.StructField("interval ", T.StructType([T.StructField("interval day", T.LongType())]))
    check_types(T.StructType([fine]), "Delta")
    with pytest.raises(SpecError, match="Delta has no type for `took`"):
        check_types(T.StructType([fine, T.StructField("took", kind)]), "Delta")
