"""A small, quiet Spark session for the examples."""

import os
import sys
import warnings
from collections.abc import Mapping

import pyspark
from pyspark.sql import SparkSession

__all__ = ["KAFKA_CONNECTOR", "start_spark"]

KAFKA_CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
PANDAS_WARNING = "PySpark does not yet fully support pandas"
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def start_spark(name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark with a name, and with settings on top of the defaults."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # PySpark warns about pandas 3, here and in its workers.
    warnings.filterwarnings("ignore", PANDAS_WARNING, FutureWarning)
    os.environ["PYTHONWARNINGS"] = f"ignore:{PANDAS_WARNING}:FutureWarning"
    builder = SparkSession.builder.master("local[2]").appName(name)
    for key, value in {**SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
