"""Which micro-batches a table of Delta Lake has: its log knows the last one of each transaction."""

import os
from typing import Any, Final

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit.spark.checkpoints.log import NO_SUCH_PATH
from sessionkit.spark.sinks.folders import numbers_from

__all__ = ["Written", "written_by"]

DIGITS: Final = 20
"""With how many digits the name of a file of the log begins: the version of the table."""
ACTIONS: Final = "txn struct<appId: string, version: bigint>, commitInfo struct<operation: string>"
RESTORE: Final = "RESTORE"


@attrs.frozen
class Written:
    """
    What a table has from a transaction.

    Attributes:
        last: Its last version, up to which Delta leaves out what comes again; None for nothing.
        is_restored: Whether the table was restored since, to a version that may be without it.
    """

    last: int | None = None
    is_restored: bool = False


def written_by(spark: SparkSession, table: str, transaction: str) -> Written:
    """
    Return what a table has from a transaction.

    No statement of Delta's says it, so it's read from the log: the last checkpoint of the log, and
    what came after it.

    Args:
        spark: A session with Delta Lake.
        table: What SQL calls the table.
        transaction: The id of the transaction.
    """
    try:
        (place,) = spark.sql(f"DESCRIBE DETAIL {table}").select("location").collect()[0]
    except PySparkException:
        return Written()  # there is no table yet
    log = f"{place}/_delta_log"
    names = map(os.path.basename, _read(spark, "parquet", f"{log}/*.checkpoint*").inputFiles())
    newest = max((int(name[:DIGITS]) for name in names), default=0)
    recent = _read(spark, "json", f"{log}/{numbers_from(newest, DIGITS)}.json")
    kept = _read(spark, "parquet", f"{log}/{newest:0{DIGITS}}.checkpoint*.parquet")
    own = F.col("txn.appId") == transaction
    (before,) = kept.where(own).agg(F.max("txn.version")).collect()[0]
    at = F.col("_metadata.file_name")
    since, written_at, restored_at = recent.agg(
        F.max(F.when(own, F.col("txn.version"))),
        F.max(F.when(own, at)),
        F.max(F.when(F.col("commitInfo.operation") == RESTORE, at)),
    ).collect()[0]
    versions = [version for version in (before, since) if version is not None]
    is_restored = bool(versions) and restored_at is not None and restored_at > (written_at or "")
    return Written(max(versions, default=None), is_restored)


def _read(spark: SparkSession, kind: str, path: str) -> DataFrame:
    """Return the actions in files; nothing where there are none."""
    reader: Any = spark.read.schema(ACTIONS).format(kind)
    try:
        return reader.load(path)  # type: ignore[no-any-return]
    except PySparkException as error:
        if NO_SUCH_PATH in str(error):
            return spark.createDataFrame([], f"{ACTIONS}, _metadata struct<file_name: string>")
        raise
