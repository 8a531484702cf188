"""Kafka as a source and as a sink, on a real broker with Spark's real connector."""

import io
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from examples.embedded_postgres import Postgres
from examples.shop import job, spec
from sessionkit import EventTimeGap, Inputs, SpecError, Storage
from sessionkit.addons.sources import Avro, KafkaTopics, read_batch, read_stream
from sessionkit.spark import Files, Routes, migrate, reconcile, sessionize
from sessionkit.spark._seeds import Seed
from sessionkit.spark.query import start_query
from sessionkit.spark.sinks import values as sinks
from tests.support import borders
from tests.support.kafka import Kafka, reached_kafka
from tests.support.queries import Events
from tests.support.session_specs import collecting
from tests.support.streams import FileStream

READINGS = pa.schema(
    {
        "key": pa.string(),
        "at": pa.timestamp("us", "UTC"),
        "value": pa.int64(),
    }
)


@pytest.fixture(scope="module")
def kafka(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker, and a session that can reach it; tests are skipped where none can be had."""
    with reached_kafka(spark, tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="module")
def admin(kafka: Kafka, spark: SparkSession) -> Iterator[Any]:
    """Kafka's own client, which makes, changes and deletes topics."""
    client = clients(spark).admin.Admin.create(settings(kafka, spark))
    yield client
    client.close()


def clients(spark: SparkSession) -> Any:
    """Return the package of Kafka's own clients, of which the JVM's current thread then knows."""
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    jvm.java.lang.Thread.currentThread().setContextClassLoader(
        session.sharedState().jarClassLoader()
    )
    return jvm.org.apache.kafka.clients


def settings(kafka: Kafka, spark: SparkSession, **more: str) -> Any:
    given: Any = {"bootstrap.servers": kafka.servers, **more}
    return as_map(spark, {name.replace("_", "."): value for name, value in given.items()})


def as_map(spark: SparkSession, entries: dict[str, Any]) -> Any:
    jvm: Any = spark._jvm
    made = jvm.java.util.HashMap()
    for name, value in entries.items():
        made.put(name, value)
    return made


def make_topic(admin: Any, spark: SparkSession, name: str, **options: str) -> str:
    """Make a topic of one partition, and return its id."""
    jvm: Any = spark._jvm
    one = jvm.java.util.Optional.empty()  # as the broker has it by default
    topic = clients(spark).admin.NewTopic(name, one, one)
    configured = topic.configs(as_map(spark, {k.replace("_", "."): v for k, v in options.items()}))
    made = admin.createTopics(jvm.java.util.List.of(configured))
    return str(made.topicId(name).get())


def send(kafka: Kafka, spark: SparkSession, topic: str, *values: bytes | str | None) -> None:
    """Send messages to the one partition of a topic, in this order."""
    sent = [(value.encode() if isinstance(value, str) else value,) for value in values]
    send_rows(kafka, spark, topic, sent, "value binary")


def send_rows(kafka: Kafka, spark: SparkSession, topic: str, rows: Any, schema: str) -> None:
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    frame.write.format("kafka").options(**options).save()


def action(user: str, time: str, event: str = "home", source: object = None) -> str:
    """Return an action of the app `shop` as JSON."""
    at = f"2026-03-08T{time}:00Z"
    row = {"user": user, "at": at, "event": event, "channel": "email", "source": source}
    return json.dumps(row)


@pytest.mark.nightly
def test_the_example_writes_each_visit_once(
    kafka: Kafka, postgres: Postgres, spark: SparkSession, tmp_path: Path
) -> None:
    """Over a restart that repeats a micro-batch; what can't be read says where it is, and why."""
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        query = job.start(
            spark,
            KafkaTopics(kafka.servers, "actions"),
            postgres.dsn,
            checkpoint=checkpoint,
            trigger="availableNow",
        )
        query.awaitTermination()

    send(
        kafka,
        spark,
        "actions",
        action("ann", "12:00", source="email"),
        b'{"user": "ann"\xff',
        None,
        action("ann", "12:10", "product_view"),
        action("bob", "noon"),
    )
    run()
    # As if Spark had stopped between the sink's commit and its own.
    max((checkpoint / "commits").glob("[0-9]*")).unlink()
    send(kafka, spark, "actions", action("cid", "15:00"), action("ann", "12:20", "purchase"))
    run()
    send(kafka, spark, "actions", action("ann", "12:01"))
    run()

    assert [("ann", 3, "email", ["home", "product_view", "purchase"], True)] == postgres.rows(
        'SELECT "user", events, source, path, bought FROM visits'
    )
    rejected = postgres.rows(
        "SELECT kind, kafka_topic, kafka_partition, kafka_offset, payload, reason FROM rejected"
    )
    assert [
        ("late", "actions", 0, 7, None),
        ("quarantined", "actions", 0, 1, b'{"user": "ann"\xff'),
        ("quarantined", "actions", 0, 2, None),
        ("quarantined", "actions", 0, 4, action("bob", "noon").encode()),
    ] == [row[:-1] for row in rejected]
    assert [
        "its payload isn't UTF-8",
        "its payload is null",
        "`at` isn't a timestamp: 2026-03-08Tnoon:00Z",
    ] == [row[-1] for row in rejected[1:]]


def send_in_transactions(
    kafka: Kafka, spark: SparkSession, topic: str, *transactions: tuple[list[str], bool]
) -> None:
    """Send messages in transactions, each of which is committed or aborted."""
    text = "org.apache.kafka.common.serialization.StringSerializer"
    own = {"transactional_id": topic, "key_serializer": text, "value_serializer": text}
    producers = clients(spark).producer
    producer = producers.KafkaProducer(settings(kafka, spark, **own))
    producer.initTransactions()
    for messages, is_committed in transactions:
        producer.beginTransaction()
        for message in messages:
            producer.send(producers.ProducerRecord(topic, message))
        producer.flush()
        producer.commitTransaction() if is_committed else producer.abortTransaction()
    producer.close()


@pytest.mark.nightly
def test_messages_of_an_aborted_transaction_are_no_events(
    kafka: Kafka, spark: SparkSession
) -> None:
    """Unless the options say otherwise."""
    parts = [
        ([action("ann", f"{hour}:{minute}") for minute in range(10, 20)]) for hour in (1, 2, 3)
    ]
    send_in_transactions(kafka, spark, "tx", (parts[0], True), (parts[1], False), (parts[2], True))

    def events(**options: str) -> int:
        source = KafkaTopics(kafka.servers, "tx", options=options)
        return read_batch(spark, source, spec.VISITS, with_position=False).count()

    assert 20 == events()
    assert 30 == events(**{"kafka.isolation.level": "read_uncommitted"})


@pytest.mark.nightly
def test_avro_is_read_by_a_batch(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    """With the bytes of what can't be read; the counts say the same."""
    schema = {
        "type": "record",
        "name": "action",
        "fields": [
            {"name": "user", "type": "string"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "event", "type": ["null", "string"]},
            {"name": "channel", "type": "string"},
            {"name": "source", "type": ["null", "string"]},
        ],
    }

    def written(user: str, minute: int, event: str | None) -> bytes:
        out = io.BytesIO()
        at = datetime(2026, 3, 8, 12, minute, tzinfo=UTC)
        record = {"user": user, "at": at, "event": event, "channel": "email", "source": None}
        fastavro.schemaless_writer(out, schema, record)
        return out.getvalue()

    good = [written("ann", 0, "home"), written("ann", 5, "cart")]
    bad = [written("bob", 0, None), good[0][:-1], good[0] + b"?"]
    send(kafka, spark, "avro", *good, *bad)
    source = KafkaTopics(kafka.servers, "avro", payload=Avro(json.dumps(schema)))
    observation = Observation()
    visits = attrs.evolve(spec.VISITS, inputs=Inputs(passthrough=KafkaTopics.origin_columns))
    frame = sessionize(
        read_batch(spark, source, visits), visits, with_rejected=True, observation=observation
    )
    rows = frame.orderBy("kind", "kafka_offset").collect()

    assert 3 == reconcile(observation).counts.quarantined
    assert [("quarantined", offset, payload) for offset, payload in enumerate(bad, 2)] == [
        (row.kind, row.kafka_offset, bytes(row.payload)) for row in rows[:3]
    ]
    null, short, long = (row.reason for row in rows[:3])
    assert "`event.event` is null" == null
    assert "its payload isn't Avro of this schema: EOFError" in short
    assert "1 bytes follow the record" in long
    assert [("ann", 2, ["home", "cart"])] == [(row.user, row.events, row.path) for row in rows[3:]]


def test_rows_are_messages_with_their_ids_as_keys(
    kafka: Kafka, spark: SparkSession, tmp_path: Path
) -> None:
    """A replay sends them again, with the same keys; who stores them by key has each once."""
    spec = collecting(
        EventTimeGap("10 minutes"), watermark_delay="0 seconds", storage=Storage(bucket_count=1)
    )
    gap = F.expr("INTERVAL '10' MINUTE")
    stream = FileStream(
        spark, spec, tmp_path, with_rejected=True, shape=lambda rows: rows.withColumn("gap", gap)
    )
    for minutes in ([0, 5], [100, 101], [1]):
        times = [datetime(2026, 3, 8, 12, tzinfo=UTC) + timedelta(minutes=m) for m in minutes]
        columns = {"key": ["ann"] * len(minutes), "at": times, "value": minutes}
        stream.put(pa.table(columns).cast(READINGS))
    topics = [sinks.Kafka(kafka.servers, name) for name in ("sessions", "others")]

    def run() -> None:
        query = start_query(
            stream.output(),
            sink=Routes(session=topics[0], rejected=topics[1]),
            trigger="availableNow",
            checkpoint=stream.checkpoint,
        )
        query.awaitTermination()

    run()
    max(Path(stream.checkpoint, "commits").glob("[0-9]*")).unlink()
    run()

    def messages(topic: str) -> list[tuple[str, dict[str, object]]]:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.servers)
        found = reader.option("subscribe", topic).load().orderBy("offset")
        return [(row.key.decode(), json.loads(row.value)) for row in found.collect()]

    sent, rejected = messages("sessions"), messages("others")
    assert 2 <= len(sent) == len(rejected) * len(dict(sent))
    assert [[0, 5]] == [value["values"] for value in dict(sent).values()]
    assert all(key == value["session_id"] for key, value in sent)
    assert [("late", 1)] == [
        (value["kind"], value["event"]["value"])  # type: ignore[index]
        for value in dict(rejected).values()
    ]


def test_a_query_is_started_to_a_topic(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    """The rows of the frame are messages of the topic, each once after a restart."""
    events = Events(spark, tmp_path).write().stream()
    messages = events.select("key", F.to_json(F.struct("key", "value")).alias("value"))
    for _ in range(2):
        query = start_query(
            messages,
            sink=sinks.Kafka(kafka.servers, "started"),
            trigger="availableNow",
            checkpoint=tmp_path / "checkpoint",
        )
        query.awaitTermination()

    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.servers)
    found = reader.option("subscribe", "started").load()
    rows = found.select(F.col("key").cast("string"), F.col("value").cast("string")).collect()
    assert [("a", '{"key":"a","value":1}')] == [tuple(row) for row in rows]


@pytest.mark.nightly
def test_a_seed_says_where_to_read_on(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    """Under another gap, a query reads each message of a topic once, wherever it starts."""
    before = collecting(
        EventTimeGap("10 minutes"), watermark_delay="1 hour", storage=Storage(bucket_count=1)
    )
    after = collecting(
        EventTimeGap("20 minutes"), watermark_delay="1 hour", storage=Storage(bucket_count=2)
    )
    first, *others = (
        FileStream(spark, spec, tmp_path / name)
        for spec, name in ((before, "first"), (after, "second"), (after, "third"))
    )
    kafka_options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": "minutes"}

    def send(*minutes: int) -> None:
        rows = spark.createDataFrame([(str(minute),) for minute in minutes], "value string")
        rows.write.format("kafka").options(**kafka_options, topic="minutes").save()

    def run(stream: FileStream, start: str, seed: Seed | None = None) -> None:
        reader = spark.readStream.format("kafka").options(**kafka_options)
        messages = reader.option("startingOffsets", start).load()
        minute = F.col("value").cast("string").cast("long")
        views = (messages if seed is None else seed.unread(messages)).select(
            F.lit("ann").alias("key"),
            F.timestamp_seconds(F.lit(1_770_000_000) + minute * F.lit(60)).alias("at"),
            minute.alias("value"),
            F.expr("interval 10 minutes").alias("gap"),
        )
        start_query(
            sessionize(views, stream.spec, seed=seed),
            sink=Files("parquet", stream.folder / "out"),
            trigger="availableNow",
            checkpoint=stream.checkpoint,
        ).awaitTermination()

    send(0, 5)
    run(first, "earliest")
    seed = migrate(first.checkpoint, before, after, str(tmp_path / "seed"), spark=spark)
    send(12)
    for stream, start in zip(others, (seed.starting_offsets(), "earliest"), strict=True):
        run(stream, start, seed)
        assert [[0, 5, 12]] == [found.state.values for found in stream.open()]


def started(
    spark: SparkSession, kafka: Kafka, topic: str, checkpoint: Path, seen: list[str]
) -> Any:
    """Start a query that notes the users of the actions of a topic."""
    actions = read_stream(
        spark, KafkaTopics(kafka.servers, topic), spec.VISITS, with_position=False
    )
    sink = sinks.AtLeastOnce(lambda frame, _: seen.extend(row.user for row in frame.collect()))
    return start_query(actions, sink=sink, trigger="0 seconds", checkpoint=checkpoint)


@pytest.mark.nightly
def test_partitions_that_are_added_are_read_from_their_start(
    kafka: Kafka, admin: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """In the next micro-batch of a query that runs."""
    make_topic(admin, spark, "grown")
    send(kafka, spark, "grown", action("ann", "12:00"))
    seen: list[str] = []
    query = started(spark, kafka, "grown", tmp_path / "checkpoint", seen)
    try:
        query.processAllAvailable()
        three = clients(spark).admin.NewPartitions.increaseTo(3)
        admin.createPartitions(as_map(spark, {"grown": three})).all().get()
        rows = [
            (action("bob", "12:00"), 1),
            (action("cid", "12:00"), 2),
            (action("dan", "12:00"), 0),
        ]
        send_rows(kafka, spark, "grown", rows, "value string, partition int")
        query.processAllAvailable()
    finally:
        query.stop()

    assert ["ann", "bob", "cid", "dan"] == sorted(seen)


@pytest.mark.long
def test_a_topic_made_anew_skips_as_many_messages_as_were_read(
    kafka: Kafka, admin: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """With fewer messages it ends the query; only the id of the topic tells, as the page says."""
    seen: list[str] = []
    ids: set[str] = set()
    jvm: Any = spark._jvm

    def run(*users: str) -> None:
        if ids:
            admin.deleteTopics(jvm.java.util.List.of("anew")).all().get()
        ids.add(make_topic(admin, spark, "anew"))
        send(kafka, spark, "anew", *(action(user, "12:00") for user in users))
        query = started(spark, kafka, "anew", tmp_path / "checkpoint", seen)
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    run("ann", "bob")
    run("dan", "eve", "fay")
    assert ["ann", "bob", "fay"] == seen
    with pytest.raises(Exception, match="offset was changed from 3 to 1"):
        run("cid")
    assert 3 == len(ids)


@pytest.mark.long
def test_a_compacted_topic_has_what_compaction_left(
    kafka: Kafka, admin: Any, spark: SparkSession, tmp_path: Path
) -> None:
    """What a query has read before, it has; gaps between offsets are no loss."""
    often = {"segment_ms": "100", "min_cleanable_dirty_ratio": "0.01", "max_compaction_lag_ms": "1"}
    make_topic(admin, spark, "compact", cleanup_policy="compact", **often)
    sent = ["ann", "ann", "bob"]
    before: list[str] = []
    query = started(spark, kafka, "compact", tmp_path / "before", before)
    try:
        for user in sent:
            row = (user, action(user, "12:00"))
            send_rows(kafka, spark, "compact", [row], "key string, value string")
            query.processAllAvailable()
    finally:
        query.stop()
    source = KafkaTopics(kafka.servers, "compact")
    actions = read_batch(spark, source, spec.VISITS, with_position=False)
    while actions.count() > 2:
        time.sleep(0.1)
    after: list[str] = []
    query = started(spark, kafka, "compact", tmp_path / "after", after)
    query.processAllAvailable()
    query.stop()

    assert sent == before
    assert ["ann", "bob"] == after


@pytest.mark.nightly
def test_headers_are_columns_on_request(kafka: Kafka, spark: SparkSession) -> None:
    """The last one of a name; one that's no text makes the row a quarantined one."""
    headers = [
        [("X-Way", b"web"), ("X-Way", b"app")],
        None,
        [("X-Way", None)],
        [("X-Way", b"\xff")],
    ]
    rows = [(action(f"u{place}", "12:00"), own) for place, own in enumerate(headers)]
    schema = "value string, headers array<struct<key string, value binary>>"
    send_rows(kafka, spark, "headed", rows, schema)
    passthrough = {"kafka_offset": int, "way": str}
    visits = attrs.evolve(spec.VISITS, inputs=Inputs(passthrough=passthrough))

    def read(**columns: str) -> list[Any]:
        source = KafkaTopics(kafka.servers, "headed", headers=columns)
        return read_batch(spark, source, visits).orderBy("kafka_offset").collect()

    found = read(way="X-Way", source="X-Way")
    assert ["app", None, None, None] == [row.way for row in found]
    assert ["app", None, None, None] == [row.source for row in found]
    assert [None, None, None, "its header `X-Way` isn't UTF-8"] == [row[-1] for row in found]
    for name in ("at", "other"):
        with pytest.raises(SpecError, match=f"the column `{name}`, which isn't text"):
            read(**{name: "X-Way"})


@pytest.mark.long
def test_messages_of_a_megabyte_are_events_or_rejected_whole(
    kafka: Kafka, spark: SparkSession
) -> None:
    """Up to the limit of a broker, a little over a megabyte."""
    long, other = "x" * 1_000_000, "y" * 1_000_000
    values = [action("ann", "12:10", long), action("ann", "12:20", other)]
    send(kafka, spark, "big", *values, long)
    visits = attrs.evolve(spec.VISITS, inputs=Inputs(passthrough=KafkaTopics.origin_columns))
    source = KafkaTopics(kafka.servers, "big")
    rows = sessionize(read_batch(spark, source, visits), visits, with_rejected=True).collect()

    assert {"quarantined": [long.encode()], "session": [None]} == {
        row.kind: [row.payload] for row in rows
    }
    assert [[long, other]] == [row.path for row in rows if row.kind == "session"]


@pytest.mark.nightly
@pytest.mark.since_spark("4.0", "Arrow tables are since 4.0")
def test_values_come_back_from_a_topic(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    """Rows that are messages, read as events again: each value is what it was, or quarantined."""
    way_out, way_in = borders.OUT["JSON, Kafka"], borders.IN["JSON"]
    kinds = [name for name in borders.KINDS if name not in way_out.kinds]
    values = [value for value in borders.VALUES if value.kind in kinds]
    frame = borders.frame_of(spark, kinds, values).withColumns(
        {"ts": F.timestamp_seconds(F.lit(1_772_971_200)), "event_id": F.col("row")}
    )
    frame.write.parquet(str(tmp_path / "in"))
    start_query(
        spark.readStream.schema(frame.schema).parquet(str(tmp_path / "in")),
        sink=sinks.Kafka(kafka.servers, "borders"),
        trigger="availableNow",
        checkpoint=tmp_path / "checkpoint",
    ).awaitTermination()
    passthrough = Inputs(passthrough=KafkaTopics.origin_columns)
    visits = attrs.evolve(borders.without(*way_out.kinds), inputs=passthrough)
    sent = read_batch(spark, KafkaTopics(kafka.servers, "borders"), visits)
    rows = sessionize(sent, visits, with_rejected=True)

    equal = [value for value in values if way_in.of(value) == borders.EQUAL]
    sessions = rows.where("kind = 'session'").select("row", *kinds)
    assert borders.expected(equal) == borders.read_back(sessions)
    assert len(values) - len(equal) == rows.where("kind = 'quarantined'").count()
