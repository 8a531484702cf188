"""
Sail: an engine in Rust that speaks Spark Connect, and runs batches without Java.

Everything that is special about it is here: how it's told from Spark, and what it lacks.
"""

from typing import Final
from weakref import WeakKeyDictionary

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit.errors import SpecError, UnsupportedError
from sessionkit.spark._settings import is_connect, release_of

ASKED: Final[WeakKeyDictionary[SparkSession, bool]] = WeakKeyDictionary()

WORKERS: Final = "spark.sessionkit.workers"
"""The setting of a session that says how many processes of the server run functions; 0 for none."""


def is_sail(spark: SparkSession) -> bool:
    """Return whether a session runs on Sail; a session is asked once."""
    if not is_connect(spark):
        return False
    if spark not in ASKED:
        (row,) = spark.sql("SELECT version()").collect()
        # Sail's releases are below 3, though `spark.version` says a release of Spark.
        ASKED[spark] = release_of(row[0]) < (3,)
    return ASKED[spark]


def hash_on_sail(*columns: Column) -> Column:
    """
    Return a 64-bit hash of columns, from two of 32 bits.

    `xxhash64` fails there, where all its columns have one value in a Parquet file with statistics.
    """
    high, low = (F.hash(F.lit(half), *columns).cast("bigint") for half in (1, 2))
    return F.shiftleft(high, 32).bitwiseXOR(low)


def workers_asked(spark: SparkSession) -> int | None:
    """Return how many processes are to run functions; None if nobody has said."""
    text = spark.conf.get(WORKERS, None)
    if text is None:
        return None
    if not text.isdecimal():
        hint = "set as many as cores, 0 to run functions in the server itself, or nothing"
        raise SpecError(f"`{WORKERS}` must be a whole number from 0, found {text!r}", hint)
    return int(text)


def check_no_stream(frame: DataFrame, name: str) -> None:
    """Refuse a stream on Sail."""
    if is_connect(frame) and frame.isStreaming and is_sail(frame.sparkSession):
        found = f"`{name}` is a stream, and Sail keeps no state between micro-batches"
        hint = "read a batch, with spark.read, or run the stream on Spark"
        raise UnsupportedError(found, hint)


def check_no_observation(spark: SparkSession) -> None:
    """Refuse an `observation` on Sail."""
    if is_sail(spark):
        found = "`observation` asks for the counts of a batch, and Sail observes no metrics"
        hint = "leave it out; with_rejected=True returns the rejected rows, to be counted by `kind`"
        raise UnsupportedError(found, hint)


def check_no_checkpoint(spark: SparkSession) -> None:
    """Refuse what reads or begins the state of a stream on Sail."""
    if is_sail(spark):
        found = "Sail runs no streams, so there is no state to read there, and none to begin with"
        raise UnsupportedError(found, "call it on Spark, where the stream runs")
