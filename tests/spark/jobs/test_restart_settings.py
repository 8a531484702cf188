"""A restart under other settings, or on a machine with other defaults, goes on or is refused."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sessionkit import EventTimeGap
from sessionkit.errors import StateError
from sessionkit.spark import Files, start_query
from sessionkit.spark._logs import OFFSETS
from sessionkit.spark._settings import PARTITIONS
from sessionkit.spark.checkpoints.state_reader import reads_state
from sessionkit.spark.query import Check
from tests.support.figures import FIGURES, Record
from tests.support.session_specs import collecting
from tests.support.spark_settings import changed
from tests.support.streams import FileStream, with_gap

BEFORE_SUMMER_TIME: Final = datetime(2026, 3, 8, 6, 30, tzinfo=UTC)
"""Half an hour before New York moves its clocks."""
SPEC: Final = collecting(EventTimeGap("10 minutes"), watermark_delay="5 minutes")
STORE: Final = "spark.sql.streaming.stateStore"
PROVIDER: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
ADAPTIVE: Final = "spark.sql.adaptive"
ARROW: Final = "spark.sql.execution.arrow"
REFUSED: Final = [{PARTITIONS: number} for number in ("1", "3", "4", "8", "16", "200")]
GOES_ON: Final[list[dict[str, str]]] = [
    *({"spark.sql.session.timeZone": zone} for zone in ("UTC", "Asia/Kathmandu", "Pacific/Apia")),
    {f"{STORE}.providerClass": PROVIDER},
    {f"{STORE}.compression.codec": "zstd"},
    {f"{STORE}.minDeltasForSnapshot": "1"},
    {"spark.sql.ansi.enabled": "false"},
    {"spark.sql.ansi.enabled": "true"},
    {"spark.sql.caseSensitive": "true"},
    {f"{ADAPTIVE}.enabled": "false"},
    {f"{ADAPTIVE}.coalescePartitions.minPartitionNum": "7"},
    {f"{ARROW}.maxRecordsPerBatch": "1"},
    {f"{ARROW}.maxRecordsPerBatch": "0"},
    {f"{ARROW}.maxBytesPerBatch": "1000"},
    {f"{ARROW}.useLargeVarTypes": "true"},
    {"spark.sql.timestampType": "TIMESTAMP_NTZ"},
    {"spark.sql.legacy.timeParserPolicy": "LEGACY"},
    {"spark.sql.parquet.outputTimestampType": "INT96"},
    {"spark.sql.streaming.multipleWatermarkPolicy": "max"},
    {OFFSETS: "2"},
    {f"{STORE}.stateSchemaCheck": "false"},
    {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"},
    {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"},
    {"spark.sql.leafNodeDefaultParallelism": "9"},
    {"spark.sql.files.maxPartitionBytes": "1000"},
]


def events(*minutes: int) -> pa.Table:
    """Return an event of each of six keys at some minutes."""
    rows = [
        {"key": f"key {key}", "at": BEFORE_SUMMER_TIME + timedelta(minutes=minute)}
        for minute in minutes
        for key in range(6)
    ]
    fields = {"key": pa.string(), "at": pa.timestamp("us", "UTC")}
    numbers = pa.array(range(len(rows)), pa.int64())
    table = pa.Table.from_pylist(rows, pa.schema(fields))
    return table.append_column("value", numbers).append_column("number", numbers)


@pytest.mark.long
def test_a_restart_with_another_setting_has_equal_rows_or_is_refused(
    spark: SparkSession, tmp_path: Path, record_property: Record
) -> None:
    """What is refused says the one thing to pass."""
    base = FileStream(spark, SPEC, tmp_path / "base", shape=with_gap)
    base.put(events(0, 1), events(5, 20))
    base.run()
    base.put(events(25, 33), events(60, 90))

    def run(number: int, settings: dict[str, str], check: Check = "rules") -> list[Any]:
        folder = tmp_path / str(number)
        shutil.copytree(base.folder, folder)
        stream = FileStream(spark, SPEC, folder, files=base.source, shape=with_gap)
        with changed(spark, settings):
            start_query(
                stream.output(),
                sink=Files("parquet", folder / "out"),
                trigger="availableNow",
                checkpoint=stream.checkpoint,
                spec=SPEC,
                check=check,
            ).awaitTermination()
        return sorted((row["session_id"], [*row["values"]]) for row in stream.rows())

    expected = run(0, {})
    assert 12 == len(expected)
    checks: tuple[Check, Check] = ("rules", "deep" if reads_state(spark) else "rules")
    for number, settings in enumerate(GOES_ON, 1):
        assert expected == run(number, settings, checks[number % 2]), settings
    refused = REFUSED if reads_state(spark) else []
    for number, settings in enumerate(refused, 100):
        with pytest.raises(StateError, match=r"Hint: pass storage=Storage\(bucket_count=8\)"):
            run(number, settings)
    text = f"restarts under other settings: {len(GOES_ON)} went on, {len(refused)} refused"
    record_property(FIGURES, text)
