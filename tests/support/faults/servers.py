"""Kafka and PostgreSQL under a job: events sent, and transactions held open to be killed in."""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from examples.embedded_postgres import running_postgres
from tests.support.faults.job import TABLES, Job, Servers, row_of
from tests.support.faults.ledger import Row
from tests.support.faults.processes import Jvm
from tests.support.faults.timeline import Arrival
from tests.support.kafka import running_kafka

TRIGGER = """
CREATE OR REPLACE FUNCTION wait_for_harness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtext(TG_TABLE_NAME));
    RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER waits AFTER INSERT ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION wait_for_harness()"""
"""Where someone holds the lock of a table, its rows are written, and not yet committed."""


KEEP = "DROP TABLE IF EXISTS {kept}; CREATE TABLE {kept} AS TABLE {table}"
BACK = """
UPDATE {table} AS now SET batch_id = {kept}.batch_id FROM {kept}
WHERE {kept}.table_name = now.table_name"""


@contextmanager
def running(folder: Path) -> Iterator[Servers]:
    """Run both servers until the end of the block."""
    with ExitStack() as stack:
        kafka = stack.enter_context(running_kafka(folder, version("pyspark")))
        postgres = stack.enter_context(running_postgres())
        yield Servers(kafka.servers, kafka.connector, postgres.dsn)


def class_path(servers: Servers) -> str:
    return f"{servers.jars}/*"


def send(jvm: Jvm, job: Job, rows: Iterable[Arrival]) -> None:
    """Send events to the topic of a job, through the JVM, and wait until all are there."""
    assert job.servers is not None
    java = jvm.gateway.jvm
    settings = java.java.util.Properties()
    settings.put("bootstrap.servers", job.servers.kafka)
    for part in ("key", "value"):
        settings.put(f"{part}.serializer", "org.apache.kafka.common.serialization.StringSerializer")
    kafka = java.org.apache.kafka.clients.producer
    producer = kafka.KafkaProducer(settings)
    for row in rows:
        producer.send(kafka.ProducerRecord(job.topic, _json(*row)))
    producer.flush()
    producer.close()


def received(jvm: Jvm, job: Job) -> list[Row]:
    """Return the rows in the topic of a job's sink, in the order of the topic."""
    assert job.servers is not None
    java = jvm.gateway.jvm
    settings = java.java.util.Properties()
    settings.put("bootstrap.servers", job.servers.kafka)
    for part in ("key", "value"):
        name = "org.apache.kafka.common.serialization.StringDeserializer"
        settings.put(f"{part}.deserializer", name)
    part = java.org.apache.kafka.common.TopicPartition(f"{job.topic}_rows", 0)
    parts = java.java.util.List.of(part)
    consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
    consumer.assign(parts)
    consumer.seekToBeginning(parts)
    end, rows = consumer.endOffsets(parts)[part], list[Row]()
    while consumer.position(part) < end:
        found = consumer.poll(java.java.time.Duration.ofSeconds(1)).records(part)
        rows += [row_of(json.loads(record.value())) for record in found]
    consumer.close()
    return rows


def _json(key: str | None, at: datetime, number: int) -> str:
    name = "null" if key is None else f'"{key}"'
    return f'{{"key": {name}, "at": "{at.isoformat()}", "number": {number}}}'


def has_table(job: Job, name: str) -> bool:
    """Return whether a job has made a table."""
    return _value(job, "SELECT to_regclass(%s)", f"{job.topic}_{name}") is not None


def last_batch(job: Job, name: str) -> int:
    """Return the last micro-batch that a table has."""
    if not has_table(job, name):
        return -1
    asked = "SELECT batch_id FROM sessionkit_batches WHERE table_name = %s"
    return int(_value(job, asked, f"{job.topic}_{name}") or 0)


def keep(job: Job) -> None:
    """Copy the tables of a job, and its rows of the ledger."""
    for name in TABLES:
        table = f"{job.topic}_{name}"
        _run(job, KEEP, table)
    _run(job, KEEP, "sessionkit_batches")


def restore(job: Job) -> None:
    """Put the tables of a job back as they were copied."""
    for name in TABLES:
        table = f"{job.topic}_{name}"
        _run(job, "TRUNCATE {table}; INSERT INTO {table} SELECT * FROM {kept}", table)
    _run(job, BACK, "sessionkit_batches")


def _run(job: Job, statements: str, table: str) -> None:
    assert job.servers is not None
    names = {"table": sql.Identifier(table), "kept": sql.Identifier(f"kept_{table}")}
    with psycopg.connect(job.servers.dsn) as connection:
        connection.execute(sql.SQL(statements).format(**names))


def is_waited_for(job: Job) -> bool:
    """Return whether a transaction waits for a lock of `held`."""
    asked = "SELECT count(*) FROM pg_locks WHERE locktype = %s AND NOT granted"
    return bool(_value(job, asked, "advisory"))


@contextmanager
def held(job: Job, name: str) -> Iterator[None]:
    """Let transactions that have written to a table wait before they commit."""
    assert job.servers is not None
    table = f"{job.topic}_{name}"
    with psycopg.connect(job.servers.dsn, autocommit=True) as connection:
        connection.execute(sql.SQL(TRIGGER).format(table=sql.Identifier(table)))
        connection.execute("SELECT pg_advisory_lock(hashtext(%s))", [table])
        yield


def _value(job: Job, asked: str, value: str) -> Any:
    assert job.servers is not None
    with psycopg.connect(job.servers.dsn) as connection:
        (found,) = connection.execute(asked.encode(), [value]).fetchone() or (None,)
    return found
