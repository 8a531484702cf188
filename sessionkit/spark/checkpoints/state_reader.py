"""The groups of a checkpoint, as Spark's own state reader gives them, and damage that it finds."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from sessionkit import errors
from sessionkit._engine.logic import Memory
from sessionkit._engine.rows.table import key_schema
from sessionkit._engine.shell.payload import HEADER_BYTES, RESTORE, peek_identity
from sessionkit._engine.shell.reading import check_order, compared
from sessionkit._engine.shell.storage import logic_of
from sessionkit.errors import (
    SessionkitError,
    StateCorruptedError,
    StateMismatchError,
    StateValueError,
    UnsupportedError,
    with_hint,
)
from sessionkit.spark._grouping import with_buckets
from sessionkit.spark._libraries import release_of
from sessionkit.spark._logs import active_session, if_there
from sessionkit.spark.jobs.pages import BUCKET_STATE, PAGES_STATE
from sessionkit.spec.shared import AnySpec

OURS: Final = re.compile(
    r"sessionkit\.errors\.(State\w*Error|UserFunctionError): (.*?\n\nHint: [^\n]*)", re.DOTALL
)
"""An error that was raised in a Python worker, in the trace that Spark makes of it."""
FILE: Final = re.compile(r"[^\s\[\]()',]*/(?:state/\d+|sources/\d+|offsets|commits)/[^\s\[\]()',]+")
REASON: Final = re.compile(r"(?:Exception|Error): (.+)")
FOUND_BY_SPARK: Final = (
    "STATE_STORE",
    "StateStore",
    "ChecksumException",
    "RocksDB",
    "/state/",
    "Partition should start with 0",
    "No continuous partitions",
)
EMPTY_LOG: Final = "Incomplete log file"
"""What Spark says of an empty file of its logs, without its name."""
NOTHING_YET: Final = "STDS_COMMITTED_BATCH_UNAVAILABLE"
NO_SCHEMA: Final = "STDS_FAILED_TO_READ_STATE_SCHEMA"
NO_STATE: Final = "STDS_INVALID_OPTION_VALUE"
NAME_NEEDED: Final = "STDS_REQUIRED_OPTION_UNSPECIFIED"
"""Spark asks for the name of a state only where a group has several: with pages."""
FIRST_WITH_READER: Final = (4,)
UNREADABLE: Final = "can't be read"
HEAD_BYTES: Final = 65_536
"""How much of a payload is read to find the rules under which it was stored."""
PAYLOAD: Final = "payload"
ORIGIN_BYTES: Final = 6
"""Magic and version; the rest of the header differs from group to group."""
LENGTH_BYTES: Final = 4


@contextmanager
def naming_damage(path: str) -> Iterator[None]:
    """Turn errors of reading the state of a checkpoint into one that names the damage."""
    try:
        yield
    except SessionkitError:
        raise
    except Exception as error:
        found = _named(str(error), path)
        if found is None:
            raise
        raise found from None


def _named(text: str, path: str) -> SessionkitError | None:
    ours = OURS.search(text)
    if ours:
        kind: type[SessionkitError] = getattr(errors, ours[1])
        return kind(ours[2])
    if EMPTY_LOG in text:
        found = f"the checkpoint is damaged: a file in {path}/offsets or {path}/commits is empty"
        return StateCorruptedError(with_hint(found, RESTORE))
    if not any(sign in text for sign in FOUND_BY_SPARK):
        return None
    file = FILE.search(text)
    where = file[0].rstrip(".:;") if file else f"a file below {path}/state"
    causes = [line for line in text.splitlines() if line.startswith("Caused by")]
    reason = REASON.search((causes or text.splitlines())[-1 if causes else 0])
    said = f": {reason[1]}" if reason else ""
    found = f"the stored state is damaged: Spark can't read {where}{said}"
    return StateCorruptedError(with_hint(found, RESTORE))


def stored_operators(path: str, spark: SparkSession) -> list[str]:
    """Return the names of the stateful operators whose state a checkpoint has, sorted."""
    stored = spark.read.format("state-metadata")
    cause: Exception | None = None
    try:
        rows = stored.load(path).select("operatorId", "operatorName").distinct().collect()
    except Exception as error:
        # Of a cut file Spark raises what its parser does, without the name of the file.
        if not has_state(path, spark):
            raise
        rows, cause = [], error
    if not rows and has_state(path, spark):
        found = f"{path}/state/0/_metadata {'says of no operator' if not cause else UNREADABLE}"
        text = f"the checkpoint is damaged: {found}"
        raise StateCorruptedError(with_hint(text, RESTORE)) from cause
    return sorted(row["operatorName"] for row in rows)


def stored_pages(path: str, spark: SparkSession | None) -> DataFrame:
    """Return the pages of each group: the columns `key`, `user_map_key` and `user_map_value`."""
    stored = _reader(spark).option("stateVarName", PAGES_STATE).load(path)
    return stored.select("key", "user_map_key", "user_map_value")


def stored_groups(path: str, spark: SparkSession | None) -> DataFrame:
    """Return the groups: the columns `key`, `state` and `partition_id`."""
    try:
        stored = _reader(spark).load(path)
        values = stored.select("value.*").columns
    except PySparkException as error:
        if NAME_NEEDED not in str(error):
            raise
        named = _reader(spark).option("stateVarName", BUCKET_STATE).load(path)
        return named.select("key", F.col("value").alias("state"), "partition_id")
    if "groupState" not in values:
        raise not_ours(path)
    return stored.select("key", F.col("value.groupState").alias("state"), "partition_id")


def changed_groups(path: str, first: int, spark: SparkSession) -> DataFrame:
    """Return the changes of micro-batches, from a number on; see `stored_groups`."""
    reader = _reader(spark).option("readChangeFeed", value=True)
    reader = reader.option("changeStartBatchId", first)
    try:
        stored, state = reader.load(path), F.col("value.groupState")
        stored.select(state)
    except PySparkException as error:
        if NAME_NEEDED not in str(error):
            raise
        stored, state = reader.option("stateVarName", BUCKET_STATE).load(path), F.col("value")
    change = ("batch_id", "change_type", "partition_id")
    return stored.select(*change, "key", state.alias("state"))


@contextmanager
def with_clear_errors(path: str, spark: SparkSession | None = None) -> Iterator[None]:
    """Treat a checkpoint without a finished micro-batch as empty; refuse state of others."""
    try:
        with naming_damage(path):
            yield
    except PySparkException as error:
        if NO_SCHEMA in str(error) and has_state(path, spark):
            where = f"{path}/state/0/0/_metadata"
            found = f"the stored state is damaged: the schema below {where} can't be read"
            raise StateCorruptedError(with_hint(found, RESTORE)) from error
        if any(sign in str(error) for sign in (NO_SCHEMA, NO_STATE)):
            raise not_ours(path) from error
        if NOTHING_YET not in str(error):
            raise


def reads_state(spark: SparkSession) -> bool:
    """Return whether this release of Spark can read state."""
    return release_of(spark.version) >= FIRST_WITH_READER


def has_state(path: str, spark: SparkSession | None) -> bool:
    """Return whether a checkpoint has the files of a stateful operator."""
    files = active_session(spark).read.format("binaryFile")
    return bool(
        if_there(lambda: files.load(f"{path}/state/0/*/*").select("path").limit(1).collect())
    )


def _reader(spark: SparkSession | None) -> DataFrameReader:
    session = active_session(spark)
    if not reads_state(session):
        found = f"Spark {session.version} can't read state; only 4.0 and later can"
        hint = "use Spark 4.0 or later; the first micro-batch compares the spec with the checkpoint"
        raise UnsupportedError(with_hint(found, hint))
    return session.read.format("statestore")


def not_ours(path: str) -> StateMismatchError:
    """Return the error for a checkpoint that sessionkit didn't write."""
    found = f"the checkpoint {path} was not written by sessionkit"
    return StateMismatchError(with_hint(found, "give each query a checkpoint of its own"))


def key_row(spec: AnySpec, key: Any) -> pa.Table:
    """
    Return a key as the key columns of one row.

    Args:
        spec: Whose key.
        key: The value of the key column; a tuple of values if there are several columns.
    """
    values = tuple(key) if isinstance(key, tuple) else (key,)
    if len(values) != len(spec.key_fields):
        found = f"a key has the columns {', '.join(spec.keys)}; found {key!r}"
        raise SessionkitError(with_hint(found, "pass a value for each of them, as a tuple"))
    try:
        columns = [
            pa.array([field.type.dump(field.type.coerce(value, field.name))], field.type.arrow)
            for field, value in zip(spec.key_fields, values, strict=True)
        ]
    except StateValueError as error:
        raise SessionkitError(str(error)) from error
    return pa.Table.from_arrays(columns, schema=pa.schema(key_schema(spec)))


def only_key(memory: Memory, key: pa.Table) -> Memory:
    """Return the state of one key of a group."""
    return Memory(_with_key(memory.kept, key), _with_key(memory.buffered, key))


def _with_key(rows: pa.Table, key: pa.Table) -> pa.Table:
    for name in key.column_names:
        rows = rows.filter(pc.equal(rows[name], key[name][0]))
    return rows


def check_rules(path: str, spec: AnySpec, spark: SparkSession | None) -> None:
    """Check that what a checkpoint stores was written under the rules and classes of a spec."""
    _check(path, spec, _identities(path, spark))


def checked_spec(path: str, spec: AnySpec, spark: SparkSession | None) -> AnySpec:
    """Return a spec with the number of buckets that a checkpoint has; see `check_rules`."""
    found = _identities(path, spark)
    spec = with_buckets(spec, found[0][0]["bucket_count"]) if found else spec
    _check(path, spec, found)
    return spec


def _check(path: str, spec: AnySpec, identities: list[tuple[Any, int, int]]) -> None:
    logic, what = logic_of(spec), f"the checkpoint {path}"
    found = [(compared(logic, one), first_ms, last_ms) for one, first_ms, last_ms in identities]
    for one, _, _ in found:
        one.check(what)
    check_order(found, what)


def _identities(path: str, spark: SparkSession | None) -> list[tuple[Any, int, int]]:
    """Return the identities of a checkpoint, with the first and the last time of their rows."""
    heads = _heads(path, spark)
    return [(peek_identity(head), first_ms, last_ms) for head, first_ms, last_ms in heads]


def _heads(path: str, spark: SparkSession | None) -> list[tuple[bytes, int, int]]:
    """
    Return the distinct beginnings of payloads, with their identities: nearly always one.

    With each come the times at which the first and the last row of those was written.
    """
    with with_clear_errors(path, spark):
        stored = stored_groups(path, spark)
        if PAYLOAD not in stored.select("state.*").columns:
            raise not_ours(path)
        heads = stored.groupBy(_head(F.col(f"state.{PAYLOAD}")).alias("head"))
        written = F.col("state.written_ms")
        rows = heads.agg(F.min(written), F.max(written)).collect()
        return [(bytes(head), first_ms, last_ms) for head, first_ms, last_ms in rows]
    return []


def _head(payload: Column) -> Column:
    version = F.conv(F.hex(payload.substr(5, 2)), 16, 10).cast("int")
    found = payload.substr(1, max(HEADER_BYTES.values()))
    for number, size in HEADER_BYTES.items():
        found = F.when(version == number, _head_after(payload, size)).otherwise(found)
    return found


def _head_after(payload: Column, size: int) -> Column:
    """Return a head without the bytes that differ from group to group."""
    length = F.conv(F.hex(payload.substr(size + 1, LENGTH_BYTES)), 16, 10).cast("bigint")
    known = F.least(length + LENGTH_BYTES, F.lit(HEAD_BYTES)).cast("int")
    identity = payload.substr(F.lit(size + 1), known)
    head = F.concat(
        payload.substr(1, ORIGIN_BYTES), F.lit(bytearray(size - ORIGIN_BYTES)), identity
    )
    return F.coalesce(head, payload.substr(1, size))
