"""A batch of an engine next to the driver, which takes all rows in one micro-batch."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionkit import SessionSpec
from sessionkit._instants import micros_of
from sessionkit.spark import sessionize
from sessionkit.testing import SessionDriver

AnySpec = SessionSpec[Any, Any, Any]
AFTER_ALL: Final = datetime(2150, 1, 1, tzinfo=UTC)


def frame_of(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return a table as a frame; Spark 4.0 and later take it, and so does Sail."""
    make: Any = spark.createDataFrame
    frame: DataFrame = make(table)
    return frame


def told_by_engine(frame: DataFrame, spec: AnySpec, values: Sequence[str]) -> list[str]:
    """Return the sessions and rejected rows of a batch, the columns `values` of the former."""
    rows = sessionize(frame, spec, with_rejected=True)
    times = [
        F.unix_micros(name).alias(name) for name in ("session_start", "session_end", "event_time")
    ]
    others = ["kind", *spec.keys, "session_id", "reason", *values]
    return sorted(map(_told, (row.asDict() for row in rows.select(*times, *others).collect())))


def told_by_driver(
    rows: Iterable[Mapping[str, Any]], spec: AnySpec, values: Sequence[str]
) -> list[str]:
    """Return the same of the driver: final rows alone, as a batch has no others."""
    driver = SessionDriver(spec, processing_time=datetime.now(UTC))
    for row in rows:
        driver.add_row(row)
    driver.run_batch()
    driver.advance_watermark_to(AFTER_ALL)
    driver.run_until_idle()
    sessions = [
        {
            "kind": "session",
            **dict(zip(spec.keys, row.key, strict=True)),
            "session_id": row.session_id,
            "session_start": micros_of(row.session_start),
            "session_end": micros_of(row.session_end),
            **{name: _plain(getattr(row.result, name)) for name in values},
        }
        for row in driver.take_rows()
        if row.is_final
    ]
    rejected = [
        {
            "kind": rejection.kind,
            **dict(zip(spec.keys, rejection.key, strict=True)),
            "reason": rejection.reason,
            "event_time": None if rejection.event_time is None else micros_of(rejection.event_time),
        }
        for rejection in driver.take_rejections()
    ]
    return sorted(map(_told, [*sessions, *rejected]))


def _told(row: Mapping[str, Any]) -> str:
    """Return a row as text without nulls; of a reason, the first line."""
    kept = {name: value for name, value in row.items() if value is not None}
    if kept["kind"] != "session":
        kept["reason"] = kept["reason"].splitlines()[0]
        kept = {name: kept[name] for name in kept if not name.startswith("session_")}
    return repr(sorted(kept.items()))


def _plain(value: Any) -> Any:
    return attrs.asdict(value) if attrs.has(type(value)) else value
