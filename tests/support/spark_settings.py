"""The settings of a Spark session that runs thousands of tiny batches, and lives for minutes."""

from __future__ import annotations

import os
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Final

import pyspark

from sessionkit.spark._settings import release_of
from tests.support.local_files import FILE_SYSTEM, compiled_file_system

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

SHORT_LIFE: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""
Options of a JVM that lives for minutes.

The second compiler costs more than it gains, and verifying Spark's own classes takes a tenth of the
CPU time until a first query has ended.
"""

FOR_TINY_BATCHES: Final = {
    "spark.sql.shuffle.partitions": "1",
    # Code for a handful of rows takes longer to generate and to compile than the rows do.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""What a session of the tests has, unless they show what depends on it."""
IN_PARTITIONS: Final = {"spark.sql.shuffle.partitions": "2"}
AS_USERS_HAVE_IT: Final = {
    **IN_PARTITIONS,
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
}

ICEBERG: Final = os.environ.get("SESSIONKIT_ICEBERG", "")
"""The release of Iceberg that a cell of the matrix has; empty for none."""
SQLITE: Final = "3.50.3.0"


@contextmanager
def changed(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Let a session have other settings meanwhile."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def spark_release() -> tuple[int, ...]:
    """Return the release of Spark, such as (4, 0, 2)."""
    return release_of(pyspark.__version__)


def quick_settings(*class_path: str) -> dict[str, str]:
    """
    Give a time zone with daylight saving, and what makes thousands of tiny batches quick.

    The first compiler alone would get a fifth of the usual room for its code; that is soon full,
    and a quarter of the JVM's time would go into sweeping it and compiling again. The default
    manager of checkpoint files starts a process (`readlink`) for every file that it renames. Spark
    4.1 writes a checksum for each file of state, later ones only under format 2 of the state. That
    costs another file and two threads. Jobs that are killed (`tests/support/faults`) have it, as
    users do, and so has `tests/spark/checkpoints/test_checksums.py`.

    Args:
        class_path: What the JVM finds its classes in, besides Spark's own jars.
    """
    package = "org.apache.spark.sql.execution.streaming"
    if (4, 1) <= spark_release():
        package += ".checkpointing"
    return {
        "spark.sql.session.timeZone": "America/New_York",
        # Spark 3.5 reads no time before 1900 without it; 4.0 and later have it by default.
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.driver.extraJavaOptions": (f"{SHORT_LIFE} -XX:ReservedCodeCacheSize=240m"),
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": (
            f"{package}.FileSystemBasedCheckpointFileManager"
        ),
        "spark.python.daemon.module": "tests.support.daemon",
        **FOR_TINY_BATCHES,
        **_files_and_classes(class_path),
        **lake_settings(mkdtemp(prefix="warehouse-")),
    }


def _files_and_classes(class_path: tuple[str, ...]) -> dict[str, str]:
    file_system = compiled_file_system()
    settings = {}
    if file_system is not None:
        class_path = (str(file_system), *class_path)
        settings["spark.hadoop.fs.file.impl"] = FILE_SYSTEM
    if class_path:
        joined = os.pathsep.join(class_path)
        settings |= {f"spark.{part}.extraClassPath": joined for part in ("driver", "executor")}
    return settings


def lake_settings(warehouse: str) -> dict[str, str]:
    """
    Let Spark fetch Delta Lake, where delta-spark is installed, and Iceberg, where a cell names it.

    Iceberg has a catalog of folders, and one in a database, both with tables in the warehouse.
    """
    packages, extensions = list[str](), list[str]()
    settings: dict[str, str] = {}
    release = ".".join(map(str, spark_release()[:2]))
    scala = "2.12" if release == "3.5" else "2.13"
    if find_spec("delta") is not None:
        release_of_delta = version("delta-spark")
        # Since 4.1, a package is for one release of Spark.
        suffix = "" if release_of(release_of_delta) < (4, 1) else f"_{release}"
        packages.append(f"io.delta:delta-spark{suffix}_{scala}:{release_of_delta}")
        extensions.append("io.delta.sql.DeltaSparkSessionExtension")
        settings |= {
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",
        }
    if ICEBERG:
        packages += [
            f"org.apache.iceberg:iceberg-spark-runtime-{release}_{scala}:{ICEBERG}",
            f"org.xerial:sqlite-jdbc:{SQLITE}",
        ]
        extensions.append("org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        catalogs = {
            "folders": {"type": "hadoop"},
            "database": {
                "type": "jdbc",
                "uri": f"jdbc:sqlite:file:{warehouse}/catalog.db",
                "jdbc.schema-version": "V1",
            },
        }
        for name, options in catalogs.items():
            catalog = f"spark.sql.catalog.{name}"
            settings[catalog] = "org.apache.iceberg.spark.SparkCatalog"
            for option, value in {**options, "warehouse": f"{warehouse}/{name}"}.items():
                settings[f"{catalog}.{option}"] = value
    if packages:
        settings["spark.jars.packages"] = ",".join(packages)
        settings["spark.sql.extensions"] = ",".join(extensions)
    return settings
