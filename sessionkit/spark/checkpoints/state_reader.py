"""Read the groups of a checkpoint with Spark's state reader, and name the damage that it finds."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql import functions as F

from sessionkit import errors
from sessionkit._engine.shell.payload import FORMATS, HEADER_BYTES, peek_identity
from sessionkit._engine.shell.reading import check_events_order, compared
from sessionkit._engine.shell.storage import logic_of
from sessionkit.errors import (
    SessionkitError,
    StateCorruptedError,
    StateError,
    UnsupportedError,
)
from sessionkit.spark._grouping import with_buckets
from sessionkit.spark._logs import (
    check_begun,
    damaged_checkpoint,
    damaged_state,
    if_there,
)
from sessionkit.spark._paths import literal_path
from sessionkit.spark._settings import PARTITIONS, release_of
from sessionkit.spark.jobs.transform_with_state import BUCKET_STATE, PAGES_STATE, TIMER
from sessionkit.spec.base import AnySpec

OURS: Final = re.compile(
    r"sessionkit\.errors\.(State\w*Error|UserFunctionError): (.*?\n\nHint: [^\n]*)", re.DOTALL
)
"""An error of ours from a Python worker, in Spark's stack trace."""
FILE: Final = re.compile(r"[^\s\[\]()',]*/(?:state/\d+|sources/\d+|offsets|commits)/[^\s\[\]()',]+")
REASON: Final = re.compile(r"(?:Exception|Error): (.+)")
FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
WITH_ID: Final = r"/\d+_[0-9a-f-]{36}\.(changelog|zip)$"
FOUND_BY_SPARK: Final = (
    "STATE_STORE",
    "StateStore",
    "ChecksumException",
    "RocksDB",
    "/state/",
    "Partition should start with 0",
    "No continuous partitions",
)
NO_DAMAGE: Final = (
    "AccessControlException",
    "AccessDenied",
    "Permission denied",
    "UnknownHostException",
    "ConnectException",
    "SocketTimeoutException",
    "No space left on device",
    "OutOfMemoryError",
    "Python worker exited",
    "UnsatisfiedLinkError",
    "JOB_CANCELLED",
    "Cannot find endpoint",
)
"""Causes that leave the state as it is: their hint must not be to start a new checkpoint."""
ESCAPED: Final = frozenset(' "%<>^`|#?\\{}[]')
"""The characters that Spark 4's reader escapes twice in a path, so that it finds nothing."""
MOUNT: Final = "sessionkit"
MOUNTED: Final = re.compile(rf"{MOUNT}://\w+/checkpoint")
EMPTY_LOG: Final = "Incomplete log file"
"""Spark's message for an empty file of its logs, without the file's name."""
NOTHING_YET: Final = "STDS_COMMITTED_BATCH_UNAVAILABLE"
NO_SCHEMA: Final = "STDS_FAILED_TO_READ_STATE_SCHEMA"
NO_STATE: Final = "STDS_INVALID_OPTION_VALUE"
NAME_NEEDED: Final = "STDS_REQUIRED_OPTION_UNSPECIFIED"
"""Spark asks for the name of a state only where a group has several: with pages."""
NO_METADATA: Final = "None.get"
"""Spark 4.2.0's message for an offset log of format 2; 4.2.1 and later read it."""
CHAINED: Final = "transformWithState"
FIRST_WITH_READER: Final = (4,)
WITHOUT_METADATA: Final = (4, 2, 0)
HEAD_BYTES: Final = 65_536
"""The most bytes of a payload that are read to find its rules."""
PAYLOAD: Final = "payload"
ORIGIN_BYTES: Final = 6
"""Magic and version; the rest of the header differs from group to group."""
LENGTH_BYTES: Final = 4
CHANGES: Final = re.compile(r"(\d+)(?:_[^.]*)?\.(?:delta|changelog)$")
"""The name of a state store's file with one micro-batch's changes: the version it leads to."""


@contextmanager
def with_clear_errors(path: str, spark: SparkSession) -> Iterator[None]:
    """
    Turn errors of Spark's state reader into errors that name the damage.

    A checkpoint without a finished micro-batch counts as empty. State that sessionkit didn't write,
    and a path without a checkpoint, are refused.
    """
    try:
        yield
    except SessionkitError:
        raise
    except Exception as error:
        text = str(error)
        clear = _clear_error(text, path)
        if isinstance(clear, StateCorruptedError):
            clear = _other_format(path, spark) or clear
        if clear is not None:
            raise clear from None
        if NO_METADATA in text and release_of(spark.version) == WITHOUT_METADATA:
            found = f"Spark 4.2.0 can't read state where the offset log is of format 2: {path}"
            hint = "use Spark 4.2.1 or later; on 4.2.0, leave `spec` out of start_query"
            raise UnsupportedError(found, hint) from None
        if NO_SCHEMA in text and has_state_files(path, spark):
            schema = f"the schema below {path}/state/0/0/_metadata can't be read"
            raise damaged_state(schema) from error
        if NO_SCHEMA in text or NO_STATE in text:
            raise not_ours(path) from error
        if NOTHING_YET not in text:
            raise
        check_begun(path, spark)


def _other_format(path: str, spark: SparkSession) -> UnsupportedError | None:
    """Return an error for files of format 2, whose names have an id, without its setting."""
    if spark.conf.get(FORMAT, None) == "2":
        return None
    with_id = F.col("path").rlike(WITH_ID)
    if not if_there(lambda: _state_files(path, spark).where(with_id).head(1)):
        return None
    found = f"the state of the checkpoint {path} was written with {FORMAT}=2"
    return UnsupportedError(found, f'spark.conf.set("{FORMAT}", "2") before it is read')


def _clear_error(text: str, path: str) -> SessionkitError | None:
    """Return the error that a worker raised, or an error for damage that Spark found."""
    ours = OURS.search(text)
    if ours:
        kind: type[SessionkitError] = getattr(errors, ours[1])
        return kind(ours[2])
    if EMPTY_LOG in text:
        return damaged_checkpoint(f"a file in {path}/offsets or {path}/commits is empty")
    if not any(sign in text for sign in FOUND_BY_SPARK) or any(sign in text for sign in NO_DAMAGE):
        return None
    file = FILE.search(text)
    where = file[0].rstrip(".:;") if file else f"a file below {path}/state"
    lines = text.splitlines()
    causes = [line for line in lines if line.startswith("Caused by")]
    reason = REASON.search(causes[-1] if causes else lines[0])
    where = MOUNTED.sub(lambda _: path, where)
    return damaged_state(f"Spark can't read {where}{f': {reason[1]}' if reason else ''}")


def check_operators(path: str, spark: SparkSession) -> None:
    """Check that a checkpoint names the stateful operators of its state, if Spark reads state."""
    if not reads_state(spark):
        return
    try:
        operators = _operators(path, spark)
    except Exception as error:
        # For a cut file, Spark raises its parser's error, without the name of the file.
        if has_state_files(path, spark):
            found = f"{path}/state/0/_metadata can't be read"
            raise damaged_checkpoint(found) from error
        raise
    if not operators and has_state_files(path, spark):
        found = f"{path}/state/0/_metadata names no operator"
        raise damaged_checkpoint(found)


def _operators(path: str, spark: SparkSession) -> list[Row]:
    stored = spark.read.format("state-metadata").load(_mounted(path, spark))
    return stored.select("operatorId", "operatorName").collect()


def stored_pages(path: str, spark: SparkSession, batch: int | None = None) -> DataFrame:
    """Return the pages of each group: the columns `key`, `start` and `payload`."""
    stored = _reader(spark, batch).option("stateVarName", PAGES_STATE).load(_mounted(path, spark))
    return stored.select("key", "user_map_key.start", "user_map_value.payload")


def stored_groups(path: str, spark: SparkSession, batch: int | None = None) -> DataFrame:
    """Return the groups after a micro-batch: the columns `key`, `state` and `partition_id`."""
    groups = _rows_of_groups(_reader(spark, batch), path, spark)
    return groups.select("key", "state", "partition_id")


def changed_groups(
    path: str, first: int, spark: SparkSession, last: int | None = None
) -> DataFrame:
    """
    Return the groups that micro-batches have written, from `first` on; see `stored_groups`.

    There are also the columns `batch_id` and `change_type`: a `delete` has no state.
    """
    return _rows_of_groups(_feed(spark, first, last), path, spark)


def changed_pages(path: str, first: int, spark: SparkSession, last: int) -> DataFrame:
    """Return the pages that micro-batches have written; a removed page has no payload."""
    pages = _feed(spark, first, last).option("stateVarName", PAGES_STATE)
    stored = pages.load(_mounted(path, spark))
    return stored.select("batch_id", "key", "user_map_key.start", "user_map_value.payload")


def _feed(spark: SparkSession, first: int, last: int | None) -> DataFrameReader:
    feed = _reader(spark).option("readChangeFeed", value=True).option("changeStartBatchId", first)
    return feed if last is None else feed.option("changeEndBatchId", last)


def check_one_operator(spec: AnySpec, what: str) -> None:
    """Refuse to read the files of Spark's first state if it may be another operator's state."""
    if spec.output_event_time is not None:
        found = (
            f"{what} reads the state of one operator, and `carries_watermark` lets others follow"
        )
        raise UnsupportedError(found, "call read_state, or check_checkpoint without `deep`")


def stored_changes(path: str, spark: SparkSession) -> dict[str, set[int]]:
    """Return the versions that each partition has files of changes for."""
    versions: dict[str, set[int]] = {}
    for (file,) in _state_files(path, spark).collect():
        *_, place, name = file.split("/")
        version = CHANGES.match(name)
        versions.setdefault(place, set()).update([int(version[1])] if version else [])
    return versions


def _rows_of_groups(reader: DataFrameReader, path: str, spark: SparkSession) -> DataFrame:
    place = _mounted(path, spark)
    try:
        stored = reader.load(place)
        values = stored.select("value.*").columns
    except PySparkException as error:
        if NAME_NEEDED not in str(error):
            raise
        stored = reader.option("stateVarName", BUCKET_STATE).load(place)
        return stored.withColumn("state", F.col("value").dropFields(TIMER))
    if "groupState" not in values:
        # If operators of Spark read the rows of sessions, the first state is theirs.
        operators = _operators(path, spark)
        chained = [number for number, name in operators if name.startswith(CHAINED)]
        if not chained:
            raise not_ours(path)
        return _rows_of_groups(reader.option("operatorId", chained[0]), path, spark)
    return stored.withColumn("state", F.col("value.groupState"))


def reads_state(spark: SparkSession) -> bool:
    """Return whether this release of Spark has a state reader."""
    return release_of(spark.version) >= FIRST_WITH_READER


def _mounted(path: str, spark: SparkSession) -> str:
    """Return a path that Spark's reader finds: a plain alias for a path with special characters."""
    if not ESCAPED.intersection(path):
        return path
    files = spark.read.format("binaryFile")
    metadata = if_there(lambda: files.load(f"{literal_path(path)}/metadata").inputFiles())
    if not metadata:
        return path
    place = metadata[0].rpartition("/")[0]
    # Hadoop's view of another file system. Under its own scheme `viewfs`, Hadoop escapes twice too.
    name = f"c{sha256(place.encode()).hexdigest()[:16]}"
    spark.conf.set(f"fs.{MOUNT}.impl", "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme")
    spark.conf.set(f"fs.viewfs.mounttable.{name}.link./checkpoint", place)
    return f"{MOUNT}://{name}/checkpoint"


def has_state_files(path: str, spark: SparkSession) -> bool:
    return bool(if_there(lambda: _state_files(path, spark).limit(1).collect()))


def _state_files(path: str, spark: SparkSession) -> DataFrame:
    files = spark.read.format("binaryFile").load(f"{literal_path(path)}/state/0/*/*")
    return files.select("path")


def _reader(spark: SparkSession, batch: int | None = None) -> DataFrameReader:
    if not reads_state(spark):
        found = f"Spark {spark.version} can't read state; only 4.0 and later can"
        hint = "use Spark 4.0 or later; the first micro-batch compares the spec with the checkpoint"
        raise UnsupportedError(found, hint)
    # Spark 4.1 and 4.2 read state only where the session has once managed streams: before that, the
    # driver lacks the coordinator of state stores that readers report to.
    _ = spark.streams.active
    reader = spark.read.format("statestore")
    return reader if batch is None else reader.option("batchId", batch)


def not_ours(path: str) -> StateError:
    found = f"the checkpoint {path} was not written by sessionkit"
    return StateError(found, "give each query a checkpoint of its own")


def check_stored_rules(path: str, spec: AnySpec, spark: SparkSession) -> AnySpec:
    """Check that stored state has the rules of a spec; return the spec with its bucket count."""
    heads = [(peek_identity(bytes(head)), *written_ms) for head, *written_ms in _heads(path, spark)]
    spec = with_buckets(spec, heads[0][0]["bucket_count"]) if heads else spec
    logic, what = logic_of(spec), f"the checkpoint {path}"
    comparisons = [(compared(logic, head), first_ms, last_ms) for head, first_ms, last_ms in heads]
    for comparison, _, _ in comparisons:
        comparison.check(what)
    check_events_order(comparisons, what)
    return spec


def check_stored_buckets(path: str, count: int, spark: SparkSession) -> None:
    """Check that stored state has a bucket count, without reading more than a row of it."""
    stored: list[Row] = []
    with with_clear_errors(path, spark):
        stored = stored_groups(path, spark).select("state.bucket_count").limit(1).collect()
    if stored and stored[0][0] != count:
        raise other_buckets_error(path, stored[0][0], count)


def other_buckets_error(path: str, stored: int, count: int) -> StateError:
    found = (
        f"the checkpoint {path} has {stored} buckets, and the frame has {count}, from "
        f"{PARTITIONS} as it was when the frame was made"
    )
    return StateError(found, f"pass storage=Storage(bucket_count={stored})")


def _heads(path: str, spark: SparkSession) -> list[Row]:
    """Return the distinct heads of payloads, nearly always one, and when they were written."""
    with with_clear_errors(path, spark):
        stored = stored_groups(path, spark)
        if PAYLOAD not in stored.select("state.*").columns:
            raise not_ours(path)
        heads = stored.groupBy(_head(F.col(f"state.{PAYLOAD}")).alias("head"))
        written = F.col("state.written_ms")
        return heads.agg(F.min(written), F.max(written)).collect()
    return []


def _head(payload: Column) -> Column:
    """Return a payload up to its identity, without the bytes that differ from group to group."""
    is_known = F.conv(F.hex(payload.substr(5, 2)), 16, 10).cast("int").isin(*FORMATS)
    length = F.conv(F.hex(payload.substr(HEADER_BYTES + 1, LENGTH_BYTES)), 16, 10).cast("bigint")
    size = F.least(length + LENGTH_BYTES, F.lit(HEAD_BYTES)).cast("int")
    identity = payload.substr(F.lit(HEADER_BYTES + 1), size)
    zeros = F.lit(bytearray(HEADER_BYTES - ORIGIN_BYTES))
    head = F.concat(payload.substr(1, ORIGIN_BYTES), zeros, identity)
    return F.coalesce(F.when(is_known, head), payload.substr(1, HEADER_BYTES))
