"""The log of a file source that has lost its end."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sessionkit.errors import StateCorruptedError
from sessionkit.spark import Files, start_query
from tests.support.streams import write_files


def test_a_log_that_has_lost_its_end_is_named(spark: SparkSession, tmp_path: Path) -> None:
    """Spark would give the next file the number of the last one, and never read it."""

    def run() -> StreamingQuery:
        events = spark.readStream.schema("number long").option("maxFilesPerTrigger", 1)
        return start_query(
            events.parquet(str(tmp_path / "in")),
            sink=Files("parquet", tmp_path / "out"),
            trigger="availableNow",
            checkpoint=tmp_path / "checkpoint",
        )

    write_files(tmp_path / "in", [pa.table({"number": [1]}), pa.table({"number": [2]})])
    run().awaitTermination()
    write_files(tmp_path / "in", [pa.table({"number": [3]})], first=2)
    lost = tmp_path / "checkpoint" / "sources" / "0" / "1"
    kept = lost.read_bytes()
    lost.unlink()

    with pytest.raises(StateCorruptedError, match=r"and .*/sources/0/1 is missing"):
        run()
    lost.write_bytes(kept)
    run().awaitTermination()
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert [1, 2, 3] == sorted(row.number for row in rows)
