"""The settings of a Spark session that runs thousands of tiny batches, and lives for minutes."""

from importlib.metadata import version
from importlib.util import find_spec

__all__ = ["quick_settings", "spark_release"]


def spark_release() -> tuple[int, ...]:
    """Return the release of Spark, such as (4, 0)."""
    return tuple(map(int, version("pyspark").split(".")[:2]))


def quick_settings() -> dict[str, str]:
    """
    Give a time zone with daylight saving, and what makes thousands of tiny batches quick.

    A test's JVM lives for minutes: the second compiler costs more than it gains. The first one
    alone would get a fifth of the usual room for its code; that is soon full, and a quarter of the
    JVM's time would go into sweeping it and compiling again. The default manager of checkpoint
    files starts a process (`readlink`) for every file that it renames. Hadoop starts one (`chmod`)
    for every file that it makes, here at least without a helper program between the JVM and that
    process.
    """
    package = "org.apache.spark.sql.execution.streaming"
    if (4, 1) <= spark_release():
        package += ".checkpointing"
    return {
        "spark.sql.session.timeZone": "America/New_York",
        # Spark 3.5 reads no time before 1900 without it; 4.0 and later have it by default.
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.driver.extraJavaOptions": (
            "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
            "-Djdk.lang.Process.launchMechanism=VFORK"
        ),
        "spark.sql.streaming.checkpointFileManagerClass": (
            f"{package}.FileSystemBasedCheckpointFileManager"
        ),
        "spark.python.daemon.module": "tests.support.daemon",
        **_delta_settings(),
    }


def _delta_settings() -> dict[str, str]:
    """Let Spark fetch Delta Lake, and know its statements, where delta-spark is installed."""
    if find_spec("delta") is None:
        return {}
    return {
        "spark.jars.packages": f"io.delta:delta-spark_2.13:{version('delta-spark')}",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
