"""Kafka as a source and as a sink, on a real broker with Spark's real connector."""

import io
import json
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
from sessionkit import EventTimeGap, Inputs, Storage
from sessionkit.addons.sources import KAFKA_COLUMNS, Avro, KafkaTopics, read_batch
from sessionkit.spark import Files, Routes, Seed, migrate, reconcile, sessionize
from sessionkit.spark.query import start_query
from sessionkit.spark.sinks import values as sinks
from tests.support.kafka import Kafka, KafkaMissingError, running_kafka
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
    try:
        with running_kafka(tmp_path_factory.mktemp("kafka"), spark.version) as broker:
            broker.connect(spark)
            yield broker
    except KafkaMissingError as error:
        pytest.skip(f"not run: {error}")


def send(kafka: Kafka, spark: SparkSession, topic: str, *values: bytes | str | None) -> None:
    """Send messages to the one partition of a topic, in this order."""
    sent = [(value.encode() if isinstance(value, str) else value,) for value in values]
    rows = spark.createDataFrame(sent, "value binary").coalesce(1)
    options = {"kafka.bootstrap.servers": kafka.servers, "topic": topic}
    rows.write.format("kafka").options(**options).save()


def action(user: str, time: str, event: str = "home", source: object = None) -> str:
    """Return an action of the app `shop` as JSON."""
    at = f"2026-03-08T{time}:00Z"
    row = {"user": user, "at": at, "event": event, "channel": "email", "source": source}
    return json.dumps(row)


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
    jvm: Any = spark._jvm
    gateway: Any = spark._sc._gateway
    jars = gateway.new_array(jvm.java.net.URL, len([*kafka.connector.glob("*.jar")]))
    for place, jar in enumerate(kafka.connector.glob("*.jar")):
        jars[place] = jvm.java.io.File(str(jar)).toURI().toURL()
    loader = jvm.java.net.URLClassLoader(jars)
    strings = loader.loadClass("org.apache.kafka.common.serialization.StringSerializer")
    settings = jvm.java.util.HashMap()
    settings.put("bootstrap.servers", kafka.servers)
    settings.put("transactional.id", topic)
    settings.put("key.serializer", strings)
    settings.put("value.serializer", strings)
    package = "org.apache.kafka.clients.producer"

    def new(name: str, **values: Any) -> Any:
        """Make an object with the constructor whose parameters are of these classes."""
        for maker in loader.loadClass(f"{package}.{name}").getConstructors():
            if [*values] == [each.getSimpleName() for each in maker.getParameterTypes()]:
                given = gateway.new_array(jvm.java.lang.Object, len(values))
                for place, value in enumerate(values.values()):
                    given[place] = value
                return maker.newInstance(given)
        raise AssertionError(name)

    producer = new("KafkaProducer", Map=settings)
    producer.initTransactions()
    for messages, is_committed in transactions:
        producer.beginTransaction()
        for message in messages:
            producer.send(new("ProducerRecord", String=topic, Object=message))
        producer.flush()
        producer.commitTransaction() if is_committed else producer.abortTransaction()
    producer.close()


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
    visits = attrs.evolve(spec.VISITS, inputs=Inputs(passthrough=KAFKA_COLUMNS))
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
