"""Files as a source: what can't be read is a quarantined row, with its bytes and the reason."""

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionkit import Inputs, SessionSpec, SpecError
from sessionkit._engine.wire.inbound import UNREADABLE_COLUMN
from sessionkit.addons.sources import (
    Avro,
    Json,
    JsonLines,
    KafkaTopics,
    read_batch,
    read_stream,
)
from sessionkit.addons.sources.avro import with_avro
from sessionkit.addons.sources.json import with_json
from sessionkit.addons.sources.reading import without_long
from sessionkit.spark import reconcile, sessionize


@attrs.frozen
class View:
    """An event with a part of its own, and one that may be null."""

    page: str
    tags: list[int]
    note: str | None


@attrs.frozen
class Page:
    """An event without what a table adds."""

    page: str


@attrs.frozen
class Sectioned:
    """An event with what a table adds."""

    page: str
    section: str | None


def spec_of(
    event: type[Any] = View, passthrough: Any = JsonLines.origin_columns
) -> SessionSpec[Any, Any, Any]:
    return SessionSpec.per_event(
        event,
        keys={"user": str},
        event_time="at",
        gap="1h",
        watermark_delay="1h",
        inputs=Inputs(passthrough=passthrough),
    )


GOOD = '{"user": "ann", "at": "2026-03-08T12:00:00Z", "page": "/", "tags": [1], "more": true}'
OTHER = '{"user": "ann", "at": 1772971210, "page": 5, "tags": [], "note": "n"}'
REASONS = {
    b"{": "its payload isn't one JSON object",
    b"[" + GOOD.encode() + b"]": "its payload isn't one JSON object",
    b"null": "its payload isn't one JSON object",
    GOOD.encode() + b" and more": "its payload isn't one JSON object",
    GOOD.encode() + GOOD.encode(): "its payload isn't one JSON object",
    GOOD.encode() + b"," + GOOD.encode(): "its payload isn't one JSON object",
    b'{"user": "a\xff"}': "its payload isn't UTF-8",
    b'{"user": "ann", "at": "soon", "page": "/"}': "`at` isn't a timestamp: soon",
    GOOD.encode().replace(b"[1]", b'["x"]'): '`tags` isn\'t a array<bigint>: ["x"]',
    b"{}": "its event time is null",
    GOOD.encode().replace(b"/", b"").replace(b'"page"', b'"p"'): "`event.page` is null",
}


def outcome(events: DataFrame, spec: Any) -> tuple[list[Any], dict[bytes, str]]:
    """Return the result rows, and the reason for each payload."""
    rows = sessionize(events, spec, with_rejected=True).collect()
    results = [row for row in rows if row.kind == "session"]
    rejected = [row for row in rows if row.kind != "session"]
    assert {"quarantined"} >= {row.kind for row in rejected}
    return sorted(results, key=lambda row: row.at), {row.payload: row.reason for row in rejected}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with good and bad lines, and empty ones."""
    folder = tmp_path_factory.mktemp("lines")
    lines = [GOOD.encode(), b"", *REASONS, b"  ", OTHER.encode()]
    (folder / "views.json").write_bytes(b"\n".join(lines))
    return folder


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (Json(), f"{GOOD}\r\n"),
        (Json(), f"\n\t{GOOD}\t \n"),
        (Json({"allowUnquotedFieldNames": "true"}), GOOD.replace('"user"', "user")),
    ],
)
def test_what_json_and_its_options_allow_is_read(
    spark: SparkSession, payload: Json, text: str
) -> None:
    """White space around an object, as producers send it, and what an option admits."""
    fields = [
        field for field in spec_of().input_schema if field.name not in KafkaTopics.origin_columns
    ]
    raw = without_long(
        spark.createDataFrame([(bytearray(text.encode()),)], "payload binary"), payload.max_bytes
    )
    (row,) = with_json(raw, payload, fields).collect()

    assert ("ann", "/", [1], None) == (row.user, row.page, row.tags, row[UNREADABLE_COLUMN])


@attrs.frozen
class Part:
    n: int
    at: datetime | None = None


@attrs.frozen
class Order:
    """An event with parts, whose text may be any JSON."""

    page: str
    price: Decimal | None = None
    times: list[datetime] | None = None
    part: Part | None = None
    parts: list[Part] | None = None
    named: dict[str, int] | None = None


def order(more: str, user: str = '"ann"', at: str = "1772971210") -> bytes:
    """Return an order as JSON, with more fields."""
    return f'{{"user": {user}, "at": {at}, "page": "/"{more and ", "}{more}}}'.encode()


SECONDS = "9223372036854775807"
SILENT = {
    order("", user='"a\\ud800"'): "`user` has half a surrogate pair, which no text has",
    order("", user='"a\\udfff\\ud800"'): "`user` has half a surrogate pair, which no text has",
    order(
        "", user='"\\ud83d\\ude00\\ud83d"'
    ): "`user` has half a surrogate pair, which no text has",
    order('"named": {"\\ud800": 1}'): "`named` has half a surrogate pair, which no text has",
    order('"user": "bob"'): "`user` comes twice",
    order('"user": null'): "`user` comes twice",
    order('"part": {"n": 1, "n": 2}'): "`part` has a name twice",
    order('"parts": [{"n": 1}, {"n": 1, "n": 2}]'): "`parts` has a name twice",
    order('"named": {"a": 1, "a": 2}'): "`named` has a name twice",
    order("", user='{"id": 1}'): '`user` isn\'t a string: {"id":1}',
    order("", user="[1]"): "`user` isn't a string: [1]",
    order("", user="true"): "`user` isn't a string: true",
    order("", at=SECONDS): f"`at` isn't a timestamp: {SECONDS}",
    order("", at="-9223372036855"): "`at` isn't a timestamp: -9223372036855",
    order("", at="1772971210000000"): "`at` isn't a timestamp: 1772971210000000",
    order("", at='"12:00"'): "`at` isn't a timestamp: 12:00",
    order(f'"times": [1, {SECONDS}]'): f"`times` isn't a array<timestamp>: [1,{SECONDS}]",
    order(f'"parts": [{{"n": 1, "at": {SECONDS}}}]'): (
        f'`parts` isn\'t a array<struct<`n`:bigint,`at`:timestamp>>: [{{"n":1,"at":{SECONDS}}}]'
    ),
    order('"price": "1,50"'): "`price` isn't a decimal(38,18): 1,50",
    order(f'"price": 0.{"0" * 18}5'): (f"`price` isn't a decimal(38,18): 0.{'0' * 18}5"),
    # As text by way of a double, it is 1.1.
    order(f'"price": 1.1{"0" * 20}1'): f"`price` isn't a decimal(38,18): 1.1{'0' * 20}1",
    order('"part": {"n": "x"}'): "its payload has a value of another type",
    order("") + b"],[{}": "its payload isn't one JSON object",
    order("") + b',{"seal": "1"}': "its payload isn't one JSON object",
    order("") + b",{}],[{}": "its payload isn't one JSON object",
    order(f'"more": {"[" * 1_000}{"]" * 1_000}'): (
        "its payload isn't one JSON object of at most 1000 levels"
    ),
    order(f'"more": {"1" * 1_001}'): (
        "its payload isn't one JSON object, or has a number of more than 1000 digits"
    ),
    order(f'"{"n" * 50_001}": 1'): (
        "its payload isn't one JSON object, or has a name of more than 50000 letters"
    ),
}
HONEST = {
    order("", user='"\\ud83d\\ude00"'): "\N{GRINNING FACE}",
    order("", user='"a\\\\ud800"'): "a\\ud800",
    order("", user='"\\\\\\ud83d\\ude00"'): "\\\N{GRINNING FACE}",
    order('"more": "\\ud800"'): "ann",
    order('"more": 1, "more": 2'): "ann",
    order('"part": {"n": 1, "m": 2, "m": 3}'): "ann",
    order("", user='"{\\"id\\": 1}"'): '{"id": 1}',
    order("", user='"true"'): "true",
    order("", user='"[1]"'): "[1]",
    order("", user="17"): "17",
    order(
        '"price": "1.50", "times": [1], "parts": [{"n": 1, "at": "2026-03-08T12:00:00Z"}]'
    ): "ann",
    order('"price": 12345678901234567.5, "named": {"a": 1, "b": 2}'): "ann",
    order("", at='"2026-03-08T12:00:00Z"'): "ann",
}
PAGES = {b'{"a": [1]}': '{"a":[1]}', b"true": "true", b"2.5": "2.5"}
"""A field that is no key may be any JSON: then it is the text of it."""


def test_what_spark_reads_as_something_else_is_quarantined(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each with its bytes and the true reason; what only looks like it is read."""
    pages = [order("").replace(b'"/"', page) for page in PAGES]
    (tmp_path / "orders.json").write_bytes(b"\n".join([*SILENT, *HONEST, *pages]))
    spec = spec_of(Order)
    rows = sessionize(
        read_batch(spark, JsonLines(tmp_path), spec), spec, with_rejected=True
    ).collect()

    assert SILENT == {row.payload: row.reason for row in rows if row.kind != "session"}
    read = [(row.user, row.page) for row in rows if row.kind == "session"]
    expected = [(user, "/") for user in HONEST.values()]
    assert sorted([*expected, *(("ann", page) for page in PAGES.values())]) == sorted(read)


@pytest.mark.parametrize(
    ("most", "is_read"),
    [
        pytest.param(20_000_000, False, marks=pytest.mark.long),
        pytest.param(30_000_000, True, marks=pytest.mark.nightly),
    ],
)
def test_a_payload_of_more_than_20_mb_says_so(
    spark: SparkSession, tmp_path: Path, most: int, *, is_read: bool
) -> None:
    """It's set aside without its bytes; a higher limit is one for a string in it too."""
    line = order("", user=f'"{"u" * 20_000_001}"')
    (tmp_path / "orders.json").write_bytes(line + b"\n" + order(""))
    spec = spec_of(Order)
    source = JsonLines(tmp_path, payload=Json(max_bytes=most))
    rows = sessionize(read_batch(spark, source, spec), spec, with_rejected=True).collect()
    reason = f"its payload has {len(line)} bytes, more than the 20000000 of `max_bytes`"

    assert [3] + [20_000_001] * is_read == sorted(
        len(row.user) for row in rows if row.kind == "session"
    )
    assert [(None, reason)] * (not is_read) == [
        (row.payload, row.reason) for row in rows if row.kind != "session"
    ]
    assert all(row.file_path.endswith("orders.json") for row in rows if row.kind != "session")


def test_avro_that_asks_for_too_much_is_quarantined(spark: SparkSession) -> None:
    """In a query: too deep with its bytes, and too long without them, before Python."""
    fields = [
        {"name": "user", "type": "string"},
        {"name": "below", "type": ["null", "Tree"]},
    ]
    tree = {"type": "record", "name": "Tree", "fields": fields}
    good, deep, long = b"\x02a\x00", b"\x02a\x02" * 6_000 + b"\x02a\x00", b"x" * 30_000
    raw = spark.createDataFrame([(bytearray(one),) for one in (good, deep, long)], "payload binary")
    payload = Avro(json.dumps(tree), max_bytes=20_000)
    user = pa.field("user", pa.string(), nullable=False)
    rows = with_avro(without_long(raw, payload.max_bytes), payload, [user]).collect()

    assert [
        ("a", good, None),
        (None, deep, "its payload is deeper than the 500 of `max_depth`"),
        (None, None, "its payload has 30000 bytes, more than the 20000 of `max_bytes`"),
    ] == [(row.user, row.payload, row[UNREADABLE_COLUMN]) for row in rows]


class TestJsonLines:
    """Lines of JSON, in a batch and in a stream."""

    def test_each_bad_line_says_why(self, spark: SparkSession, folder: Path) -> None:
        """And has its bytes; the good ones have the declared types."""
        spec = spec_of()
        results, reasons = outcome(read_batch(spark, JsonLines(folder), spec), spec)

        assert REASONS == reasons
        assert [("/", [1], None), ("5", [], "n")] == [
            (row.page, row.tags, row.note) for row in results
        ]

    def test_a_table_is_joined_in_one_line(self, spark: SparkSession, folder: Path) -> None:
        """A left join keeps what can't be read, with its reason."""
        pages = spark.createDataFrame([("/", "home")], "page string, section string")
        spec = spec_of(Sectioned)
        source = spec_of(Page)
        views = read_batch(spark, JsonLines(folder), source).join(pages, "page", "left")
        results, reasons = outcome(views, spec)

        assert [("/", "home"), ("/", "home"), ("5", None)] == [
            (row.page, row.section) for row in results
        ]
        assert "its payload isn't UTF-8" == reasons[b'{"user": "a\xff"}']

    def test_a_stream_counts_bad_lines_as_quarantined(
        self, spark: SparkSession, folder: Path, tmp_path: Path
    ) -> None:
        """Each is an event that is quarantined; rows without rejected ones don't show them."""
        spec = spec_of(passthrough={})
        events = read_stream(spark, JsonLines(folder), spec, with_position=False)
        query = (
            sessionize(events, spec)
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        counts = reconcile(query).counts
        assert (len(REASONS) + 2, len(REASONS)) == (counts.events, counts.quarantined)


def test_rejected_rows_say_where_they_came_from(spark: SparkSession, tmp_path: Path) -> None:
    """Unless the caller says that they needn't."""
    with pytest.raises(
        SpecError, match=r"add inputs=Inputs\(passthrough=JsonLines.origin_columns\) to"
    ):
        read_batch(spark, JsonLines(tmp_path), spec_of(passthrough={"line": int}))
    other: Any = str(tmp_path)
    with pytest.raises(SpecError, match="`source` must be a KafkaTopics or a JsonLines, found "):
        read_batch(spark, other, spec_of())
    with pytest.raises(
        SpecError, match=r"add inputs=Inputs\(passthrough=KafkaTopics.origin_columns\) to"
    ):
        read_batch(spark, KafkaTopics("localhost:1", "t"), spec_of(passthrough={}))


@pytest.mark.parametrize(
    ("schema", "found"),
    [("{", "isn't JSON"), ('"string"', "must be that of a record"), ("{}", "must be that")],
)
def test_a_wrong_avro_schema_is_refused(schema: str, found: str) -> None:
    """As soon as it is given."""
    with pytest.raises(SpecError, match=found):
        Avro(schema)


def test_sources_with_the_same_settings_are_equal() -> None:
    """Two that say the same are equal, and options, which may have a password, aren't shown."""
    options = {"kafka.sasl.jaas.config": "secret"}
    assert KafkaTopics("h:1", "t", options=options) == KafkaTopics("h:1", ("t",), options=options)
    assert "secret" not in repr(KafkaTopics("h:1", "t", options=options))
    assert KafkaTopics.origin_columns.keys() > {"kafka_topic", "kafka_partition", "kafka_offset"}
