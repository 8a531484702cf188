"""The groups of a checkpoint, as Spark's own state reader gives them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from sessionkit._engine.payload import RESTORE
from sessionkit.errors import (
    SessionkitError,
    StateCorruptedError,
    StateMismatchError,
    UnsupportedError,
    with_hint,
)
from sessionkit.spark._release import release_of
from sessionkit.spark.checkpoints.damage import damage_named
from sessionkit.spark.checkpoints.log import NO_SUCH_PATH
from sessionkit.spark.jobs.pages import BUCKET_STATE, PAGES_STATE

__all__ = [
    "active_session",
    "changed_groups",
    "explained",
    "foreign",
    "has_state",
    "reads_state",
    "stored_groups",
    "stored_operators",
    "stored_pages",
]

NOTHING_YET: Final = "STDS_COMMITTED_BATCH_UNAVAILABLE"
NO_SCHEMA: Final = "STDS_FAILED_TO_READ_STATE_SCHEMA"
NO_STATE: Final = "STDS_INVALID_OPTION_VALUE"
NAME_NEEDED: Final = "STDS_REQUIRED_OPTION_UNSPECIFIED"
"""Spark asks for the name of a state only where a group has several: with pages."""
FIRST_WITH_READER: Final = (4,)
UNREADABLE: Final = "can't be read"


def stored_operators(path: str, spark: SparkSession) -> list[str]:
    """
    Return the names of the stateful operators whose state a checkpoint has, sorted.

    Raises:
        StateCorruptedError: It has state, and what it says of its operators is gone or damaged.
    """
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
    """Return the groups in the column `key`, what is stored of each in `state`, and where."""
    try:
        stored = _reader(spark).load(path)
        values = stored.select("value.*").columns
    except PySparkException as error:
        if NAME_NEEDED not in str(error):
            raise
        named = _reader(spark).option("stateVarName", BUCKET_STATE).load(path)
        return named.select("key", F.col("value").alias("state"), "partition_id")
    if "groupState" not in values:
        raise foreign(path)
    return stored.select("key", F.col("value.groupState").alias("state"), "partition_id")


def changed_groups(path: str, first: int, spark: SparkSession) -> DataFrame:
    """Return what micro-batches from a number on have changed; see `stored_groups`."""
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
def explained(path: str, spark: SparkSession | None = None) -> Iterator[None]:
    """Treat a checkpoint without a finished micro-batch as empty; refuse state of others."""
    try:
        with damage_named(path):
            yield
    except PySparkException as error:
        if NO_SCHEMA in str(error) and has_state(path, spark):
            where = f"{path}/state/0/0/_metadata"
            found = f"the stored state is damaged: the schema below {where} can't be read"
            raise StateCorruptedError(with_hint(found, RESTORE)) from error
        if any(sign in str(error) for sign in (NO_SCHEMA, NO_STATE)):
            raise foreign(path) from error
        if NOTHING_YET not in str(error):
            raise


def active_session(spark: SparkSession | None) -> SparkSession:
    """
    Return a session that is given, or the active one.

    Raises:
        SessionkitError: There is none.
    """
    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise SessionkitError(with_hint("no Spark session is active", "pass spark=..."))
    return session


def reads_state(spark: SparkSession) -> bool:
    """Return whether this release of Spark can read state."""
    return release_of(spark.version) >= FIRST_WITH_READER


def has_state(path: str, spark: SparkSession | None) -> bool:
    """Return whether a checkpoint has the files of a stateful operator."""
    files = active_session(spark).read.format("binaryFile")
    try:
        return bool(files.load(f"{path}/state/0/*/*").select("path").limit(1).collect())
    except PySparkException as error:
        if NO_SUCH_PATH in str(error):
            return False
        raise


def _reader(spark: SparkSession | None) -> DataFrameReader:
    session = active_session(spark)
    if not reads_state(session):
        found = f"Spark {session.version} can't read state; only 4.0 and later can"
        hint = "use Spark 4.0 or later; the first micro-batch compares the spec with the checkpoint"
        raise UnsupportedError(with_hint(found, hint))
    return session.read.format("statestore")


def foreign(path: str) -> StateMismatchError:
    """Return the error for a checkpoint that sessionkit didn't write."""
    found = f"the checkpoint {path} was not written by sessionkit"
    return StateMismatchError(with_hint(found, "give each query a checkpoint of its own"))
